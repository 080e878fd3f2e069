"""Measure how well filter bases respect rotations that are not quarter turns.

Real digits are turned by sampling one smooth surface per digit, so turned images carry no
interpolation error of their own. Random networks of one and of five layers, C16, 7 x 7 filters.

usage: python benchmarks/basis.py        (about two minutes on two cores; `make figures`)
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import ROOT, markdown_table, mean_and_deviation, replace_block, write_record
from scipy.ndimage import map_coordinates
from sklearn.datasets import load_digits
from torch import Tensor, nn

from invint import Cyclic
from invint.figures.style import BLUE, new_figure, save_figure, series_of, styled
from invint.nn import GroupBatchNorm, GroupConv2d, LiftConv2d
from invint.ops.steerable import Rings, default_rings, turned_basis
from invint.testing import equivariance_error

GROUP, SIZE, CHANNELS, DIGITS, SEEDS = Cyclic(16), 7, 4, 40, 5
ANGLES = (11.25, 22.5, 45.0)
TWICE, CAPPED, LINEAR = (0, 2, 4, 6), (0, 2, 3, 2), (0, 1, 2, 3)
CANDIDATES = {
    "K = 2j, σ 0.6": Rings(TWICE, (0.6,) * 4),
    "K = 2j, σ 0.5": Rings(TWICE, (0.5,) * 4),
    "K = 2j, σ 0.4": Rings(TWICE, (0.4,) * 4),
    "K = 2j, σ 0.6, outermost 0.4 (default)": default_rings(SIZE),
    "K = 2j, σ 0.6, outermost 0.3": Rings(TWICE, (0.6, 0.6, 0.6, 0.3)),
    "K = 2j, σ 0.5, outermost 0.4": Rings(TWICE, (0.5, 0.5, 0.5, 0.4)),
    "K = (0, 2, 3, 2), σ 0.6": Rings(CAPPED, (0.6,) * 4),
    "K = (0, 2, 3, 2), σ 0.6, outermost 0.4": Rings(CAPPED, (0.6, 0.6, 0.6, 0.4)),
    "K = (0, 2, 3, 2), σ (0.005, 0.6, 0.6, 0.4)": Rings(CAPPED, (0.005, 0.6, 0.6, 0.4)),
    "K = j, σ 0.6": Rings(LINEAR, (0.6,) * 4),
    "K = j, σ 0.6, outermost 0.4": Rings(LINEAR, (0.6, 0.6, 0.6, 0.4)),
}


def digits(count: int, angle: float, *, side: int = 28, scale: float = 2.5) -> Tensor:
    """Return digits as images of `side` pixels, each sampled from its cubic spline when turned."""
    axis = np.arange(side) - (side - 1) / 2
    up, right = np.meshgrid(-axis, axis, indexing="ij")
    cosine, sine = math.cos(angle), math.sin(angle)
    columns = (cosine * right + sine * up) / scale + 3.5
    rows = (sine * right - cosine * up) / scale + 3.5
    originals = load_digits().images[:count] / 16
    turned = [
        map_coordinates(np.pad(image, 4), [rows + 4, columns + 4], order=3) for image in originals
    ]
    return torch.tensor(np.stack(turned)[:, None], dtype=torch.float32)


def network(depth: int, rings: Rings) -> nn.Sequential:
    """Return a random network that ends in a convolution."""
    layers: list[nn.Module] = [LiftConv2d(1, CHANNELS, SIZE, GROUP, rings=rings)]
    for _ in range(depth - 1):
        layers += [GroupBatchNorm(CHANNELS), nn.ReLU()]
        layers += [GroupConv2d(CHANNELS, CHANNELS, SIZE, GROUP, rings=rings)]
    return nn.Sequential(*layers)


def errors(function: Callable[[int], Callable[[Tensor], Tensor]]) -> dict[float, list[float]]:
    """Measure the network of each seed at each angle."""
    images = digits(DIGITS, 0.0)
    return {
        angle: [
            equivariance_error(
                function(seed),
                images,
                GROUP,
                math.radians(angle),
                turned=digits(DIGITS, math.radians(angle)),
            )
            for seed in range(SEEDS)
        ]
        for angle in ANGLES
    }


def random_network(depth: int, rings: Rings) -> Callable[[int], nn.Sequential]:
    """Return the function from a seed to a network."""

    def build(seed: int) -> nn.Sequential:
        torch.manual_seed(seed)
        return network(depth, rings)

    return build


def measure() -> list[dict[str, Any]]:
    """Return one record per candidate and depth, and one for the interpolation alone."""
    rows: list[dict[str, Any]] = [
        {"basis": "turning the image alone", "depth": 0, "errors": errors(lambda _: lambda x: x)}
    ]
    for name, rings in CANDIDATES.items():
        basis = turned_basis(SIZE, GROUP, rings)[0].flatten(1)
        about = {
            "basis": name,
            "band_limits": rings.band_limits,
            "widths": rings.widths,
            "n_F": rings.functions,
            "real": len(basis),
            "condition": torch.linalg.cond(basis).item(),
        }
        for depth in (1, 5):
            rows.append({**about, "depth": depth, "errors": errors(random_network(depth, rings))})
            print(f"{name:45s} depth {depth}: {_cells(rows[-1])}", flush=True)
    return rows


def _cells(row: dict[str, Any]) -> list[str]:
    return [mean_and_deviation(row["errors"][angle]) for angle in ANGLES]


def table(rows: list[dict[str, Any]], depth: int) -> str:
    """Return the Markdown table of one depth."""
    header = ["basis", "n_F", "real", "condition", *(f"{angle:g}°" for angle in ANGLES)]
    body = [
        [
            str(row["basis"]),
            str(row.get("n_F", "")),
            str(row.get("real", "")),
            f"{row['condition']:.1f}" if "condition" in row else "",
            *_cells(row),
        ]
        for row in rows
        if row["depth"] in (0, depth)
    ]
    return markdown_table(header, body)


def amplification() -> dict[str, float]:
    """Return how much one default layer multiplies the mean square of noise and of digits."""
    images = {"white noise": torch.randn(DIGITS, 1, 28, 28), "digits": digits(DIGITS, 0.0)}
    inside = slice(SIZE // 2, -(SIZE // 2))
    found: dict[str, list[float]] = {name: [] for name in images}
    for seed in range(SEEDS):
        layer = random_network(1, default_rings(SIZE))(seed)
        for name, x in images.items():
            response = layer(x)[..., inside, inside].square().mean()
            found[name].append((response / x[..., inside, inside].square().mean()).item())
    return {name: float(np.mean(values)) for name, values in found.items()}


@styled
def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the mean error of every basis, after one layer and after five."""
    figure = new_figure(300, 720)
    panels = figure.subplots(1, 2, sharey=True)
    names, looks = list(CANDIDATES), series_of([f"{angle:g}" for angle in ANGLES]).values()
    for panel, depth in zip(panels, (1, 5), strict=True):
        for angle, own in zip(ANGLES, looks, strict=True):
            found = [row["errors"] for row in rows if row["depth"] == depth]
            means = [np.mean(each[angle]) for each in found]
            look = own.look() | {"linestyle": "", "alpha": 0.8}
            panel.plot(means, range(len(names)), **look, label=f"{angle:g}°")
        panel.set_title("one layer" if depth == 1 else "five layers")
        panel.set_xlabel("relative error")
        panel.set_xlim(left=0)
        panel.locator_params(axis="x", nbins=5)
        panel.xaxis.set_major_formatter("{x:g}")
        default = names.index("K = 2j, σ 0.6, outermost 0.4 (default)")
        panel.axhline(default, color=BLUE, alpha=0.15, linewidth=9)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    panels[1].legend(title="turned by", loc="center left", bbox_to_anchor=(1, 0.5))
    save_figure(figure, path)


def main() -> None:
    """Measure, record, and put table and figure into the theory page."""
    rows = measure()
    page = ROOT / "docs" / "theory" / "basis.md"
    gains = amplification()
    about = {"digits": DIGITS, "seeds": SEEDS, "amplification": gains}
    path = write_record("basis", "python benchmarks/basis.py", rows, **about)
    lines = [[name, f"{gain:.2f}"] for name, gain in gains.items()]
    replace_block(page, "amplification", markdown_table(["input", "gain"], lines))
    replace_block(page, "one layer", table(rows, 1))
    replace_block(page, "five layers", table(rows, 5))
    draw(rows, page.with_suffix(".svg"))
    print(table(rows, 1), table(rows, 5), path, sep="\n\n")


if __name__ == "__main__":
    main()
