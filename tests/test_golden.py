"""What version 0.1 wrote is still read, and what it computed is still computed.

The files in `tests/golden` were written by 0.1 (`tests/golden/make.py` says how) and are never
written again: a test that fails here says that behaviour changed, or that an old file is lost.
"""

import hashlib
import io
import json
import os
import pickle
import platform
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits

from invint.cli import main
from invint.data import load_dataset
from invint.data.batches import Batches, normalisation
from invint.export import load_model
from invint.recipes import RECIPES, changed, find_recipe
from invint.train import Callback, Execution, train_run
from invint.version import __version__

GOLDEN = Path(__file__).parent / "golden"
FOLDERS = ("local-ws", "monomials")
CHANGED: dict[tuple[str, str], str] = {}  # (command, option) that is no more: the reason
MODELS = ("local-ws", "monomials")
AUGMENTATIONS = ("rotate", "crop", "flip", "cutout")
TABLES = {"markdown": "table.md", "csv": "table.csv", "latex": "table.tex"}
STUDY: tuple[str, ...] = ("digits", "--only", "cnn,pooling,local-ws", "--sizes", "50,100")
STUDY += ("--seeds", "2", "--scale", "0.01", "--threads", "1")
AUDIT = ("--images", "20", "--every", "45", "--flips")

# Sums of floats are ordered otherwise by the kernels of other instruction sets, libraries and
# versions of torch, so elsewhere bits differ. After twenty steps most weights differ by 1e-6, and
# a few, whose gradients are small, by 1e-4, as Adam makes steps of one length of all. But a bias
# before batch normalisation has no gradient but rounding: these, the running means that follow
# them, and with them what is answered in evaluation differ by more, and are compared on the same
# machine alone.
ROUNDING = 1e-4
TRAINED = 2e-3
DRIFTING = {f"classifier.{name}" for name in ("0.bias", "4.bias", "1.running_mean")}
DRIFTING |= {"classifier.5.running_mean"}
EVALUATED = {"error", "cross_entropy", "per_class", "best", "validation_error"}
IMAGES_WRONG = 0.02  # share of images that rounding may move over a border
VOLATILE = {"seconds", "invint", "version", "environment", "about", "source", "format"}


def read(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text())


