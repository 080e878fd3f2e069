"""`invint train`, `evaluate`, `predict`, `audit`, `export`: a run and what comes of it."""

import csv
import io
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invint.cli.console import Counting, loaded, say, show_table, write
from invint.cli.options import (
    MACHINE,
    AsJson,
    Assignments,
    Compile,
    Data,
    DataDir,
    Device,
    DropLeaks,
    MinPerClass,
    Precision,
    RecipeName,
    Runs,
    Scale,
    Side,
    Size,
    SkipBad,
    SkipClass,
    Source,
    TestData,
    TestShare,
    Threads,
    chosen_recipe,
    own_choices,
)
from invint.errors import ConfigError, InvintError, RunError
from invint.files import check_writable, write_atomically

if TYPE_CHECKING:
    from invint.data.dataset import Dataset
    from invint.export import LoadedModel

MOST_ANGLES = 3600


def train(  # noqa: PLR0913
    recipe: RecipeName = "digits/local-ws",
    seed: Annotated[
        int, typer.Option(metavar="N", help="Of subset, weights, batches and dropout.")
    ] = 0,
    size: Size = None,
    data: Data = None,
    scale: Scale = None,
    assignments: Assignments = None,
    runs: Runs = Path("runs"),
    data_dir: DataDir = None,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Log for TensorBoard too."),
    ] = False,
    mlflow: Annotated[bool, typer.Option("--mlflow", help="Log to MLflow too.")] = False,
    wandb: Annotated[bool, typer.Option("--wandb", help="Log to Weights & Biases too.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result alone.")] = False,
    as_json: AsJson = False,
    skip_bad: SkipBad = False,
    side: Side = None,
    test_share: TestShare = None,
    drop_leaks: DropLeaks = False,
    min_per_class: MinPerClass = 0,
    skip_class: SkipClass = None,
    device: Device = None,
    precision: Precision = None,
    compile: Compile = None,
    threads: Threads = None,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            rich_help_panel=MACHINE,
            help="Bits repeat on CUDA too; slower.",
        ),
    ] = False,
    synchronized: Annotated[
        bool,
        typer.Option(
            "--synchronized",
            rich_help_panel=MACHINE,
            help="Batch norm over all processes of torchrun.",
        ),
    ] = False,
) -> None:
    """Train a recipe, or resume it where it was stopped or killed.

    Every run has a folder of its own. One that is complete is not repeated.
    """
    from invint.cli.progress import callback_for
    from invint.train import Execution, train_run

    leads = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun starts
    own = own_choices(
        skip_bad=skip_bad,
        side=side,
        test_share=test_share,
        drop_leaks=drop_leaks,
        min_per_class=min_per_class,
        skip_class=skip_class,
    )
    assignments = [f"data.{name}={json.dumps(value)}" for name, value in own.items()] + (
        assignments or []
    )
    chosen = chosen_recipe(recipe, size=size, data=data, scale=scale, assignments=assignments)
    asked = {"tensorboard": tensorboard, "mlflow": mlflow, "wandb": wandb} if leads else {}
    callback = callback_for(quiet=quiet, as_json=as_json, **asked)
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
        callback=callback if leads else None,
    )
    if leads and not as_json:
        try:
            show_result(store.result or {}, store.path)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{store.path}/result.json: damaged ({error!r})") from error


def show_result(result: dict[str, Any], folder: Path) -> None:
    """Print what came out of a run."""
    note = f" ({result['data']['note']})" if result["data"]["note"] else ""
    scaled = f", scaled to {result['scale']:g} of the iterations" if result["scale"] < 1 else ""
    error = f"{result['error']:.2%} error"
    say(
        f"{error} on {result['test_images']:,} test images of {result['data']['name']}{note}, "
        f"from {result['train_images']:,}{scaled}",
        bold=error,
    )
    if "averaged_error" in result:
        copies = result["averaged_over"]
        say(f"{result['averaged_error']:.2%} when averaged over {copies} rotated copies")
    if "best" in result:
        best = result["best"]
        say(
            f"{best['error']:.2%} with the weights of step {best['step']:,}, the best by "
            f"validation ({best['validation_error']:.2%})"
        )
    say(f"{result['parameters']:,} parameters, {result['seconds']:.0f} s, in {folder}")


