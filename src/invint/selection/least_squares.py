"""Choosing monomials by the error of a linear classifier, exchanging one at a time.

Axes:  n sample   c channel   m monomial   p feature, ordered by monomial, then by channel   k class
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from invint.errors import ConfigError, RunError, ShapeError
from invint.nn.modes import evaluating
from invint.nn.monomials import MonomialIntegration, Monomials

NOISE = 1e-9  # fraction of the objective by which it must fall, beyond rounding


@dataclass(frozen=True)
class Exchange:
    """What came out of a series of exchanges.

    Attributes:
        monomials: Those chosen.
        costs: By how much the objective would rise without each of them.
        objectives: The ridge objective at the start and after each exchange tried.
        accepted: Whether each exchange tried was made.
        replaced: Index of the monomial that each exchange tried would replace.
    """

    monomials: Monomials
    costs: tuple[float, ...]
    objectives: tuple[float, ...]
    accepted: tuple[bool, ...]
    replaced: tuple[int, ...]


@dataclass(frozen=True)
class Fit:
    r"""Ridge regression on blocks of columns, as its Cholesky factor.

    The objective is $\lVert Y - ZW \rVert^2 + \lambda \lVert W \rVert^2$ with standardised columns
    $Z$ and centred $Y$, which is the same as an intercept that is not penalised. With
    $Z^T Z + \lambda I = L L^T$ it is smallest at
    $\lVert Y \rVert^2 - \lVert L^{-1} Z^T Y \rVert^2$.

    Blocks come in at the end, by one more row of blocks of $L$. They go out from anywhere: what is
    left of $L$ is turned back into a triangle by an orthogonal matrix. Both are stable however
    much the columns resemble each other; updates of the inverse are not.

    Attributes:
        columns: The matrix $Z$.
        factor: The matrix $L$.
        solved: $L^{-1} Z^T Y$.
    """

    columns: Float[Tensor, "n p"]
    factor: Float[Tensor, "p p"]
    solved: Float[Tensor, "p k"]

    def costs(self, width: int) -> list[float]:
        r"""Return by how much the objective would rise without each block of some width.

        $$\Delta_B = \operatorname{tr}\, W_B^T (P_{BB})^{-1} W_B, \qquad P = (L L^T)^{-1}$$
        """
        identity = torch.eye(len(self.factor), dtype=self.factor.dtype, device=self.factor.device)
        root = torch.linalg.solve_triangular(self.factor, identity, upper=False)
        blocks = rearrange(root, "p (m c) -> m p c", c=width)
        weights = rearrange(root.T @ self.solved, "(m c) k -> m c k", c=width)
        inverse = blocks.mT @ blocks
        costs: list[float] = (weights * torch.linalg.solve(inverse, weights)).sum((1, 2)).tolist()
        return costs

    def without(self, block: int, width: int) -> "Fit":
        """Return the fit to all blocks but one."""
        indices = torch.arange(len(self.factor), device=self.factor.device)
        rest = indices[indices // width != block]
        # The rows left of L are no triangle any more: with their transpose QR, L Q is one again.
        orthogonal, upper = torch.linalg.qr(self.factor[rest].T)
        return Fit(self.columns[:, rest], upper.T.contiguous(), orthogonal.T @ self.solved)

    def extension(self, columns: Tensor, labels: Tensor, ridge: float) -> "Extension":
        """Find what further columns add.

        Args:
            columns: Standardised.
            labels: Centred.
            ridge: The factor of the penalty.
        """
        cross = self.columns.T @ columns
        own = columns.T @ columns
        own.diagonal().add_(ridge)
        rows = torch.linalg.solve_triangular(self.factor, cross, upper=False)
        corner = _cholesky(own - rows.T @ rows)
        left = columns.T @ labels - rows.T @ self.solved
        solved = torch.linalg.solve_triangular(corner, left, upper=False)
        return Extension(columns, rows, corner, solved)

    def extended(self, by: "Extension") -> "Fit":
        """Return the fit with further columns at the end."""
        above = torch.cat([self.factor, torch.zeros_like(by.rows)], dim=1)
        below = torch.cat([by.rows.T, by.corner], dim=1)
        return Fit(
            torch.cat([self.columns, by.columns], dim=1),
            torch.cat([above, below]),
            torch.cat([self.solved, by.solved]),
        )


@dataclass(frozen=True)
class Extension:
    """What further columns add to a fit.

    Attributes:
        columns: These columns.
        rows: The new rows of the factor before its new corner, transposed.
        corner: The new corner.
        solved: The new rows of `Fit.solved`.
    """

    columns: Float[Tensor, "n c"]
    rows: Float[Tensor, "p c"]
    corner: Float[Tensor, "c c"]
    solved: Float[Tensor, "c k"]

    @property
    def gain(self) -> float:
        """By how much the objective falls."""
        value: float = self.solved.square().sum().item()
        return value


def fitted(columns: Float[Tensor, "n p"], labels: Float[Tensor, "n k"], ridge: float) -> Fit:
    """Fit standardised columns to centred labels."""
    gram = columns.T @ columns
    gram.diagonal().add_(ridge)
    factor = _cholesky(gram)
    return Fit(
        columns, factor, torch.linalg.solve_triangular(factor, columns.T @ labels, upper=False)
    )


def exchange(
    features_of: Callable[[Monomials], Tensor],
    labels: Int[Tensor, " n"],
    start: Monomials,
    draw: Callable[[], Monomials],
    *,
    ridge: float = 1.0,
    patience: int = 100,
    candidates: int = 1000,
) -> Exchange:
    """Replace the least useful monomial by a random one while a linear classifier improves.

    The classifier is ridge regression from standardised features to classes, with intercept. An
    exchange is made only if the objective falls. One factorisation is updated, so that a candidate
    costs the products of its columns with the others and little else (see `Fit`).

    Args:
        features_of: Takes monomials to features `(n, c, m)` of all samples.
        labels: Indices of the classes.
        start: The monomials at the start.
        draw: Returns one new monomial.
        ridge: Strength of the penalty on the weights.
        patience: Rejected exchanges in a row after which to stop.
        candidates: Exchanges to try at most.
    """
    if ridge <= 0 or patience < 1 or candidates < 0:
        raise ConfigError(
            "exchange: ridge and patience must be positive and candidates not negative, "
            f"got {ridge}, {patience} and {candidates}"
        )
    features = _features(features_of, start, labels)
    width = features.shape[1]
    targets = centred_classes(labels)
    fit = fitted(standardised(rearrange(features, "n c m -> n (m c)")), targets, ridge)
    blocks = [start.keep([index]) for index in range(len(start))]  # in the order of the fit
    places = list(range(len(start)))  # where in the result each of them goes
    total = targets.square().sum().item()
    objectives, accepted, replaced = [_objective(fit, total)], list[bool](), list[int]()
    costs = fit.costs(width)
    cheapest = costs.index(min(costs))
    rest = fit.without(cheapest, width)
    rejected = 0
    while len(accepted) < candidates and rejected < patience:
        new = draw()
        columns = standardised(rearrange(_features(features_of, new, labels), "n c 1 -> n c"))
        extension = rest.extension(columns, targets, ridge)
        better = extension.gain - costs[cheapest] > NOISE * objectives[-1]
        accepted.append(better)
        replaced.append(places[cheapest])
        rejected = 0 if better else rejected + 1
        if better:
            fit = rest.extended(extension)
            blocks = [*blocks[:cheapest], *blocks[cheapest + 1 :], new]
            places.append(places.pop(cheapest))
            costs = fit.costs(width)
            cheapest = costs.index(min(costs))
            rest = fit.without(cheapest, width)
        objectives.append(_objective(fit, total))
    order = sorted(range(len(places)), key=places.__getitem__)
    return Exchange(
        _joined([blocks[index] for index in order]),
        tuple(costs[index] for index in order),
        tuple(objectives),
        tuple(accepted),
        tuple(replaced),
    )


def centred_classes(labels: Int[Tensor, " n"]) -> Float[Tensor, "n k"]:
    """Return a column per class, 1 where a sample belongs to it and 0 elsewhere, less its mean."""
    one_hot = nn.functional.one_hot(labels).double()
    return one_hot - one_hot.mean(0)


def standardised(columns: Float[Tensor, "n p"]) -> Float[Tensor, "n p"]:
    """Return columns of mean 0 and variance 1 in float64; constant ones become zero."""
    columns = columns.double()
    centred = columns - columns.mean(0)
    deviation = centred.square().mean(0).sqrt()
    # A constant column is not exactly constant after rounding.
    constant = deviation <= 1e-7 * columns.abs().amax(0)
    return torch.where(constant, 0.0, centred / deviation.masked_fill(constant, 1.0))


def maps_of(
    network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]
) -> tuple[Float[Tensor, "n c h w"], Int[Tensor, " n"]]:
    """Return the maps that the network's last head is given, and the labels, in evaluation mode.

    The head itself may be any, as in a network pre-trained with pooling.

    Args:
        network: Has `features`, and a `head` that may be a sequence ending in the head proper.
        batches: Pairs of images and labels.
    """
    head = network.get_submodule("head")
    before = list(head.children())[:-1] if isinstance(head, nn.Sequential) else []
    maps, labels = [], []
    with evaluating(network), torch.no_grad():
        for images, classes in batches:
            x = network.get_submodule("features")(images)
            for module in before:
                x = module(x)
            maps.append(x)
            labels.append(classes)
    return torch.cat(maps), torch.cat(labels)


def features_of_maps(
    head: MonomialIntegration, maps: Float[Tensor, "n c h w"], *, batch_size: int = 512
) -> Callable[[Monomials], Tensor]:
    """Return the function from monomials to features of these maps that `exchange` asks for.

    Args:
        head: Says group, size and floor.
        maps: What the head is given.
        batch_size: Maps integrated at once.
    """

    def features_of(monomials: Monomials) -> Tensor:
        other = head.with_monomials(monomials)
        with torch.no_grad():
            parts = [other(part) for part in torch.split(maps, batch_size)]
        return rearrange(torch.cat(parts), "n (c m) -> n c m", m=len(monomials))

    return features_of


def _features(
    features_of: Callable[[Monomials], Tensor], monomials: Monomials, labels: Tensor
) -> Tensor:
    features = features_of(monomials)
    if features.ndim != 3 or features.shape[::2] != (len(labels), len(monomials)):
        raise ShapeError(
            f"exchange: expected features ({len(labels)}, c, {len(monomials)}), "
            f"got {tuple(features.shape)}"
        )
    if not features.isfinite().all():
        raise RunError("exchange: some features are not finite; the pre-training has diverged")
    return features


def _cholesky(matrix: Tensor) -> Tensor:
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if failed.item():
        raise ConfigError(
            "exchange: the ridge is too small for features that resemble each other this much; "
            "use a larger one"
        )
    return factor


def _objective(fit: Fit, total: float) -> float:
    value: float = total - fit.solved.square().sum().item()
    return value


def _joined(parts: Sequence[Monomials]) -> Monomials:
    names = ("distances", "angles", "exponents")
    return Monomials(*(tuple(getattr(part, name)[0] for part in parts) for name in names))
