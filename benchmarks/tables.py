"""Write the tables and drawings of the documentation again from the records; nothing is measured.

usage: python benchmarks/tables.py
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import batches
import estimator
import first_step
import folders
import heads
import layers
import rounding
import steps
from record import ROOT, markdown_table, publish

from invint.data.registry import find_entry
from invint.figures.charts import error_drawing
from invint.figures.style import (
    BLUE,
    VERMILLION,
    log_ticks,
    new_figure,
    save_figure,
    series_of,
    styled,
)
from invint.recipes import find_recipe
from invint.study.grid import find_study
from invint.study.records import RunRecord, read_records
from invint.study.statistics import BETTER, UNDECIDED, WORSE, paired_difference
from invint.study.tables import (
    AVERAGED,
    Table,
    errors_by_pair,
    interval_text,
    make_table,
    tables_by_data,
)

STUDIES = (
    "digits-heads",
    "digits-longer",
    "digits-selection",
    "rotmnist-small",
    "settled-cifar10",
    "settled-digits",
    "settled-rotmnist",
    "settled-svhn",
    "table2-full",
    "table2-tenth",
)
TRAINING = {  # each study that says something about heads, and how its networks were trained
    "digits-heads": "digits, 312 steps",
    "digits-longer": "digits, 624 steps",
    "rotmnist-small": "Rotated-MNIST, small networks",
    "table2-tenth": "Rotated-MNIST, the paper's recipes, a tenth",
    "table2-full": "Rotated-MNIST, the paper's recipes",
    "settled-digits": "digits, settled",
    "settled-rotmnist": "Rotated-MNIST, settled",
    "settled-svhn": "SVHN, settled",
    "settled-cifar10": "CIFAR-10, settled",
}
CURVES = {  # pages' learning curves: records in order of preference, and the networks drawn
    "learning-digits": (("settled-digits", "digits-heads"), ("pooling", "monomials", "local-ws")),
    "learning-rotmnist": (("settled-rotmnist", "table2-tenth"), ("pooling", "monomials", "mlp")),
}
FIRST_PAGE = (TRAINING["digits-heads"], 1000)
PLAIN = {"digits": ("cnn", "settled-cnn-small"), "rotmnist": ("cnn7", "settled-cnn7")}
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


# The page of results


def records_of(name: str) -> list[RunRecord]:
    """Return the runs of a record; none where it is not there."""
    path = ROOT / "results" / f"{name}.json"
    return read_records(path) if path.exists() else []


@dataclass(frozen=True)
class Compared:
    """A network beside pooling, trained alike."""

    training: str
    network: str
    size: int
    text: str
    pairs: int
    verdict: str


def compared() -> Iterator[Compared]:
    """Yield every comparison with pooling of which there are two pairs of runs or more."""
    for name, training in TRAINING.items():
        for table in tables_by_data(records_of(name)):
            for row in table.compared:
                for size, cell in zip(table.sizes, row.cells, strict=True):
                    if cell.difference is not None and cell.difference.low is not None:
                        network = row.label.partition("/")[2].removeprefix("settled-")
                        text = interval_text(cell.difference).partition("]")[0] + "]"
                        pairs, verdict = cell.difference.pairs, cell.difference.verdict
                        yield Compared(training, network, size, text, pairs, verdict)


def shown() -> str:
    """Return the comparisons whose interval leaves zero out, and how many do not."""
    found = list(compared())
    named = [each for each in found if each.verdict in (BETTER, WORSE)]
    header = ["network", "trained", "images", "pairs", "points more errors than pooling", ""]
    rows = [
        [each.network, each.training, f"{each.size:,}", str(each.pairs), each.text, each.verdict]
        for each in named
    ]
    heads = [each for each in found if not each.network.startswith("cnn")]
    wins = sum(each.verdict == BETTER for each in heads)
    losses = sum(each.verdict == WORSE for each in heads)
    return (
        f"{markdown_table(header, rows)}\n\nThese are {len(named)} of {len(found)} comparisons "
        f"with pooling. Of the {len(heads)} that compare a *head* with pooling, {wins} show it "
        f"better, {losses} worse, and {sum(each.verdict == UNDECIDED for each in heads)} show no "
        f"difference; if no head differed at all, intervals of 95 % would still name about "
        f"{0.05 * len(heads):.0f} of them, half of them as better."
    )


def headline() -> str:
    """Return what the digits show, with intervals, for the first page."""
    found = {each.network: each for each in compared() if (each.training, each.size) == FIRST_PAGE}
    plain, averaged, head = (found[name] for name in ("cnn", f"cnn, {AVERAGED}", "local-ws"))
    return (
        f"From {plain.size:,} turned digits a plain network makes {plain.text} percentage points "
        "more errors than a steerable one of its size with pooling, and "
        f"{averaged.text} with its answers averaged over turned copies of the test image "
        "(difference over the same "
        f"{plain.pairs} seeds, 95 % interval). Integration cannot be told from pooling there: "
        f"{head.text} for weighted sums over neighbourhoods."
    )


def undecided() -> str:
    """Return how wide the intervals of heads are where zero is in them."""
    rows = []
    for training in TRAINING.values():
        found = [
            each
            for each in compared()
            if (each.training, each.verdict) == (training, UNDECIDED)
            and not each.network.startswith("cnn")
        ]
        for size in sorted({each.size for each in found}):
            alike = [each for each in found if each.size == size]
            text = "; ".join(f"{each.network} {each.text}" for each in alike)
            rows.append([training, f"{size:,}", text])
    return markdown_table(["trained", "images", "points more errors than pooling"], rows)


def learning_curves() -> dict[str, str]:
    """Draw error against training images, a band for seeds, and return what each drawing shows."""
    captions = {}
    for name, (sources, chosen) in CURVES.items():
        for source in sources:
            runs = records_of(source)
            if len({run.size for run in runs}) > 1 and len({run.seed for run in runs}) > 1:
                captions[name] = draw_curve(name, source, runs, chosen)
                break
    return captions


def draw_curve(name: str, source: str, runs: list[RunRecord], heads: tuple[str, ...]) -> str:
    """Draw one of them; a plain network is drawn with its answers averaged over turned copies."""
    family = runs[0].recipe.partition("/")[0]
    wanted = {*heads, *(f"settled-{head}" for head in heads), *PLAIN[family]}
    chosen = [run for run in runs if run.recipe.partition("/")[2] in wanted]
    table = make_table(chosen)
    drawing = error_drawing(table, series_of([row.recipe for row in table.rows]))
    if drawing is None:
        raise SystemExit(f"{source}: no curve in these records")
    save_figure(drawing.figure, ROOT / "docs" / f"{name}.svg")
    seeds = len({run.seed for run in chosen})
    return (
        f"Test error against the number of labelled images ({TRAINING[source]}, {seeds} seeds, "
        f"`results/{source}.json`). The band is one sample deviation of the seeds either way; both "
        "axes are logarithmic. Dotted: answers averaged over turned copies of the test image. "
        + (
            "Dashed: the paper's."
            if any(cell.paper for r in table.rows for cell in r.cells)
            else ""
        )
    ).strip()


def unlike() -> str:
    """Return in what the paper's recipes on Rotated-MNIST differ beside the head."""
    images = (find_entry("rotmnist").counts or (0, 0))[0]
    rows = []
    for name in find_study("table2").recipes:
        recipe = find_recipe(name)
        train, steps = recipe.train, recipe.schedule(images).steps
        last = train.rate(train.epochs) / train.lr
        rows.append(
            [
                name.partition("/")[2],
                f"{steps:,}",
                str(train.batch_size),
                f"{train.lr:g}",
                f"{last:.2g}",
                f"{recipe.model.dropout:g}" if recipe.model.dropout is not None else "default",
                f"{train.reg:g}",
            ]
        )
    header = ["recipe", "steps", "images a step", "first rate", "last / first", "dropout", "λ"]
    return markdown_table(header, rows)