def evaluate(
    source: Source,
    data: TestData = None,
    skip_bad: SkipBad = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Count the wrong answers of a network on the test images, class by class."""
    from invint.export import load_model
    from invint.predict import evaluate_model, model_file

    path = model_file(source)
    model = load_model(path)
    dataset = _test_data(model, source, data, skip_bad=skip_bad, data_dir=data_dir)
    values = evaluate_model(model, dataset.test).to_dict(model.card.class_names)
    if as_json:
        write(json.dumps({"source": str(path), "data": dataset.name, **values}) + "\n")
        return
    rows = [(row["name"], row["images"], row["error"]) for row in values["per_class"]]
    rows.append(("all", len(dataset.test), values["error"]))
    cells = [
        (name, f"{images:,}", "" if error is None else f"{error:.2%}")
        for name, images, error in rows
    ]
    styles = [""] * len(values["per_class"]) + ["bold"]
    show_table(("class", "images", "error"), cells, right=("images", "error"), styles=styles)


def predict(
    source: Source,
    pictures: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGE", help="Image files, or folders that are searched."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .csv or .json file; by default the terminal."),
    ] = None,
    as_json: AsJson = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Report images that cannot be read, and continue.")
    ] = False,
) -> None:
    """Classify images: the label of each, and the probability of every class."""
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
        write(text)
        return
    write_atomically(out, text.encode("utf-8", "surrogateescape"))  # paths with their own bytes
    unread = sum(bool(each.problem) for each in found)
    left = f", {unread} images could not be read" if unread else ""
    say(f"{len(rows) - unread} predictions in {out}{left}", error=True)


def _csv(rows: list[dict[str, Any]]) -> str:
    file = io.StringIO(newline="")
    columns = max((list(row) for row in rows), key=len)
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def audit(  # noqa: PLR0913
    source: Source,
    data: TestData = None,
    skip_bad: SkipBad = False,
    data_dir: DataDir = None,
    images: Annotated[int, typer.Option(metavar="N", help="How many test images to rotate.")] = 200,
    every: Annotated[
        float, typer.Option(metavar="DEGREES", help="Step from one angle to the next.")
    ] = 15.0,
    flips: Annotated[bool, typer.Option("--flips", help="Rotate mirrored images too.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .json, .png, .svg or .pdf file.")
    ] = None,
    min_accuracy: Annotated[
        float | None,
        typer.Option(metavar="FRACTION", help="Exit with 1 if any angle has a lower accuracy."),
    ] = None,
) -> None:
    """Rotate test images through the full circle and measure how the answers change."""
    from invint.audit import audit_model
    from invint.data.batches import scaled
    from invint.export import load_model
    from invint.predict import model_file
    from invint.train.store import RunStore

    _check_audit(images=images, every=every, min_accuracy=min_accuracy)
    if out is not None:
        check_writable(out)  # before the work, not after it
    model = load_model(model_file(source))
    test = _test_data(model, source, data, skip_bad=skip_bad, data_dir=data_dir).test
    # The last angle stays below the full circle; rounding must not add 360 degrees as one more.
    angles = [index * every for index in range(math.ceil(360 / every - 1e-9))]
    measured = audit_model(
        model, scaled(test.images[:images]), test.labels[:images], angles=angles, flips=flips
    )
    result = replace(measured, name=RunStore(Path(source)).recipe_name or measured.name)
    if out is not None:
        (result.save if out.suffix == ".json" else result.draw)(out)
    for line in result.table().split("\n"):
        say(line)
    if min_accuracy is not None and not result.passes(exact_drift=None, min_accuracy=min_accuracy):
        say(f"invint: the accuracy falls below {min_accuracy:.1%}", error=True)
        raise typer.Exit(1)


def _check_audit(*, images: int, every: float, min_accuracy: float | None) -> None:
    if not 0 < every <= 360:
        raise ConfigError(f"--every {every:g}: expected degrees above 0, up to 360")
    if math.ceil(360 / every) > MOST_ANGLES:
        raise ConfigError(
            f"--every {every:g}: that is more than {MOST_ANGLES:,} angles; use 0.1 or more"
        )
    if images < 1:
        raise ConfigError(f"--images {images}: expected 1 image or more")
    if min_accuracy is not None and not 0 <= min_accuracy <= 1:
        raise ConfigError(f"--min-accuracy {min_accuracy:g}: expected a fraction from 0 to 1")


def export(
    source: Annotated[
        Path,
        typer.Argument(metavar="RUN|FILE", help="The folder of a run, or a .safetensors file."),
    ],
    format: Annotated[
        str, typer.Option(metavar="NAME", help="onnx, torch or safetensors.")
    ] = "onnx",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="By default beside the run's own file.")
    ] = None,
    int8: Annotated[
        bool,
        typer.Option("--int8", help="Convolutions in int8, of a run; measured before and after."),
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Write a network as one file that is checked against it before it is put in place."""
    from invint.export import FORMATS, export_model, load_network
    from invint.predict import model_file

    if format not in FORMATS:
        raise ConfigError(f"--format {format}: there are {', '.join(FORMATS)}")
    if int8:
        if format != "onnx" or not source.is_dir():
            raise ConfigError("--int8: goes with the folder of a run and --format onnx")
        _export_int8(source, out, data_dir)
        return
    path = model_file(source)
    if path.suffix != ".safetensors":
        raise ConfigError(f"{path}: expected the folder of a run, or a .safetensors file")
    try:
        network, card = load_network(path)
    except InvintError as error:
        raise ConfigError(f"{path}: {error}") from error
    target = out or path.with_suffix(FORMATS[format])
    difference = export_model(network, target, card, format=format)
    say(f"{target}: logits differ by at most {difference:.1e} from the network's")


def _export_int8(run: Path, out: Path | None, data_dir: Path | None) -> None:
    """Write the int8 network of a run, and print what it does beside the one in float32."""
    from invint.predict import export_int8
    from invint.train.store import RunStore

    store = RunStore(run)
    beside = store.model.with_suffix(".int8.onnx")
    path = out or beside
    before, after = export_int8(run, path, loaded(store.data_choice, data_dir))
    texts = {
        "bytes": ("bytes of the file", "{:,}"),
        "error": ("test error", "{:.2%}"),
        "worst_accuracy": ("lowest accuracy at any angle", "{:.1%}"),
        "worst_exact_drift": ("largest drift, quarter turns", "{:.1e}"),
        "worst_drift": ("largest drift, any angle", "{:.1e}"),
    }
    measured = [each.to_dict() for each in (before, after)]
    rows = [
        (title, *(text.format(each[key]) for each in measured))
        for key, (title, text) in texts.items()
    ]
    show_table(("", "float32", "int8"), rows, right=("float32", "int8"))
    say(f"in {path}")


def _test_data(
    model: "LoadedModel", source: str, data: str | None, *, skip_bad: bool, data_dir: Path | None
) -> "Dataset":
    """Return the data set asked for, or that of the run; refuse what does not fit the network."""
    from invint.predict import check_fit
    from invint.recipes.recipe import DataChoice
    from invint.train.store import RunStore

    choice = RunStore(Path(source)).data_choice if data is None else DataChoice(name=data)
    if data is not None and data.startswith("folder:"):
        choice = choice.replace(side=model.card.image_size[0])
    dataset = loaded(choice.replace(skip_bad=skip_bad or choice.skip_bad), data_dir)
    check_fit(model, dataset, source)
    return dataset
