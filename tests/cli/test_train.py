import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.commands import TINY, Command

from invint.export.int8 import facts_of


@pytest.mark.slow
def test_train_in_json_is_one_object_a_line(command: Command, tmp_path: Path) -> None:
    arguments = ("train", *TINY, "--json", "--tensorboard", "--runs", str(tmp_path))
    done = command(*arguments)
    assert (done.status, done.err) == (0, "")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["event"] for line in lines] == ["started", *["epoch"] * 4, "finished"]
    folder = Path(lines[0]["folder"])
    assert lines[-1].items() >= json.loads((folder / "result.json").read_text()).items()
    assert list((folder / "tensorboard").glob("events.*"))
    again = [json.loads(line) for line in command(*arguments).out.splitlines()]
    assert [line["event"] for line in again] == ["note", "finished"]
    assert again[-1] == lines[-1]


@pytest.mark.slow
def test_train_shows_a_bar_on_stderr_and_the_result_on_stdout(
    command: Command, finished: Path, tmp_path: Path
) -> None:
    done = command("train", *TINY, "--runs", str(tmp_path))
    assert done.status == 0
    folder = tmp_path / finished.relative_to(finished.parents[3])
    assert done.err.startswith(f"run {folder}")
    assert "20/20" in done.err
    lines = done.out.splitlines()
    error = json.loads((finished / "result.json").read_text())["error"]
    assert lines[0].startswith(f"{error:.2%} error on 797 test images of digits, from 40")
    assert lines[1].endswith(f"in {folder}")