@dataclass(frozen=True)
class Missing:
    """Runs that nobody has made yet.

    Attributes:
        what: What they tell.
        command: What makes them, after `invint`.
        runs: How many.
        seconds: Of each on one H200.
    """

    what: str
    command: str
    runs: int
    seconds: float


def missing() -> str:
    """Return the evidence that is not there, what makes it, and what it costs."""
    body = [
        [each.what, f"`{each.command}`", str(each.runs), f"{each.runs * each.seconds / 60:.0f}"]
        for each in lacking()
    ]
    return markdown_table(["what is missing", "command", "runs", "GPU minutes"], body)


def lacking() -> Iterator[Missing]:
    """Yield what is missing, from the time that like runs have taken."""
    settled = median(run.seconds for run in records_of("settled-rotmnist"))
    local = next(r.seconds for r in records_of("table2-full") if r.recipe.endswith("local-ws"))
    study = "invint study settled-rotmnist --data rotmnist-regenerated"
    recipes, there = (
        len(find_study("settled-rotmnist").recipes),
        len(records_of("settled-rotmnist")),
    )
    few = ("all heads, both poolings and the plain network, settled, from 500 to 2,000 images", 5)
    many = ("the same from 4,000 to 12,000 images", 3)
    yield Missing(few[0], f"{study} --sizes 500,1000,2000 --seeds 5", 15 * recipes - there, settled)
    yield Missing(many[0], f"{study} --sizes 4000,6000,all --seeds 3", 9 * recipes, settled)
    yield Missing(
        "each head beyond the paper's in these tables",
        f"{study} --only pooling,NAME --sizes 500,1000,2000 --seeds 5",
        15,
        settled,
    )
    full = "invint study table2 --only pooling,local-ws,monomials --data rotmnist-regenerated"
    yield Missing(
        "whether the paper's order is more than one seed", f"{full} --sizes all --seeds 3", 6, local
    )
    yield Missing(
        "the same from 500 images, three tenths of the steps",
        f"{full} --sizes 500 --scale 0.3 --seeds 3",
        9,
        0.3 * local,
    )
    like = "invint train rotmnist/local-ws --data rotmnist-regenerated --set model.head"
    yield Missing("pooling with the paper's recipe of Local-WS", f"{like}=max", 1, local)
    yield Missing("average pooling with it", f"{like}=avg", 1, local)
    step = next(
        row["milliseconds"]
        for row in rows_of("steps-cuda")
        if (row["network"], row["head"]) == ("sf-wrn16-4", "max")
    )
    for data, other in (("svhn", " --data svhn-recropped"), ("cifar10", "")):
        name = f"settled-{data}"
        recipe = find_recipe(f"{data}/settled-pooling")
        steps = recipe.schedule((find_entry(data).counts or (0, 0))[0]).steps
        seconds = 1e-3 * step * steps * recipe.train.batch_size / 64
        plan = find_study(name)
        runs = len(plan.recipes) * len(plan.sizes) * plan.seeds
        what = f"{find_entry(data).title.partition(',')[0]}, 1,000 and 5,000 images"
        yield Missing(what, f"invint study {name}{other}", runs, seconds)