def environment() -> dict[str, str]:
    """Say on what the bits of a sum depend."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    told = {line for line in lines if line.startswith(("model name", "flags", "cache size"))}
    return {
        "torch": str(torch.__version__),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "machine": platform.machine(),
        "processor": platform.processor(),
        "cpu": hashlib.sha256("\n".join(sorted(told)).encode()).hexdigest()[:16],
    }


@pytest.fixture
def same_machine() -> None:
    """Skip what compares bits where they may differ."""
    here, there = environment(), read("environment.json")
    other = [key for key in there if here[key] != there[key]]
    if other:
        pytest.skip(f"the golden bits come from another {', '.join(other)}")


def invint(*arguments: str) -> str:
    """Return what a command prints; it runs in this process."""
    out, errors = io.StringIO(), io.StringIO()
    settings = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    with (
        mock.patch.object(sys, "argv", ["invint", *arguments]),
        mock.patch.dict(os.environ, settings),
        redirect_stdout(out),
        redirect_stderr(errors),
        pytest.raises(SystemExit) as end,
    ):
        main()
    assert not end.value.code, errors.getvalue()
    return out.getvalue()


def assert_alike(found: Any, golden: Any, tolerance: float, where: str = "") -> None:
    """Compare plain data: floats closely, all else exactly; more keys than there were are fine."""
    if isinstance(golden, dict):
        assert isinstance(found, dict), where
        for key in golden.keys() - VOLATILE:
            assert key in found, f"{where}.{key} is gone"
            loose = max(tolerance, IMAGES_WRONG) if "error" in key else tolerance
            assert_alike(found[key], golden[key], loose, f"{where}.{key}")
    elif isinstance(golden, list):
        assert len(found) == len(golden), where
        for number, (one, other) in enumerate(zip(found, golden, strict=True)):
            assert_alike(one, other, tolerance, f"{where}[{number}]")
    elif isinstance(golden, float):
        assert found == pytest.approx(golden, rel=tolerance, abs=tolerance), where
    else:
        assert found == golden, where


# 1. Recipes


def test_recipes_have_their_names_choices_and_hashes() -> None:
    golden = read("recipes.json")
    found = {
        name: {"hash": find_recipe(name).hash, "choices": find_recipe(name).choices}
        for name in golden["recipes"]
    }
    assert json.loads(json.dumps(found)) == golden["recipes"]
    assert set(golden["recipes"]) <= set(RECIPES)


def test_changed_recipes_have_their_choices_and_hashes() -> None:
    for case in read("recipes.json")["changed"]:
        recipe = changed(find_recipe(case["name"]), case["set"])
        assert json.loads(json.dumps(recipe.choices)) == case["choices"], case["set"]
        assert recipe.hash == case["hash"], case["set"]


# 2. Folders of runs


class Listening(Callback):
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.began: list[int] = []

    def on_start(self, folder: Path, step: int, steps: int) -> None:
        assert folder.is_dir()
        assert step < steps
        self.began.append(step)

    def on_note(self, text: str) -> None:
        self.notes.append(text)


def go_on(name: str, runs: Path, start: str) -> tuple[Path, Listening]:
    """Put a folder of 0.1 in its place among runs, and go on with the run."""
    case = read("folders/recipes.json")[name]
    recipe = changed(find_recipe(case["name"]), case["set"])
    written = read(f"folders/{name}/complete/recipe.json")
    place = runs / written["name"] / written["hash"] / str(written["seed"])
    if start != "empty":
        shutil.copytree(GOLDEN / "folders" / name / "stopped", place)
    if start == "damaged":
        last = place / "last.safetensors"
        last.write_bytes(last.read_bytes()[:-100])
    watch = Listening()
    once = Execution(device="cpu", threads=1)
    folder = train_run(recipe, seed=case["seed"], runs=runs, execution=once, callback=watch).path
    assert folder == place
    return folder, watch


STARTS = [(name, start) for name in FOLDERS for start in ("empty", "stopped", "damaged")]


@pytest.fixture(scope="module", params=STARTS, ids=lambda case: " ".join(case))
def ended(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str, Path, Listening]:
    """A run that was begun anew, or by 0.1 and gone on with, or with its last file damaged."""
    name, start = request.param
    return name, start, *go_on(name, tmp_path_factory.mktemp("runs"), start)


def log_of(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [{**json.loads(line), "seconds": 0} for line in lines]


def result_of(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return values


Ended = tuple[str, str, Path, Listening]


@pytest.mark.slow
def test_runs_go_on_where_they_were_stopped(ended: Ended) -> None:
    name, start, _, watch = ended
    steps = {"empty": 0, **read("folders/recipes.json")[name]["saved"]}
    assert watch.began == [steps[start]]
    notes = [note for note in watch.notes if not note.startswith("the run began with ")]
    assert len(notes) == (start == "damaged")
    if read("environment.json") == environment() and __version__ == "0.1.0":
        assert notes == watch.notes


@pytest.mark.slow
def test_runs_end_as_they_did(ended: Ended) -> None:
    name, _, folder, _ = ended
    golden = GOLDEN / "folders" / name / "complete"
    assert {path.name for path in golden.iterdir()} <= {path.name for path in folder.iterdir()}
    weights, expected = (load_file(each / "model.safetensors") for each in (folder, golden))
    assert list(weights) == list(expected)
    assert expected.keys() > DRIFTING
    result = {key: value for key, value in result_of(golden).items() if key not in EVALUATED}
    assert_alike(result_of(folder), result, 0)
    for file in ("recipe.json", "subset.json"):
        assert_alike(json.loads((folder / file).read_text()), read(f"{golden}/{file}"), 0)
    if name == "local-ws" and read("environment.json")["machine"] != platform.machine():
        pytest.skip("other processors draw dropout otherwise")
    for key, tensor in expected.items():
        loose = 1.0 if key in DRIFTING else TRAINED
        torch.testing.assert_close(weights[key], tensor, rtol=loose, atol=loose)
    log = [
        {key: value for key, value in line.items() if key != "validation_error"}
        for line in log_of(golden)
    ]
    assert_alike(log_of(folder), log, TRAINED)


@pytest.mark.slow
@pytest.mark.usefixtures("same_machine")
def test_runs_end_in_the_same_bits(ended: Ended) -> None:
    name, _, folder, _ = ended
    golden = GOLDEN / "folders" / name / "complete"
    names = [path.name for path in golden.glob("*.safetensors") if path.name != "last.safetensors"]
    assert len(names) >= 2
    for file in names:
        weights, expected = (load_file(each / file) for each in (folder, golden))
        assert all(torch.equal(weights[key], expected[key]) for key in expected), file
    assert log_of(folder) == log_of(golden)
    result = result_of(folder)
    assert {key: result[key] for key in EVALUATED & result_of(golden).keys()} == {
        key: value for key, value in result_of(golden).items() if key in EVALUATED
    }


# 3. Commands on a folder of a complete run


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> "Run":
    """A copy of a complete run, since commands may write into it."""
    name = request.param
    return name, shutil.copytree(GOLDEN / "folders" / name / "complete", tmp_path / name)


each_run = pytest.mark.parametrize("run", FOLDERS, indirect=True)
Run = tuple[str, Path]


def answers(name: str, folder: Path, command: str, out: Path) -> Any:
    """Return what a command says of a run, as plain data."""
    if command == "evaluate":
        values = json.loads(invint("evaluate", str(folder), "--json"))
        values["source"] = Path(values["source"]).name
    elif command == "predict":
        values = json.loads(invint("predict", str(folder), str(GOLDEN / "pictures"), "--json"))
        values = [{**row, "path": Path(row["path"]).name} for row in values]
    elif command == "audit":
        printed = invint("audit", str(folder), *AUDIT, "--out", str(out / f"{name}.json"))
        values = {"file": json.loads((out / f"{name}.json").read_text()), "table": bool(printed)}
    elif command == "monomials":
        lines = map(str.split, invint("monomials", str(folder)).splitlines())
        values = [words for words in lines if words and words[0].isdigit()]
    else:
        records = out / f"{name}-records.json"
        page = ("--out", str(out / "page.html"), "--records", str(records))
        printed = invint("report", str(folder), *page)
        assert "</html>" in (out / "page.html").read_text()
        values = {**json.loads(records.read_text())["runs"][0], "printed": numbers_in(printed)}
    return values


def numbers_in(printed: str) -> list[str]:
    """Return the words of the row of a recipe, as it is printed."""
    return next(line.split() for line in printed.splitlines() if line.startswith(" digits/"))


@pytest.mark.slow
@each_run
@pytest.mark.parametrize("command", ["evaluate", "predict", "audit", "report"])
def test_commands_say_of_a_run_what_they_said(run: Run, command: str, tmp_path: Path) -> None:
    name, folder = run
    with mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "1"}):
        found = answers(name, folder, command, tmp_path)
    assert_alike(found, read("commands.json")[name][command], ROUNDING)


@pytest.mark.slow
def test_monomials_of_a_run_are_shown_as_they_were(tmp_path: Path) -> None:
    for state in ("complete", "stopped"):
        folder = GOLDEN / "folders" / "monomials" / state
        found = answers("monomials", folder, "monomials", tmp_path)
        assert found == read("commands.json")["monomials"][f"monomials {state}"]


@pytest.mark.slow
@each_run
def test_a_run_is_exported_with_its_weights(run: Run, tmp_path: Path) -> None:
    _, folder = run
    out = tmp_path / "model.safetensors"
    invint("export", str(folder), "--format", "safetensors", "--out", str(out))
    weights, expected = load_file(out), load_file(folder / "model.safetensors")
    assert list(weights) == list(expected)
    assert all(torch.equal(weights[key], expected[key]) for key in expected)


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("format", ["onnx", "torch"])
def test_a_run_is_exported_as_a_program(format: str, tmp_path: Path) -> None:
    folder = GOLDEN / "folders" / "monomials" / "complete"
    out = tmp_path / f"a.{'onnx' if format == 'onnx' else 'pt2'}"
    invint("export", str(folder), "--format", format, "--out", str(out))
    images = torch.rand(3, 1, 20, 20)
    expected = load_model(folder / "model.safetensors")(images)
    torch.testing.assert_close(load_model(out)(images), expected, rtol=ROUNDING, atol=ROUNDING)


# 4. Exported networks


def images_of(seed: int) -> torch.Tensor:
    drawn = np.random.default_rng(seed).random((4, 2, 12, 12))
    return torch.from_numpy(drawn.round(3).astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["safetensors", "onnx", "pt2"])
@pytest.mark.parametrize("name", MODELS)
def test_exported_networks_answer_as_they_did(name: str, suffix: str) -> None:
    if suffix == "onnx":
        pytest.importorskip("onnxruntime")
    golden = read("exports/logits.json")[name]
    loaded = load_model(GOLDEN / "exports" / f"{name}.{suffix}")
    assert list(loaded.card.class_names) == golden["class_names"]
    logits = loaded(images_of(golden["seed"]))
    expected = torch.tensor(golden["logits"])
    torch.testing.assert_close(logits, expected, rtol=ROUNDING, atol=ROUNDING)


# 5. The estimator


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.InconsistentVersionWarning")
def test_a_pickled_estimator_answers_as_it_did() -> None:
    golden = read("estimator.json")
    estimator = pickle.loads((GOLDEN / "estimator.pkl").read_bytes())  # our own file, no other
    images, labels = load_digits(return_X_y=True)
    some = images[200:210]
    found = estimator.predict_proba(some)
    np.testing.assert_allclose(found, golden["probabilities"], rtol=ROUNDING, atol=ROUNDING)
    assert estimator.predict(some).tolist() == golden["labels"]
    params = {key: str(value) for key, value in estimator.get_params().items()}
    assert params | golden["params"] == params  # there are more by now
    assert estimator.image_shape_ == tuple(golden["image_shape"])
    again = pickle.loads(pickle.dumps(estimator))  # what is pickled now is read as well
    np.testing.assert_array_equal(again.predict_proba(some), found)
    assert again.set_params(steps=1).fit(images[:20], labels[:20]).n_features_in_ == 64


# 6. The command line


def help_of(*command: str) -> str:
    """Return the help of a command, as a terminal of 100 columns shows it."""
    kept = ("PATH", "PYTHONPATH", "HOME")
    settings = {key: os.environ[key] for key in kept if key in os.environ}
    settings |= {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-m", "invint", *command, "--help"],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env=settings,
    )
    return done.stdout


def options_in(text: str) -> set[str]:
    """Return the options that a help text lists: those at the start of a row of its boxes."""
    rows = re.findall(r"^│[ *]{1,6}(-.*)$", text, flags=re.MULTILINE)
    words = [re.match(r"(?:--?[a-z][\w-]*(?:,? +|$))+", row) for row in rows]
    return {option for found in words if found for option in found[0].replace(",", " ").split()}


def commands_in(text: str) -> set[str]:
    """Return the commands that a help text lists."""
    _, _, box = text.partition("─ Commands ")
    return set(re.findall(r"^│ ([a-z][\w-]*) ", box, flags=re.MULTILINE))


def arguments_in(text: str) -> int:
    """Return how many arguments a help text lists."""
    _, _, box = text.partition("─ Arguments ")
    rows = box.partition("╰")[0]
    return len(re.findall(r"^│[ *]{1,6}[\w|.]+ ", rows, flags=re.MULTILINE))


HELP = sorted((GOLDEN / "help").glob("*.txt"))


@pytest.mark.parametrize("file", HELP, ids=lambda path: str(path.stem))
def test_every_command_and_option_is_still_there(file: Path) -> None:
    name = " ".join(file.stem.split("-")[1:])
    golden, found = file.read_text(encoding="utf-8"), help_of(*name.split())
    gone = {each for each in options_in(golden) - options_in(found) if (name, each) not in CHANGED}
    assert not gone
    assert commands_in(golden) <= commands_in(found)
    assert arguments_in(golden) == arguments_in(found)


def test_the_help_that_is_kept_is_read() -> None:
    """A pattern that finds nothing would agree with anything."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in HELP}
    assert {"--set", "--quiet", "-q", "--no-compile"} <= options_in(texts["invint-train"])
    assert {"train", "recipes", "data"} <= commands_in(texts["invint"])
    assert arguments_in(texts["invint-predict"]) == 2
    assert all("--help" in options_in(text) for text in texts.values())