@pytest.mark.slow
def test_evaluate_counts_what_the_run_counted(command: Command, finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    done = command("evaluate", str(finished), "--json")
    assert done.status == 0
    assert json.loads(done.out)["error"] == result["error"]
    assert json.loads(done.out)["per_class"] == result["per_class"]
    table = command("evaluate", str(finished)).out.splitlines()
    assert table[0].split() == ["class", "images", "error"]
    assert table[-1].split() == ["all", "797", f"{result['error']:.2%}"]


@pytest.mark.slow
def test_evaluate_says_what_it_misses(command: Command, finished: Path, tmp_path: Path) -> None:
    file = finished / "model.safetensors"
    done = command("evaluate", str(file))
    assert done == (2, "", f"invint: {file}: a file does not say its data set; give --data NAME\n")
    done = command("evaluate", str(tmp_path))
    assert done.status == 2
    assert "expected the folder of a run, with recipe.json in it, or a file" in done.err
    (tmp_path / "recipe.json").write_text("{}")
    assert (
        "the run is not complete; resume with `invint train`"
        in command("evaluate", str(tmp_path)).err
    )


@pytest.mark.slow
def test_audit_turns_test_images(command: Command, finished: Path, tmp_path: Path) -> None:
    record = tmp_path / "audit.json"
    arguments = ("audit", str(finished), "--images=20", "--every=90")
    done = command(*arguments, "--out", str(record))
    assert done.status == 0, done.err
    assert done.out.startswith("digits/local-ws: 20 images of 20 x 20 pixels, float32\n")
    assert json.loads(record.read_text())["name"] == "digits/local-ws"
    assert "90" in done.out
    file = str(finished / "model.safetensors")
    done = command("audit", file, "--data=digits", *arguments[2:])
    assert done.out.startswith("sfcnn-small, local-ws: 20 images")
    assert command(*arguments, "--min-accuracy=1").status == 1


def test_an_audit_that_fails_says_why(command: Command, finished: Path) -> None:
    done = command("audit", str(finished), "--every", "80", "--min-accuracy", "1", "--images", "20")
    assert done.status == 1
    assert done.err.endswith("invint: the accuracy falls below 100.0%\n")
    assert "320" in done.out  # the last turn before the circle closes


@pytest.mark.slow
@pytest.mark.parametrize(("name", "suffix"), [("torch", ".pt2"), ("safetensors", ".safetensors")])
def test_export_writes_a_file_that_evaluates_alike(
    command: Command, finished: Path, tmp_path: Path, name: str, suffix: str
) -> None:
    target = tmp_path / f"network{suffix}"
    done = command("export", str(finished), "--format", name, "--out", str(target))
    assert done.status == 0, done.err
    assert done.out.startswith(f"{target}: logits differ by at most ")
    scores = json.loads(command("evaluate", str(target), "--data=digits", "--json").out)
    result = json.loads((finished / "result.json").read_text())
    assert scores["error"] == pytest.approx(result["error"], abs=2 / 797)


@pytest.mark.slow
def test_export_writes_onnx_beside_the_run(command: Command, finished: Path) -> None:
    pytest.importorskip("onnxscript")
    assert command("export", str(finished)).status == 0
    done = command("evaluate", str(finished / "model.onnx"), "--data=digits", "--json")
    assert json.loads(done.out)["data"] == "digits"


@pytest.mark.slow
def test_export_refuses_what_it_cannot_do(command: Command, finished: Path) -> None:
    done = command("export", str(finished), "--format", "keras")
    assert done == (2, "", "invint: --format keras: there are onnx, torch, safetensors\n")


@pytest.mark.slow
@pytest.mark.unchecked
def test_export_in_int8_is_measured_before_and_after(command: Command, finished: Path) -> None:
    pytest.importorskip("onnxscript")
    done = command("export", str(finished), "--int8")
    assert done.status == 0, done.err
    path = finished / "model.int8.onnx"
    lines = done.out.splitlines()
    assert [line.split("  ")[0].strip() for line in lines[1:-1]] == [
        "bytes of the file",
        "test error",
        "lowest accuracy at any angle",
        "largest drift, quarter turns",
        "largest drift, any angle",
    ]
    assert lines[-1] == f"in {path}"
    facts = facts_of(path)
    assert facts is not None
    assert facts["calibration_images"] == 40
    assert facts["float32"]["error"] == json.loads((finished / "result.json").read_text())["error"]
    scores = json.loads(command("evaluate", str(path), "--data=digits", "--json").out)
    assert scores["error"] == facts["int8"]["error"]
    assert facts["int8"]["worst_exact_drift"] < 1e-4
    refused = command("export", str(finished), "--int8", "--out", str(finished / "a.tflite"))
    assert refused.status == 2
    assert "export_int8: expected the folder of a run and a file ending in .onnx" in refused.err


@pytest.mark.parametrize("more", [(), ("--format", "torch")])
def test_int8_is_for_onnx_and_runs(command: Command, tmp_path: Path, more: tuple[str, ...]) -> None:
    source = tmp_path / "model.safetensors" if not more else tmp_path
    done = command("export", str(source), "--int8", *more)
    line = "invint: --int8: goes with the folder of a run and --format onnx\n"
    assert done == (2, "", line)


def test_int8_needs_a_run(command: Command, tmp_path: Path) -> None:
    done = command("export", str(tmp_path), "--int8")
    assert done.status == 2
    assert "expected the folder of a run, with recipe.json in it, or a file" in done.err


@pytest.mark.slow
def test_predict_answers_for_pictures_and_folders(
    command: Command, finished: Path, tmp_path: Path
) -> None:
    for number in range(3):
        pixels = np.full((20, 20), 80 * number, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    answers = tmp_path / "answers.csv"
    pictures = [str(tmp_path / f"{number}.png") for number in range(3)]
    done = command("predict", str(finished), *pictures, "--out", str(answers))
    assert done.status == 0, done.err
    with answers.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == pictures
    for row in rows:
        shares = {key: float(value) for key, value in row.items() if key.startswith("p(")}
        assert len(shares) == 10
        assert sum(shares.values()) == pytest.approx(1, abs=1e-4)
        assert max(shares, key=lambda key: shares[key]) == f"p({row['label']})"
    assert command("predict", str(finished), str(tmp_path)).status == 2
    done = command("predict", str(finished), str(tmp_path), "--skip-bad", "--json")
    assert [bool(row["problem"]) for row in json.loads(done.out)] == [False, False, False, True]
    done = command("predict", str(finished), *pictures, "--out", "answers.txt")
    assert done.err == "invint: --out answers.txt: expected a .csv or .json file\n"


@pytest.mark.parametrize("content", ["{}", "[]", "[" * 100_000, '{"name": "x"}'])
def test_a_damaged_recipe_of_a_run_is_named(
    command: Command, finished: Path, tmp_path: Path, content: str
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "recipe.json").write_text(content)
    done = command("evaluate", str(tmp_path / "run"))
    assert (done.status, done.out) == (2, "")
    assert "run/recipe.json: " in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("change", [{"data": None}, {"error": "low"}, {"scale": []}])
def test_a_damaged_result_of_a_complete_run_is_named(
    command: Command, finished: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    shutil.copytree(finished.parents[3], tmp_path / "runs")
    (path,) = (tmp_path / "runs").rglob("result.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    done = command("train", *TINY, "--quiet", "--runs", str(tmp_path / "runs"))
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"invint: {path}: damaged (")
    assert len(done.err.splitlines()) == 1


def test_a_run_without_its_network_says_so(
    command: Command, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    done = command("evaluate", str(tmp_path / "run"))
    assert "the run is complete, but its model.safetensors is gone; train it again" in done.err