def settling() -> str:
    """Compare runs that have settled with those of the paper's recipe, cut to a tenth."""
    tenth, settled = records_of("table2-tenth"), records_of("settled-rotmnist")
    rows = []
    for head in ("pooling", "monomials", "local-ws"):
        both = [
            errors_by_pair([run for run in runs if (run.recipe, run.size) == (name, 500)])
            for runs, name in (
                (settled, f"rotmnist/settled-{head}"),
                (tenth, f"rotmnist/{head}"),
            )
        ]
        found = paired_difference(*both)
        if found is not None:
            rows.append([head, str(found.pairs), interval_text(found)])
    return markdown_table(["network", "pairs", "settled − a tenth of the paper's recipe"], rows)


def main() -> None:
    """Write every table."""
    tables = {
        "layers-cpu": layers.table(rows_of("layers-cpu")),
        "layers-cuda": layers.table(rows_of("layers-cuda")),
        "layers-cuda-bfloat16": layers.table(rows_of("layers-cuda-bfloat16")),
        "heads-cpu": heads.table(rows_of("heads-cpu")),
        "heads-cpu-joint": heads.table(rows_of("heads-cpu-joint")),
        "heads-cuda": heads.table(heads_cuda()),
        "kernels": kernels(),
        "steps-cuda": steps.table(steps_cuda()),
        "batches-cuda": batches.table(rows_of("batches-cuda")),
        "digits-rounding": rounding.table(rows_of("digits-rounding")),
        "headline": headline(),
        "shown": shown(),
        "undecided": undecided(),
        "unlike": unlike(),
        "settling": settling(),
        "missing": missing(),
    }
    tables |= learning_curves()
    tables |= {
        name: first_step.table(rows_of(name))
        for name in ("first-step-cpu", "first-step-cuda", "first-step-cuda-before")
        if (ROOT / f"results/{name}.json").exists()
    }
    tables |= for_pictures()
    tables |= {name: study(name) for name in STUDIES if (ROOT / f"results/{name}.json").exists()}
    for name, text in tables.items():
        print(name, publish(name, text))


if __name__ == "__main__":
    main()