# 7. Records of studies


@pytest.mark.slow
@pytest.mark.parametrize("format", TABLES)
def test_records_make_the_tables_they_made(format: str, tmp_path: Path) -> None:
    """The version is set to that of today, as records of another one are refused, on purpose."""
    old = (GOLDEN / "study" / "records.json").read_text()
    known = tmp_path / "records.json"
    known.write_text(old.replace('"version": "0.1.0"', f'"version": "{__version__}"'))
    runs = tmp_path / "runs"
    printed = invint(*tabulated(format, known, runs))
    assert printed == (GOLDEN / "study" / TABLES[format]).read_text()
    assert not runs.exists()  # nothing was run again


def tabulated(format: str, known: Path, runs: Path) -> list[str]:
    places = ["--known", str(known), "--runs", str(runs)]
    return ["study", *STUDY, "--format", format, *places]


@pytest.mark.slow
def test_records_are_read_and_written_without_a_loss(tmp_path: Path) -> None:
    old = GOLDEN / "study" / "records.json"
    new = tmp_path / "records.json"
    invint("report", str(old), "--out", str(tmp_path / "page.html"), "--records", str(new))
    kept, expected = (json.loads(path.read_text())["runs"] for path in (new, old))
    for one, other in zip(kept, expected, strict=True):
        assert one | other == one


