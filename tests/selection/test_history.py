import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer import Typer
from typer.testing import CliRunner

from invint import ConfigError, create_model
from invint.cli.show import monomials as command
from invint.errors import DataError, RunError
from invint.figures.selections import selection_figure
from invint.nn import Monomials
from invint.selection import best, prune, selection_event
from invint.selection.history import chance_overlap, overlap, rank_correlation
from invint.selection.pruning import find_monomials
from invint.train.store import RunStore

app = Typer()
app.command()(command)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def write_run(folder: Path, seed: int = 0, *, counts: tuple[int, ...] = (6, 3)) -> Monomials:
    """Write the log and model of a run that goes from 12 monomials down, and return these 12."""
    generator = seeded(seed)
    start = now = Monomials.random(12, max_distance=3, generator=generator)
    network = create_model("sfcnn-small", head="monomials", head_options={"monomials": start})
    lines = [{"epoch": 1.0, "step": 10, "loss": 2.0}]
    for number, count in enumerate(counts):
        scores = torch.rand(len(now), generator=generator)
        kept = best(scores, count)
        prune(network, None, kept)
        now = find_monomials(network)[2].monomials
        lines.append(
            selection_event(
                epoch=5.0 * (number + 1),
                step=50 * (number + 1),
                method="magnitude",
                scores=scores.tolist(),
                kept=kept,
                monomials=now,
                start=None if number else start,
            )
        )
    folder.mkdir(parents=True)
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with torch.no_grad():
        find_monomials(network)[2].exponents.add_(0.125)
    save_file(network.state_dict(), folder / "model.safetensors")
    return start


def test_numbers_are_those_at_the_start(tmp_path: Path) -> None:
    start = write_run(tmp_path / "0")
    history = RunStore(tmp_path / "0").history()
    assert history.start == start
    assert [step.epoch for step in history.steps] == [5, 10]
    assert history.steps[0].indices == tuple(range(12))
    assert history.steps[1].indices == history.steps[0].kept
    assert set(history.survivors) < set(history.steps[1].indices)
    expected = torch.tensor(start.keep(history.survivors).exponents) + 0.125
    torch.testing.assert_close(torch.tensor(history.final.exponents), expected)
    assert history.final.distances == start.keep(history.survivors).distances


def test_ranks_follow_the_scores(tmp_path: Path) -> None:
    write_run(tmp_path / "0")
    step = RunStore(tmp_path / "0").history().steps[1]
    by_score = sorted(zip(step.scores, step.indices, strict=True), reverse=True)
    assert [step.ranks[number] for _, number in by_score] == [1, 2, 3, 4, 5, 6]
    assert {number for number, rank in step.ranks.items() if rank <= 3} == set(step.kept)


def test_a_run_that_was_killed_and_resumed_counts_each_step_once(tmp_path: Path) -> None:
    write_run(tmp_path / "0")
    log = tmp_path / "0" / "log.jsonl"
    whole = RunStore(tmp_path / "0").history()
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([*lines, lines[2], lines[2][:40]]))
    assert RunStore(tmp_path / "0").history().steps == whole.steps


def test_a_run_under_way_shows_the_exponents_of_its_last_step(tmp_path: Path) -> None:
    start = write_run(tmp_path / "0")
    (tmp_path / "0" / "model.safetensors").unlink()
    history = RunStore(tmp_path / "0").history()
    assert history.trained is None
    torch.testing.assert_close(
        torch.tensor(history.final.exponents),
        torch.tensor(start.keep(history.survivors).exponents),
    )


def test_a_run_without_selection_shows_what_it_has(tmp_path: Path) -> None:
    write_run(tmp_path / "0", counts=())
    history = RunStore(tmp_path / "0").history()
    assert history.steps == ()
    assert history.survivors == tuple(range(12))
    assert history.final == history.start
    done = CliRunner().invoke(app, [str(tmp_path / "0")])
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 16


def test_a_run_without_selection_says_what_was_drawn(tmp_path: Path) -> None:
    start = write_run(tmp_path / "0", counts=())
    entry = {"event": "monomials", "epoch": 0.0, "step": 0, "start": start.to_dict()}
    (tmp_path / "0" / "log.jsonl").write_text(json.dumps(entry) + "\n")
    history = RunStore(tmp_path / "0").history()
    assert history.start == start
    expected = torch.tensor(start.exponents) + 0.125
    torch.testing.assert_close(torch.tensor(history.final.exponents), expected)
    entry["start"] = {"distances": 3}
    (tmp_path / "0" / "log.jsonl").write_text(json.dumps(entry) + "\n{}\n")
    with pytest.raises(DataError, match="a selection in its log is damaged"):
        RunStore(tmp_path / "0").history()


def test_two_selections_at_one_step_both_count(tmp_path: Path) -> None:
    write_run(tmp_path / "0")
    log = tmp_path / "0" / "log.jsonl"
    apart = RunStore(tmp_path / "0").history().steps
    log.write_text(log.read_text().replace('"step": 100', '"step": 50'))
    together = RunStore(tmp_path / "0").history().steps
    assert [step.kept for step in together] == [step.kept for step in apart]


def test_exchanged_monomials_are_shown_with_what_they_are(tmp_path: Path) -> None:
    """Scores of least squares are about what was chosen, not about what was there before."""
    drawn, chosen = (Monomials.random(3, max_distance=4, generator=seeded(n)) for n in (1, 2))
    event = selection_event(
        epoch=1.0,
        step=5,
        method="lse",
        scores=[1.0, 3.0, 2.0],
        kept=[0, 1, 2],
        monomials=chosen,
        start=drawn,
    )
    (tmp_path / "log.jsonl").write_text(json.dumps(event) + "\n")
    history = RunStore(tmp_path).history()
    assert (history.start, history.first) == (drawn, chosen)
    done = CliRunner().invoke(app, [str(tmp_path)])
    best_row = done.stdout.splitlines()[4].split()
    assert best_row[:4] == ["1", *(f"{each:g}" for each in chosen.distances[1])]
    assert best_row[4:7] == [f"{each:.2f}" for each in chosen.exponents[1]]


