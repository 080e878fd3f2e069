"""`invint train`, `evaluate`, `predict`, `audit`, `export`: a run and what comes of it."""

import csv
import io
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from invint.cli.pictures import Side, SkipBad, TestShare, own_choices
from invint.errors import ConfigError, InvintError
from invint.files import check_writable, write_atomically

if TYPE_CHECKING:
    from invint.data.dataset import Dataset
    from invint.export import LoadedModel
    from invint.recipes import Recipe

Source = Annotated[str, typer.Argument(help="A run's folder, or a file of a network.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Where data sets are; INVINT_DATA or the cache by default.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def train(  # noqa: PLR0913
    recipe: Annotated[
        str, typer.Argument(help="A recipe of `invint recipes`, or a TOML or JSON file.")
    ] = "digits/local-ws",
    seed: Annotated[int, typer.Option(help="Of subset, weights, batches and dropout.")] = 0,
    size: Annotated[int | None, typer.Option(help="Number of training images.")] = None,
    data: Annotated[str | None, typer.Option(help="Another data set than the recipe's.")] = None,
    skip_bad: SkipBad = False,
    side: Side = None,
    test_share: TestShare = None,
    scale: Annotated[float | None, typer.Option(help="Share of the iterations to run.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Change a value: train.lr=3e-4.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where the folders of runs are.")] = Path("runs"),
    data_dir: DataDir = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32 or bfloat16.")] = None,
    compile: Annotated[
        bool | None, typer.Option(help="Use torch.compile; on CUDA by default.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of the CPU.")] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Repeat bits on CUDA too, at some cost.")
    ] = False,
    synchronized: Annotated[
        bool, typer.Option("--synchronized", help="Batch norm over all processes.")
    ] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Log for it too.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a recipe, or go on with it where it was stopped or killed."""
    from invint.cli.terminal.progress import watcher
    from invint.train import Execution, train_run

    leads = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun starts
    pictures = own_choices(None, skip_bad=skip_bad, side=side, test_share=test_share)
    assignments = [f"data.{name}={value}" for name, value in pictures.items()] + (assignments or [])
    chosen = chosen_recipe(recipe, size=size, data=data, scale=scale, assignments=assignments)
    store = train_run(
        chosen,
        seed=seed,
        runs=runs,
        data_dir=data_dir,
        execution=Execution(
            device=device,
            precision=precision,
            compile=compile,
            threads=threads,
            deterministic=deterministic or None,
            synchronized=synchronized or None,
        ),
        callback=watcher(quiet=quiet, as_json=as_json, tensorboard=tensorboard) if leads else None,
    )
    if leads and not as_json:
        show_result(store.result or {}, store.path)


def chosen_recipe(
    name: str,
    *,
    size: int | None = None,
    data: str | None = None,
    scale: float | None = None,
    assignments: list[str] | None = None,
) -> "Recipe":
    """Return a recipe with what the options of a command change in it."""
    from invint.recipes import changed, find_recipe

    given = {"data.size": size, "data.name": data, "train.scale": scale}
    changes = [f"{path}={value}" for path, value in given.items() if value is not None]
    return changed(find_recipe(name), changes + (assignments or []))


def show_result(result: dict[str, Any], folder: Path) -> None:
    """Print what came out of a run."""
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    note = f" ({result['data']['note']})" if result["data"]["note"] else ""
    scaled = f", scaled to {result['scale']:g} of the iterations" if result["scale"] < 1 else ""
    console.print(
        f"[bold]{result['error']:.2%} error[/] on {result['test_images']:,} test images of "
        f"{escape(result['data']['name'] + note)}, from {result['train_images']:,}{scaled}"
    )
    if "averaged_error" in result:
        turns = result["averaged_over"]
        console.print(f"{result['averaged_error']:.2%} when averaged over {turns} turned copies")
    if "best" in result:
        best = result["best"]
        console.print(
            f"chosen by validation ({best['validation_error']:.2%}, step {best['step']:,}): "
            f"{best['error']:.2%}"
        )
    console.print(
        f"{result['parameters']:,} parameters, {result['seconds']:.0f} s, in {escape(str(folder))}"
    )


def evaluate(
    source: Source,
    data: Annotated[
        str | None, typer.Option(help="A data set; that of the run by default.")
    ] = None,
    skip_bad: SkipBad = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Count the wrong answers of a network on the test images, class by class."""
    from invint.export import load_model
    from invint.predict import evaluate_model, model_file

    path = model_file(source)
    model = load_model(path)
    dataset = _data_for(model, source, data, skip_bad=skip_bad, data_dir=data_dir)
    values = evaluate_model(model, dataset.test).to_dict(model.card.class_names)
    if as_json:
        print(json.dumps({"source": str(path), "data": dataset.name, **values}))
        return
    table = Table(box=None, header_style="bold")
    table.add_column("class")
    table.add_column("images", justify="right")
    table.add_column("error", justify="right")
    for row in values["per_class"]:
        error = "" if row["error"] is None else f"{row['error']:.2%}"
        table.add_row(escape(row["name"]), f"{row['images']:,}", error)
    table.add_row("[bold]all[/]", f"{len(dataset.test):,}", f"[bold]{values['error']:.2%}[/]")
    Console().print(table)


def predict(
    source: Source,
    pictures: Annotated[list[Path], typer.Argument(help="Pictures, or folders of them.")],
    out: Annotated[
        Path | None, typer.Option(help="A .csv or .json file; the terminal by default.")
    ] = None,
    as_json: AsJson = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Report unreadable pictures and go on.")
    ] = False,
) -> None:
    """Say what is on pictures, with the probability of each class."""
    from invint.cli.terminal.progress import Counting
    from invint.predict import predict as predictions

    if out is not None and out.suffix not in (".csv", ".json"):
        raise ConfigError(f"--out {out}: expected a .csv or .json file")
    if out is not None:
        check_writable(out)  # before the work, not after it
    with Counting("predicting") as progress:
        found = list(predictions(source, pictures, skip_bad=skip_bad, progress=progress))
    rows = [
        {"path": each.path, "label": each.label, "problem": each.problem}
        | {f"p({name})": round(value, 6) for name, value in (each.probabilities or {}).items()}
        for each in found
    ]
    wants_json = as_json if out is None else out.suffix == ".json"
    text = json.dumps(rows, indent=1) + "\n" if wants_json else _csv(rows)
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text)
        unread = sum(bool(each.problem) for each in found)
        left = f", {unread} pictures could not be read" if unread else ""
        print(f"{len(rows) - unread} predictions in {out}{left}", file=sys.stderr)