# 8. Data


def batches_of(augment: str) -> Batches:
    part = load_dataset("digits").train
    mean, std = normalisation(part)
    return Batches(part, batch_size=16, seed=3, augment=(augment,), mean=mean, std=std)


STEPS = range(62, 67)  # over the end of a block, and of a pass


def hash_of(augment: str) -> str:
    digest = hashlib.sha256()
    for images, labels in batches_of(augment)(STEPS):
        digest.update(images.contiguous().numpy().tobytes())
        digest.update(labels.numpy().tobytes())
    return digest.hexdigest()


def test_digits_are_the_digits() -> None:
    assert load_dataset("digits").fingerprint == read("data.json")["digits"]


def test_batches_hold_the_images_they_held() -> None:
    batches = batches_of("flip")
    assert [batches.indices(step).tolist() for step in STEPS] == read("data.json")["indices"]


@pytest.mark.usefixtures("same_machine")
@pytest.mark.parametrize("augment", AUGMENTATIONS)
def test_augmented_batches_have_the_same_bits(augment: str) -> None:
    assert hash_of(augment) == read("data.json")["batches"][augment]


def mnist_is_here() -> bool:
    folder = Path(os.environ.get("INVINT_DATA", "")) / "mnist"
    return bool(os.environ.get("INVINT_DATA")) and folder.is_dir()


@pytest.mark.slow
@pytest.mark.skipif(not mnist_is_here(), reason="needs MNIST in the folder INVINT_DATA")
def test_regenerated_rotated_mnist_is_what_it_was() -> None:
    assert load_dataset("rotmnist-regenerated").fingerprint == read("data.json")["regenerated"]
