"""Write the tables and drawings of the documentation again from the records; nothing is measured.

usage: python benchmarks/tables.py
"""

import json
from typing import Any

import batches
import estimator
import folders
import heads
import layers
import rounding
import steps
from record import ROOT, markdown_table, publish

from invint.figures.style import BLUE, VERMILLION, log_ticks, new_figure, save_figure, styled
from invint.study.records import read_records
from invint.study.tables import Table, tables_by_data

STUDIES = (
    "digits-demo",
    "digits-heads",
    "digits-longer",
    "digits-selection",
    "rotmnist-small",
    "table2-full",
    "table2-tenth",
)
KERNELS = {
    "plain path, compiled": "heads-cuda-plain",
    "kernel by rows": "heads-cuda-triton-rows",
    "kernel by tiles": "heads-cuda-triton-tiles",
    "kernel by pixels": "heads-cuda",
}


def rows_of(name: str) -> list[dict[str, Any]]:
    """Return the rows of a record."""
    rows: list[dict[str, Any]] = json.loads((ROOT / "results" / f"{name}.json").read_text())["rows"]
    return rows


def kernels() -> str:
    """Return the time of a training step of the monomial head, in milliseconds."""
    places = [(net, count) for net in ("sfcnn", "sf-wrn16-8") for count in (5, 10, 50)]
    body = [[label, *_times(rows_of(name), places)] for label, name in KERNELS.items()]
    body.append(["kernel by pixels, its launches alone", *_swept(places)])
    floor = {row["place"]["network"]: row for row in rows_of("heads-cuda-triton-tiles")}
    body.append(["last convolution", *(f"{floor[net]['convolution_ms']:.2f}" for net, _ in places)])
    return markdown_table(["ms", *(f"{net}, {count}" for net, count in places)], body)


def _times(rows: list[dict[str, Any]], places: list[tuple[str, int]]) -> list[str]:
    found = {(row["place"]["network"], row.get("monomials")): row["ms"] for row in rows}
    return [f"{found[place]:.2f}" if place in found else "–" for place in places]


def _swept(places: list[tuple[str, int]]) -> list[str]:
    """Return forward and backward of the kernels by pixels, each with its fastest settings."""
    rows = rows_of("monomial-kernels-cuda")
    best: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        ways = best.setdefault((row["network"], row["monomials"]), {})
        ways[row["way"]] = min(ways.get(row["way"], row["ms"]), row["ms"])
    return [f"{sum(best[place].values()):.3g}" if place in best else "–" for place in places]


def heads_cuda() -> list[dict[str, Any]]:
    """Return the heads compiled on CUDA, each from the newest record that has it."""
    newest: dict[tuple[str, str, int | None], dict[str, Any]] = {}
    for name in ("heads-cuda-triton-tiles", "heads-cuda-plain", "heads-cuda"):
        for row in rows_of(name):
            if row["head"] != "monomials" or name == "heads-cuda":  # with kernels now in use
                newest[row["place"]["network"], row["head"], row.get("monomials")] = row
    for row in rows_of("heads-cuda-sf-ii"):  # with average pooling only as what it is a multiple of
        if row["head"] == "sf-ii":
            newest[row["place"]["network"], "sf-ii", None] = row
    order = [(name, options.get("monomials")) for name, options in heads.HEADS]
    return [
        newest[place.network, *each]
        for place in heads.PLACES
        for each in order
        if (place.network, *each) in newest
    ]


def for_pictures() -> dict[str, str]:
    """Return what is beside other methods: classifiers of folders, and the estimator."""
    return {
        "folders": folders.table(rows_of("folders")),
        "estimator-digits": estimator.table(rows_of("estimator-digits")),
    }


def steps_cuda() -> list[dict[str, Any]]:
    """Return whole training steps on CUDA, those of SF-II from the newer record."""
    newer = {(row["network"], row["head"]): row for row in rows_of("steps-cuda-sf-ii")}
    return [newer.get((row["network"], row["head"]), row) for row in rows_of("steps-cuda")]


def study(name: str) -> str:
    """Draw the runs of a study, and return their table."""
    (table,) = tables_by_data(read_records(ROOT / "results" / f"{name}.json"))
    if len(table.sizes) > 1:
        draw(table, name)
    return table.markdown()


@styled
def draw(table: Table, name: str) -> None:
    """Draw the errors of every recipe, a panel for each number of training images."""
    count = len(table.sizes)
    figure = new_figure(24 * len(table.rows) + 80, 230 * count + 100)
    panels = figure.subplots(1, count, sharey=True)
    labels = [
        row.recipe.partition("/")[2] + (", averaged" if row.averaged else "") for row in table.rows
    ]
    for column, (panel, size) in enumerate(zip(panels, table.sizes, strict=True)):
        for place, row in enumerate(table.rows):
            ours, paper = row.cells[column].ours, row.cells[column].paper
            if ours is not None:
                label = {"label": "ours"} if place == 0 else {}
                look = {"fmt": "o", "color": BLUE, "capsize": 3, **label}
                panel.errorbar(ours.mean, place, xerr=ours.deviation, **look)
            if paper is not None:
                look = {"color": VERMILLION, "markerfacecolor": "none"}
                panel.plot(paper[0], place, "D", **look, label="paper" if place == 0 else "")
        panel.set_title(f"{size:,} training images")
        panel.set(xlabel="test error in %", xscale="log")
        ticks = log_ticks(*panel.get_xlim())
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.set_xticks([], minor=True)
        panel.grid(visible=False, axis="y")
    handles, names = panels[-1].get_legend_handles_labels()
    if "paper" in names:
        figure.legend(handles, names, loc="outside upper right", ncols=2)
    panels[0].set_yticks(range(len(labels)), labels)
    panels[0].set_ylim(len(labels) - 0.5, -0.5)
    save_figure(figure, ROOT / "docs" / f"{name}.svg")


def main() -> None:
    """Write every table."""
    tables = {
        "layers-cpu": layers.table(rows_of("layers-cpu")),
        "layers-cuda": layers.table(rows_of("layers-cuda")),
        "layers-cuda-bfloat16": layers.table(rows_of("layers-cuda-bfloat16")),
        "heads-cpu": heads.table(rows_of("heads-cpu")),
        "heads-cuda": heads.table(heads_cuda()),
        "kernels": kernels(),
        "steps-cuda": steps.table(steps_cuda()),
        "batches-cuda": batches.table(rows_of("batches-cuda")),
        "digits-rounding": rounding.table(rows_of("digits-rounding")),
    }
    tables |= for_pictures()
    tables |= {name: study(name) for name in STUDIES if (ROOT / f"results/{name}.json").exists()}
    for name, text in tables.items():
        print(name, publish(name, text))


if __name__ == "__main__":
    main()
