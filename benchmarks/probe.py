"""Ridge regression on frozen features of turned digits: what each head lets a linear layer see.

The backbone is that of `sfcnn-small`, once with random weights, its batch-norm statistics found,
and once trained behind spatial maximum pooling. Then heads with random weights take its map, and
ridge regression the features: 800 images to fit, 200 to choose the constant, 797 to test, each
image at an angle of its own, those for testing at four. Everything is drawn anew for each seed.

usage: python benchmarks/probe.py [--seeds 5] [--epochs 10] [--record probe-digits]
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from record import markdown_table, recording_parser, show_table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from invint import Cyclic, create_model
from invint.data import Split, load_dataset
from invint.nn import GroupPool, make_head
from invint.ops.grids import rotate
from invint.study.statistics import Difference, paired_difference, spread

FIT, CHOOSE, TURNS, BATCH = 800, 200, 4, 200
CONSTANTS = [10.0**power for power in range(-3, 5)]
Heads = list[tuple[str, dict[str, Any]]]
ROWS: dict[str, Heads] = {
    "max": [("max", {})],
    "avg": [("avg", {})],
    "max + avg": [("max", {}), ("avg", {})],
    "monomials, 5": [("monomials", {"monomials": 5})],
    "joint-monomials, 5": [("joint-monomials", {"monomials": 5})],
    "monomials, 20": [("monomials", {"monomials": 20})],
    "monomials, 20, own angles": [("monomials", {"monomials": 20, "own_angles": True})],
    "joint-monomials, 20": [("joint-monomials", {"monomials": 20})],
    "joint-monomials, 20, all places": [("joint-monomials", {"monomials": 20, "places": 0})],
    "joint-monomials, 20, to 2": [("joint-monomials", {"monomials": 20, "exponents": (0.0, 2.0)})],
    "joint-monomials, 20, to 2, all places": [
        ("joint-monomials", {"monomials": 20, "exponents": (0.0, 2.0), "places": 0})
    ],
    "joint-monomials, 20, to 2, scale free": [
        ("joint-monomials", {"monomials": 20, "exponents": (0.0, 2.0), "scale_free": True})
    ],
    "joint-monomials, 20, to 2, across": [
        ("joint-monomials", {"monomials": 20, "exponents": (0.0, 2.0), "across": True})
    ],
    "joint-ws": [("joint-ws", {})],
}
REFERENCE = "monomials, 20"
Row = dict[str, Any]


def turned(split: Split) -> tuple[Tensor, Tensor]:
    """Return the images, each at a random angle, and their labels."""
    images = split.images.float() / 255
    return rotate(images, 2 * math.pi * torch.rand(len(images))), split.labels


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int) -> None:
    """Train with angles drawn anew in every epoch; a cosine down to zero."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    steps = epochs * (len(images) // 64)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(epochs):
        angles = 2 * math.pi * torch.rand(len(images))
        for batch in batches(torch.randperm(len(images)), 64)[: len(images) // 64]:
            optimizer.zero_grad()
            loss = cross_entropy(model(rotate(images[batch], angles[batch])), labels[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()


def maps_of(backbone: nn.Module, images: Tensor) -> Tensor:
    """Return the maps before group pooling."""
    with torch.no_grad():
        return torch.cat([backbone(batch) for batch in batches(images, BATCH)])


def batches(x: Tensor, size: int) -> list[Tensor]:
    """Cut a tensor into parts of so many rows; the last may be shorter."""
    return [x[start : start + size] for start in range(0, len(x), size)]


def features(heads: Sequence[nn.Module], maps: Tensor) -> Tensor:
    """Return the features of several heads side by side, in float64."""
    pooled = GroupPool("max")(maps)
    with torch.no_grad():
        found = [head(maps if head.takes_group else pooled) for head in heads]
    return torch.cat(found, dim=1).double()


def ridge(x: Tensor, labels: Tensor, constant: float) -> Tensor:
    """Return the weights of ridge regression on the classes; the last feature is constant."""
    penalty = constant * torch.eye(x.shape[1], dtype=x.dtype)
    penalty[-1, -1] = 0
    weights: Tensor = torch.linalg.solve(x.T @ x + penalty, x.T @ one_hot(labels).double())
    return weights


def errors(x: Tensor, labels: Tensor, weights: Tensor) -> float:
    """Return the errors in per cent."""
    return 100 * float(((x @ weights).argmax(1) != labels).double().mean())


def probe(heads: Heads, maps: dict[str, Tensor], labels: dict[str, Tensor]) -> Row:
    """Choose the constant on validation images, and test once."""
    channels, order, height, width = maps["fit"].shape[1:]
    common: dict[str, Any] = {"channels": channels, "size": (height, width)}
    made = [make_head(name, group=Cyclic(order), **common, **options) for name, options in heads]
    raw = {part: features(made, each) for part, each in maps.items()}
    mean, deviation = raw["fit"].mean(0), raw["fit"].std(0).clamp_min(1e-9)
    x = {
        part: torch.cat([(each - mean) / deviation, torch.ones(len(each), 1).double()], dim=1)
        for part, each in raw.items()
    }
    weights = {constant: ridge(x["fit"], labels["fit"], constant) for constant in CONSTANTS}
    best = min(CONSTANTS, key=lambda each: errors(x["choose"], labels["choose"], weights[each]))
    return {
        "features": raw["fit"].shape[1],
        "constant": best,
        "error": errors(x["test"], labels["test"], weights[best]),
    }


def measure(seed: int, epochs: int) -> list[Row]:
    """Return the errors of every row behind a random and a trained backbone."""
    torch.manual_seed(seed)
    data = load_dataset("digits")
    order = torch.randperm(FIT + CHOOSE)
    parts = {"fit": data.train[order[:FIT]], "choose": data.train[order[FIT:]]}
    sets = {part: turned(split) for part, split in parts.items()}
    tests = [turned(data.test) for _ in range(TURNS)]
    sets["test"] = torch.cat([each[0] for each in tests]), torch.cat([each[1] for each in tests])
    labels = {part: each[1] for part, each in sets.items()}
    found = []
    for backbone in ("random", "trained"):
        model = create_model("sfcnn-small", head="max")
        if backbone == "trained":
            images, right = parts["fit"].images.float() / 255, labels["fit"]
            train(model, images, right, epochs)
        else:
            maps_of(model.features.train(), sets["fit"][0])
        maps = {part: maps_of(model.features.eval(), each[0]) for part, each in sets.items()}
        for name, heads in ROWS.items():
            torch.manual_seed(seed)
            row = {"seed": seed, "backbone": backbone, "head": name, **probe(heads, maps, labels)}
            found.append(row)
    return found


def table(rows: list[Row]) -> str:
    """Return mean and deviation of every row, and the paired difference to the reference."""
    body = []
    for name in ROWS:
        line = [name, str(next(row["features"] for row in rows if row["head"] == name))]
        for backbone in ("random", "trained"):
            mine, other = (of(rows, backbone, each) for each in (name, REFERENCE))
            middle = spread(list(mine.values()))
            line.append(f"{middle.mean:.2f} ± {middle.deviation or 0.0:.2f}")
            found = paired_difference(mine, other)
            line.append("" if name == REFERENCE or not found else interval(found))
        body.append(line)
    against = f"against {REFERENCE}"
    return markdown_table(["head", "features", "random", against, "trained", against], body)


def interval(found: Difference) -> str:
    """Return the interval of a difference."""
    return "" if found.low is None else f"[{found.low:+.2f}, {found.high:+.2f}]"


def of(rows: list[Row], backbone: str, head: str) -> dict[int, float]:
    """Return the errors by seed."""
    chosen = [row for row in rows if (row["backbone"], row["head"]) == (backbone, head)]
    return {row["seed"]: row["error"] for row in chosen}


def main() -> None:
    """Measure, print the table, and record it if asked."""
    parser = recording_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (5)")
    parser.add_argument("--epochs", type=int, default=10, help="epochs of the trained backbone")
    options = parser.parse_args()
    rows: list[Row] = []
    for seed in range(options.seeds):
        rows += measure(seed, options.epochs)
        print(f"seed {seed} done", flush=True)
    show_table(table(rows), rows, record=options.record)


if __name__ == "__main__":
    main()