def test_overlap_counts_combinations_regardless_of_order() -> None:
    def with_distances(*rows: tuple[float, ...]) -> Monomials:
        zeros = tuple((0.0,) * 3 for _ in rows)
        return Monomials(tuple((0.0, *row) for row in rows), zeros, zeros)

    first = with_distances((1, 2), (3, 3), (1, 1))
    second = with_distances((2, 1), (3, 3), (3, 3))
    assert overlap(first, second) == 2 / 4  # (1, 2) and one of two (3, 3), out of four
    assert overlap(first, first) == 1


@pytest.mark.slow
def test_rank_correlation_is_spearmans(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / str(seed), seed)
    first, second = (RunStore(tmp_path / str(seed)).history() for seed in (0, 1))
    tables = []
    for history in (first, second):
        table: dict[tuple[float, ...], list[float]] = {}
        for row, score in zip(history.start.distances, history.steps[0].scores, strict=True):
            table.setdefault(tuple(sorted(row)), []).append(score)
        tables.append({key: sum(values) / len(values) for key, values in table.items()})
    common = [key for key in tables[0] if key in tables[1]]
    ranks = [sorted(common, key=table.__getitem__).index for table in tables]
    squares = sum((ranks[0](key) - ranks[1](key)) ** 2 for key in common)
    expected = 1 - 6 * squares / (len(common) * (len(common) ** 2 - 1))  # there are no ties
    assert rank_correlation(first, second) == pytest.approx(expected)
    assert rank_correlation(first, first) == pytest.approx(1)
    assert 0 < chance_overlap(first, second) < 1


def test_equal_scores_have_no_rank_correlation(tmp_path: Path) -> None:
    write_run(tmp_path / "0")
    history = RunStore(tmp_path / "0").history()
    step = replace(history.steps[0], scores=(0.5,) * len(history.start))
    assert rank_correlation(history, replace(history, steps=(step,))) is None


@pytest.mark.slow
def test_the_command_prints_scores_ranks_and_agreement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for seed in (0, 1, 2):
        write_run(tmp_path / str(seed), seed)
    runs = [str(tmp_path / str(seed)) for seed in (0, 1, 2)]
    figure = tmp_path / "figures" / "chosen.png"
    done = CliRunner().invoke(app, [*runs, "--out", str(figure)])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].strip() == f"1: {runs[0]}"
    assert lines[1].split() == ["magnitude", "magnitude"]
    assert lines[2].split() == ["exponents", "epoch", "5", "epoch", "10"]
    assert lines[3].split()[-6:] == ["12", "→", "6", "6", "→", "3"]
    history = RunStore(Path(runs[0])).history()
    shown = [int(line.split()[0]) for line in lines[4:16]]
    assert set(shown[:3]) == set(history.survivors)
    assert sorted(shown) == list(range(12))
    assert [line.split("(")[-1].strip() for line in lines[4:10]] == [
        f"{rank})" for rank in range(1, 7)
    ]
    start, trained = history.start.exponents[shown[0]], history.final.exponents
    assert f"{start[0]:.2f} {start[1]:.2f} {start[2]:.2f}" in lines[4]
    assert " ".join(f"{b:.2f}" for b in trained[history.survivors.index(shown[0])]) in lines[4]
    assert sum(" and " in line for line in lines) == 3
    assert figure.stat().st_size > 10_000


@pytest.mark.parametrize("content", ["", '{"epoch": 1.0}\n'])
def test_a_folder_without_monomials_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "log.jsonl").write_text(content)
    with pytest.raises(DataError, match="neither its log nor its model has monomials"):
        RunStore(tmp_path).history()


def test_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"log.jsonl: cannot be read; expected the folder"):
        RunStore(tmp_path).history()


def test_damage_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "0")
    folder = tmp_path / "0"
    lines = (folder / "log.jsonl").read_text().splitlines(keepends=True)
    (folder / "log.jsonl").write_text("".join([lines[0], "{\n", *lines[1:]]))
    with pytest.raises(RunError, match=r"log.jsonl: line 2 is damaged"):
        RunStore(folder).history()
    (folder / "log.jsonl").write_text("".join([lines[0], lines[2]]))  # the first one is missing
    with pytest.raises(DataError, match=r"in its log is damaged \(KeyError\('start'\)\)"):
        RunStore(folder).history()
    (folder / "log.jsonl").write_text("".join(lines[:2]))
    with pytest.raises(DataError, match="the log ends with 6 monomials, the model has 3"):
        RunStore(folder).history()
    (folder / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(DataError, match="not a safetensors file, or only a part of one"):
        RunStore(folder).history()


def test_runs_of_one_name_are_told_apart_in_a_figure(tmp_path: Path) -> None:
    for folder in ("a/0", "b/0"):
        write_run(tmp_path / folder)
    figure = selection_figure([RunStore(tmp_path / folder).history() for folder in ("a/0", "b/0")])
    titles = [axes.get_title(loc="left") for axes in figure.get_axes()]
    assert "monomials, run 1" in titles
    assert "monomials, run 2" in titles


def test_figures_without_runs_or_of_other_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no run to draw"):
        selection_figure([])
    write_run(tmp_path / "0")
    done = CliRunner().invoke(app, [str(tmp_path / "0"), "--out", str(tmp_path / "x.gif")])
    assert isinstance(done.exception, ConfigError)
    assert "expected a .png, .svg or .pdf file for the figure" in str(done.exception)
