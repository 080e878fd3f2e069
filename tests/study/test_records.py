import json
from pathlib import Path

import pytest
import torch
from support.written_runs import tiny_dataset, write_json, write_run

from invint.errors import ConfigError, RunError
from invint.study.records import (
    check_alike,
    confusion_matrix,
    find_runs,
    from_record,
    read_predictions,
    read_records,
    read_run,
    to_record,
    write_records,
)
from invint.train.evaluate import calibration_bins


def test_a_run_is_read_with_its_numbers(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "monomials", seed=4, size=100, wrong=12)
    run = read_run(folder)
    assert (run.recipe, run.seed, run.size) == ("digits/monomials", 4, 100)
    assert run.pair == (4, "subset-100-4")
    assert run.error == pytest.approx(0.1)
    assert len(run.curve) == 20
    assert [len(event["kept"]) for event in run.selections] == [5]
    assert run.fingerprint == tiny_dataset().fingerprint
    assert run.environment["torch"] == "2.13.0"
    assert sum(map(sum, run.confusion)) == run.test_images == 120
    assert sum(run.confusion[k][k] for k in range(10)) == 108
    assert run.folder == folder


def test_confusions_match_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(200, 4, generator=generator)
    labels = torch.randint(4, (200,), generator=generator)
    matrix = [[0] * 4 for _ in range(4)]
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        matrix[label][row.index(max(row))] += 1
    assert confusion_matrix(logits, labels) == tuple(map(tuple, matrix))


def test_calibration_error_is_the_weighted_gap(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path))
    predictions = read_predictions(run)
    assert predictions is not None
    bins = calibration_bins(*predictions)
    expected = sum(b.count / 120 * abs(b.confidence - b.accuracy) for b in bins)
    assert run.calibration_error == pytest.approx(expected)


def test_records_are_small_and_keep_what_tables_need(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / "runs", v, averaged=v == "cnn")) for v in ("cnn", "mlp")]
    path = tmp_path / "records.json"
    write_records(runs, path)
    assert path.stat().st_size < 20_000
    assert "indices" not in path.read_text()
    back = read_records(path)
    for run, copy in zip(runs, back, strict=True):
        assert copy.folder is None
        for name in ("recipe", "pair", "error", "averaged_error", "confusion", "per_class"):
            assert getattr(copy, name) == getattr(run, name)
        assert copy.curve[-1]["epoch"] == run.curve[-1]["epoch"]
        assert copy.calibration_error == pytest.approx(run.calibration_error, abs=1e-4)
        assert read_predictions(copy) is None
    assert from_record(to_record(back[0])) == back[0]
    assert [run.recipe for run in find_runs([path])] == ["digits/cnn", "digits/mlp"]


def test_runs_are_found_below_folders_and_only_once(tmp_path: Path) -> None:
    first = write_run(tmp_path, seed=1)
    write_run(tmp_path, seed=0)
    write_run(tmp_path, "local-ws", seed=0)
    notes: list[str] = []
    runs = find_runs([tmp_path, first], notes)
    assert [(run.recipe, run.seed) for run in runs] == [
        ("digits/local-ws", 0),
        ("digits/pooling", 0),
        ("digits/pooling", 1),
    ]
    assert notes == []


def test_records_of_the_same_runs_are_merged_as_often_as_one_likes(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path / "runs", seed=seed)
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    everything = find_runs([tmp_path / "runs"])
    write_records(everything[:2], first)
    write_records(everything[1:], second)
    both = find_runs([first, second])
    assert both == find_runs([second, first, second]) == find_runs([first, second, first])
    assert [run.seed for run in both] == [0, 1, 2]
    assert [run.folder is None for run in find_runs([tmp_path / "runs", first])] == [False] * 3


def test_records_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    here, there = write_run(tmp_path / "here", wrong=12), write_run(tmp_path / "there", wrong=18)
    records = tmp_path / "there.json"
    write_records(find_runs([there]), records)
    with pytest.raises(ConfigError) as caught:
        find_runs([tmp_path / "here", records])
    assert str(caught.value) == (
        "digits/pooling, 100 images, seed 0: two runs that should be the same differ, error is "
        f"0.1 in {here} and 0.15 in {records}; leave one of them out"
    )


def test_unfinished_and_damaged_runs_are_left_out_with_a_line(tmp_path: Path) -> None:
    unfinished, damaged, strange, whole = (write_run(tmp_path, seed=seed) for seed in range(4))
    (unfinished / "result.json").unlink()
    (damaged / "predictions.safetensors").write_bytes(b"half")
    write_json(strange / "result.json", {"format": 1})
    notes: list[str] = []
    assert [run.folder for run in find_runs([tmp_path], notes)] == [whole]
    assert len(notes) == 3
    assert "not complete, there is no result.json; run it again to resume" in notes[0]
    assert "predictions.safetensors: damaged" in notes[1]
    assert "result.json: not a result; remove it and start again" in notes[2]


def test_damaged_files_are_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    (folder / "environment.json").write_text("{")
    with pytest.raises(RunError, match=r"environment.json: damaged, it is not JSON"):
        read_run(folder)
    (folder / "environment.json").write_text("[]")
    with pytest.raises(RunError, match="expected a JSON object, got list"):
        read_run(folder)
    (folder / "environment.json").unlink()
    with pytest.raises(RunError, match="cannot be read"):
        read_run(folder)


def test_a_cut_line_of_the_log_is_passed_over(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    log = folder / "log.jsonl"
    log.write_text(log.read_text() + '{"epoch": 21.0, "st')
    assert len(read_run(folder).curve) == 20
    (folder / "predictions.safetensors").unlink()
    log.unlink()
    run = read_run(folder)
    assert (run.curve, run.confusion, run.calibration_error) == ((), (), None)


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a folder of runs or a \.json file"):
        find_runs([tmp_path / "nowhere"])
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"format": 2}))
    with pytest.raises(ConfigError, match=r"a.json: not a record of format 1; write it again"):
        find_runs([path])
    path.write_text(json.dumps({"runs": [{"format": 1, "recipe": "a"}]}))
    with pytest.raises(ConfigError, match=r"a.json: not a record of a run"):
        find_runs([path])


def test_runs_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a"))
    check_alike([run, run])
    check_alike([run, read_run(write_run(tmp_path / "alike", seed=1, version="0.2.0"))])
    other = read_run(write_run(tmp_path / "b", seed=1, version="0.3.0"))
    with pytest.raises(ConfigError, match=r"runs of invint 0.1.0 and 0.3.0 do not belong into one"):
        check_alike([run, other])
    other = read_run(write_run(tmp_path / "c", seed=1, fingerprint="feed"))
    with pytest.raises(ConfigError, match=r"runs on different data, all called 'digits' \(finger"):
        check_alike([run, other])
    other = read_run(write_run(tmp_path / "d", seed=1, lr=0.5))
    with pytest.raises(ConfigError, match=r"different recipes, all called 'digits/pooling' at 100"):
        check_alike([run, other])
