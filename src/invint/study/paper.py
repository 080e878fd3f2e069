"""The paper's five tables as data: error in percent by recipe and number of training images.

Source: "Improving the Sample-Complexity of Deep Classification Networks with Invariant
Integration", tables 1 to 5. Deviations are given as printed; most cells have none.
"""

from dataclasses import dataclass

Value = tuple[float, float | None]


@dataclass(frozen=True)
class PaperRow:
    """One row of a table.

    Attributes:
        label: As printed.
        recipe: Name of ours; `None` for networks of other papers.
        values: Mean and deviation of the test error in percent by number of training images.
        parameters: Millions, as printed; `None` where the table does not say.
    """

    label: str
    recipe: str | None
    values: dict[int, Value]
    parameters: str | None = None


@dataclass(frozen=True)
class PaperTable:
    """One table.

    Attributes:
        number: As in the paper.
        about: What it shows.
        data: Name of the data set.
        sizes: Numbers of training images, in the order of the columns.
        seeds: Runs behind each cell.
        rows: From top to bottom.
    """

    number: int
    about: str
    data: str
    sizes: tuple[int, ...]
    seeds: int
    rows: tuple[PaperRow, ...]

    @property
    def recipes(self) -> tuple[str, ...]:
        """Names of our recipes, from top to bottom."""
        return tuple(row.recipe for row in self.rows if row.recipe is not None)


def _row(
    label: str,
    recipe: str | None,
    sizes: tuple[int, ...],
    means: tuple[float, ...],
    deviation: float | None,
    parameters: str | None = None,
) -> PaperRow:
    """Return a row whose last cell alone has a deviation; fewer means fill the last columns."""
    columns = sizes[len(sizes) - len(means) :]
    deviations = (None,) * (len(means) - 1) + (deviation,)
    values = dict(zip(columns, zip(means, deviations, strict=True), strict=True))
    return PaperRow(label, recipe, values, parameters)


ROTMNIST = (500, 1000, 2000, 4000, 6000, 12000)
SVHN = (1000, 5000, 10000, 50000, 73257)
CIFAR10 = (100, 1000, 10000, 50000)
STL10 = (5000,)
FULL = ROTMNIST[-1:]

SELECTION_TABLE = PaperTable(
    1,
    "monomial selection on Rotated-MNIST",
    "rotmnist",
    FULL,
    5,
    (
        _row("SF-CNN", "rotmnist/pooling", FULL, (0.714,), 0.022),
        _row("none, random", "rotmnist/monomials-none", FULL, (0.751,), 0.032),
        _row("LSE, pre-trained, random", "rotmnist/monomials-lse", FULL, (0.687,), 0.012),
        _row(
            "Connectivity, at initialisation, random",
            "rotmnist/monomials-connectivity-init",
            FULL,
            (0.758,),
            0.0025,
        ),
        _row(
            "Connectivity, iterative, catalog",
            "rotmnist/monomials-connectivity-catalog",
            FULL,
            (0.708,),
            0.010,
        ),
        _row(
            "Connectivity, iterative, random",
            "rotmnist/monomials-connectivity",
            FULL,
            (0.705,),
            0.027,
        ),
        _row(
            "Magnitude, iterative, catalog",
            "rotmnist/monomials-magnitude-catalog",
            FULL,
            (0.704,),
            0.022,
        ),
        _row("Magnitude, iterative, random", "rotmnist/monomials", FULL, (0.677,), 0.031),
    ),
)


def _rotmnist(
    label: str, recipe: str | None, means: tuple[float, ...], deviation: float
) -> PaperRow:
    return _row(label, recipe and f"rotmnist/{recipe}", ROTMNIST, means, deviation)