def _csv(rows: list[dict[str, Any]]) -> str:
    file = io.StringIO(newline="")
    columns = max((list(row) for row in rows), key=len)
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def audit(  # noqa: PLR0913
    source: Source,
    data: Annotated[
        str | None, typer.Option(help="A data set; that of the run by default.")
    ] = None,
    skip_bad: SkipBad = False,
    data_dir: DataDir = None,
    images: Annotated[int, typer.Option(help="How many test images to turn.")] = 200,
    every: Annotated[float, typer.Option(help="Degrees between two turns.")] = 15.0,
    flips: Annotated[bool, typer.Option("--flips", help="Mirror images too.")] = False,
    out: Annotated[Path | None, typer.Option(help="A .json, .png, .svg or .pdf file.")] = None,
    min_accuracy: Annotated[
        float | None, typer.Option(help="Exit with 1 if it is lower at any angle.")
    ] = None,
) -> None:
    """Turn test images through the circle and measure what becomes of the answers."""
    from invint.audit import audit_model
    from invint.data.batches import scaled
    from invint.export import load_model
    from invint.predict import model_file
    from invint.train.store import RunStore

    if not 0 < every <= 360:
        raise ConfigError(f"--every {every:g}: expected degrees above 0, up to 360")
    if math.ceil(360 / every) > 3600:
        raise ConfigError(f"--every {every:g}: that is more than 3,600 turns; use 0.1 or more")
    if images < 1:
        raise ConfigError(f"--images {images}: expected 1 image or more")
    if min_accuracy is not None and not 0 <= min_accuracy <= 1:
        raise ConfigError(f"--min-accuracy {min_accuracy:g}: expected a share from 0 to 1")
    if out is not None:
        check_writable(out)  # before the work, not after it
    model = load_model(model_file(source))
    part = _data_for(model, source, data, skip_bad=skip_bad, data_dir=data_dir).test
    angles = [number * every for number in range(math.ceil(360 / every - 1e-9))]
    measured = audit_model(
        model, scaled(part.images[:images]), part.labels[:images], angles=angles, flips=flips
    )
    result = replace(measured, name=RunStore(Path(source)).recipe_name or measured.name)
    if out is not None:
        (result.save if out.suffix == ".json" else result.draw)(out)
    print(result.table())
    if min_accuracy is not None and not result.passes(exact_drift=None, min_accuracy=min_accuracy):
        print(f"invint: the accuracy falls below {min_accuracy:.1%}", file=sys.stderr)
        raise typer.Exit(1)


def export(
    source: Annotated[Path, typer.Argument(help="A run's folder, or a safetensors file.")],
    format: Annotated[str, typer.Option(help="onnx, torch or safetensors.")] = "onnx",
    out: Annotated[Path | None, typer.Option(help="The file; beside the run's by default.")] = None,
) -> None:
    """Write a network as one file, compared with it before the file is in place."""
    from invint.export import FORMATS, export_model, load_network
    from invint.predict import model_file

    if format not in FORMATS:
        raise ConfigError(f"--format {format}: there are {', '.join(FORMATS)}")
    path = model_file(source)
    if path.suffix != ".safetensors":
        raise ConfigError(f"{path}: expected the folder of a run, or a .safetensors file")
    try:
        network, card = load_network(path)
    except InvintError as error:
        raise ConfigError(f"{path}: {error}") from error
    target = out or path.with_suffix(FORMATS[format])
    difference = export_model(network, target, card, format=format)
    print(f"{target}: logits differ by at most {difference:.1e} from the network's")


def _data_for(
    model: "LoadedModel", source: str, data: str | None, *, skip_bad: bool, data_dir: Path | None
) -> "Dataset":
    """Return the data set asked for, or that of the run, if the network was made for such."""
    from invint.cli.terminal.progress import loaded
    from invint.predict import check_fit
    from invint.recipes.recipe import DataChoice
    from invint.train.store import RunStore

    choice = RunStore(Path(source)).data_choice if data is None else DataChoice(name=data)
    if data is not None and data.startswith("folder:"):
        choice = choice.replace(side=model.card.image_size[0])
    dataset = loaded(choice.replace(skip_bad=skip_bad or choice.skip_bad), data_dir)
    check_fit(model, dataset, source)
    return dataset