ROTMNIST_TABLE = PaperTable(
    2,
    "Rotated-MNIST",
    "rotmnist",
    ROTMNIST,
    5,
    (
        _rotmnist("CNN", "cnn7", (8.635, 7.205, 5.586, 4.684, 4.324, 3.664), 0.082),
        _rotmnist("Pooling", "pooling", (3.543, 2.529, 1.660, 1.337, 1.126, 0.714), 0.022),
        _rotmnist("Monomials", "monomials", (3.115, 2.194, 1.593, 1.322, 1.068, 0.677), 0.031),
        _rotmnist("Global-WS", "global-ws", (3.120, 2.294, 1.614, 1.200, 1.004, 0.712), 0.027),
        _rotmnist("Local-WS", "local-ws", (3.168, 2.292, 1.612, 1.186, 1.032, 0.688), 0.032),
        _rotmnist("MLP", "mlp", (3.250, 2.310, 1.652, 1.242, 1.024, 0.732), 0.023),
        _rotmnist("MH-SA", "attention", (3.178, 2.268, 1.666, 1.294, 1.038, 0.710), 0.022),
        _rotmnist("SF-II", "sf-ii", (3.352, 2.542, 1.836, 1.346, 1.128, 0.782), 0.012),
        _rotmnist("E(2)-CNN, Rotation", None, (0.705,), 0.025),
        _rotmnist("E(2)-CNN, Rotation & Flips", None, (0.682,), 0.022),
    ),
)

SVHN_TABLE = PaperTable(
    3,
    "SVHN",
    "svhn",
    SVHN,
    3,
    (
        _row("WRN16-4", "svhn/wrn", SVHN, (12.72, 6.37, 4.96, 3.29, 3.00), 0.01, "2.75"),
        _row("Pooling", "svhn/pooling", SVHN, (11.15, 5.52, 4.46, 3.25, 2.89), 0.09, "2.76"),
        _row("Monomials", "svhn/monomials", SVHN, (10.67, 5.45, 4.51, 3.10, 2.79), 0.03, "2.78"),
        _row("Global-WS", "svhn/global-ws", SVHN, (11.37, 6.45, 4.96, 3.32, 2.95), 0.07, "2.83"),
        _row("Local-WS", "svhn/local-ws", SVHN, (10.70, 5.04, 4.31, 3.00, 2.69), 0.01, "2.77"),
    ),
)

CIFAR10_TABLE = PaperTable(
    4,
    "CIFAR-10",
    "cifar10",
    CIFAR10,
    3,
    (
        _row("WRN28-10", "cifar10/wrn", CIFAR10, (71.69, 37.61, 9.08, 3.89), 0.02, "36.5"),
        _row("Pooling", "cifar10/pooling", CIFAR10, (76.54, 37.29, 12.68, 4.71), 0.04, "36.7"),
        _row("Monomials", "cifar10/monomials", CIFAR10, (69.42, 29.83, 11.15, 4.60), 0.12, "36.8"),
        _row("Local-WS", "cifar10/local-ws", CIFAR10, (72.72, 32.10, 10.45, 4.54), 0.15, "36.9"),
        _row("E(2)-WRN28-10", None, CIFAR10, (2.91,), None, "~37"),
    ),
)

STL10_TABLE = PaperTable(
    5,
    "STL-10",
    "stl10",
    STL10,
    3,
    (
        _row("WRN16-8", "stl10/wrn", STL10, (12.74,), 0.23, "10.97"),
        _row("Pooling", "stl10/pooling", STL10, (12.51,), 0.33, "10.83"),
        _row("Monomials", "stl10/monomials", STL10, (10.84,), 0.46, "10.85"),
        _row("Local-WS", "stl10/local-ws", STL10, (10.09,), 0.21, "10.92"),
        _row("E(2)-WRN16-8", None, STL10, (9.80,), 0.40, "12.0"),
        _row("SES-WRN16-8", None, STL10, (8.51,), None, "11.0"),
    ),
)

TABLES: dict[str, PaperTable] = {
    "table1": SELECTION_TABLE,
    "table2": ROTMNIST_TABLE,
    "table3": SVHN_TABLE,
    "table4": CIFAR10_TABLE,
    "table5": STL10_TABLE,
}


def paper_values(recipe: str) -> dict[int, Value]:
    """Return the paper's errors of one of our recipes; none where the paper has no such row."""
    values: dict[int, Value] = {}
    for table in TABLES.values():
        for row in table.rows:
            if row.recipe == recipe:
                values |= row.values
    return values


def printed(recipe: str, size: int) -> str | None:
    """Return the paper's error of one of our recipes with as many digits as there."""
    value = paper_values(recipe).get(size)
    if value is None:
        return None
    digits = 3 if recipe.startswith("rotmnist/") else 2
    mean, deviation = value
    text = f"{mean:.{digits}f}"
    if deviation is None:
        return text
    more = max(digits, len(repr(deviation).partition(".")[2]))
    return f"{text} ± {deviation:.{more}f}"
