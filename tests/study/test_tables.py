import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest
from rich.console import Console
from support.written_runs import write_run, write_study

from invint.errors import ConfigError
from invint.study.records import read_records, read_run, write_records
from invint.study.statistics import BETTER, UNDECIDED
from invint.study.tables import catalog_text, make_table, tables_by_data


def test_cells_are_means_over_seeds_in_percent(tmp_path: Path) -> None:
    runs = write_study(tmp_path)
    table = make_table(runs)
    assert table.sizes == (100, 1000)
    for row in table.rows:
        for size, cell in zip(table.sizes, row.cells, strict=True):
            own = [run for run in runs if (run.recipe, run.size) == (row.recipe, size)]
            errors = [100 * (run.averaged_error or 0 if row.averaged else run.error) for run in own]
            assert cell.ours is not None
            assert cell.ours.mean == pytest.approx(mean(errors))
            assert cell.ours.deviation == pytest.approx(stdev(errors))
            assert cell.ours.count == 3


def test_rows_start_with_plain_networks_and_pooling(tmp_path: Path) -> None:
    labels = [row.label for row in make_table(write_study(tmp_path)).rows]
    assert labels == [
        "digits/cnn",
        "digits/cnn, averaged over rotated copies",
        "digits/pooling",
        "digits/monomials",
        "digits/local-ws",
    ]


def test_heads_are_compared_with_pooling_over_the_same_seeds(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, seed=seed, wrong=24 + seed)) for seed in range(4)]
    runs += [
        read_run(write_run(tmp_path, "local-ws", seed=seed, wrong=wrong))
        for seed, wrong in ((1, 12), (2, 13), (3, 15), (7, 100))
    ]
    table = make_table(runs)
    row = next(row for row in table.rows if row.recipe == "digits/local-ws")
    difference = row.cells[0].difference
    assert difference is not None
    assert difference.pairs == 3
    assert difference.mean == pytest.approx(-100 * (13 + 13 + 12) / 3 / 120)
    assert difference.verdict == BETTER
    assert [row.recipe for row in table.compared] == ["digits/local-ws"]


def test_settled_heads_are_compared_with_settled_pooling(tmp_path: Path) -> None:
    wrong = {"pooling": 30, "local-ws": 20, "settled-local-ws": 12, "settled-pooling": 14}
    runs = [
        read_run(write_run(tmp_path, variant, seed=seed, wrong=count + seed))
        for variant, count in wrong.items()
        for seed in range(2)
    ]
    rows = {row.recipe: row.cells[0].difference for row in make_table(runs).rows}
    both = [rows[f"digits/{each}local-ws"] for each in ("", "settled-")]
    assert [found and found.mean for found in both] == pytest.approx([-1000 / 120, -200 / 120])
    assert rows["digits/settled-pooling"] is rows["digits/pooling"] is None


def test_other_training_images_make_no_pair(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, seed=seed)) for seed in range(2)]
    for seed in range(2):
        folder = write_run(tmp_path, "mlp", seed=seed)
        subset = folder / "subset.json"
        subset.write_text(subset.read_text().replace("subset-100-1", "drawn otherwise"))
        runs.append(read_run(folder))
    (row,) = make_table(runs).compared
    assert row.cells[0].difference is not None
    assert row.cells[0].difference.pairs == 1


def test_a_run_cut_short_is_not_compared_with_a_whole_one(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, seed=seed)) for seed in range(2)]
    runs += [read_run(write_run(tmp_path, "mlp", seed=seed, scale=0.1)) for seed in range(2)]
    assert make_table(runs).compared == ()


def test_no_winner_is_named_where_the_interval_holds_zero(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, seed=seed, wrong=24)) for seed in range(2)]
    runs += [read_run(write_run(tmp_path, "mlp", seed=s, wrong=(14, 20)[s])) for s in range(2)]
    table = make_table(runs)
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(table.terminal())
    for text in (table.markdown(), table.csv(), table.latex(), console.export_text()):
        assert UNDECIDED in text
        assert re.search(r"\b(better|worse|best)\b", text) is None


def test_the_paper_stands_beside_ours(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, "local-ws", size=12000, data="rotmnist"))]
    table = make_table(runs)
    assert table.rows[0].cells[0].paper == (0.688, 0.032)
    assert "paper 0.688 ± 0.032" in table.markdown()
    assert "over 5 seeds (Rotated-MNIST)" in table.markdown()
    folder = write_run(tmp_path, "local-ws", size=12000, data="rotmnist", again="-regenerated")
    assert make_table([read_run(folder)]).rows[0].cells[0].printed == "0.688 ± 0.032"
    other = make_table([read_run(write_run(tmp_path, "local-ws", size=12000))])
    assert other.rows[0].cells[0].paper is None


def test_notes_say_what_is_missing_scaled_or_regenerated(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, scale=0.25)), read_run(write_run(tmp_path, size=500))]
    table = make_table(runs, recipes=["digits/pooling", "digits/mlp"], sizes=[100, 500])
    text = table.markdown()
    assert "- a: scaled down: 0.25 of the recipe's iterations" in text
    assert "10.00 (1) a" in text
    assert "- data: turned copies of scikit-learn's digits" in text
    assert "- not run: no finished run at this size" in text
    assert "number of seeds: 1" in text
    assert table.rows[1].cells[0].ours is None
    assert "| digits/mlp |  | not run | not run |" in text
    lines = list(csv.DictReader(io.StringIO(table.csv())))
    assert "scaled down: 0.25" in lines[0]["notes"]
    assert "scaled down" not in lines[1]["notes"]
    assert "data: turned copies" in lines[1]["notes"]
    assert lines[2]["error"] == "not run"


def test_csv_holds_every_number(tmp_path: Path) -> None:
    table = make_table(write_study(tmp_path))
    lines = list(csv.DictReader(io.StringIO(table.csv())))
    assert len(lines) == 10
    cells = [cell for row in table.rows for cell in row.cells]
    for line, cell in zip(lines, cells, strict=True):
        assert cell.ours is not None
        assert float(line["error"]) == cell.ours.mean
        if cell.difference is not None:
            assert float(line["low"]) == cell.difference.low
            assert line["verdict"] == cell.difference.verdict


def test_latex_is_balanced_and_escaped(tmp_path: Path) -> None:
    text = make_table(write_study(tmp_path)).latex()
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert re.search(r"(?<!\\)%", text) is None
    assert r"$\pm$" in text
    for line in text.splitlines():
        assert line.count("{") == line.count("}")


def test_tables_from_records_are_the_same(tmp_path: Path) -> None:
    runs = write_study(tmp_path / "runs")
    write_records(runs, tmp_path / "records.json")
    again = make_table(read_records(tmp_path / "records.json"))
    assert again == make_table(runs)


def test_one_table_holds_one_data_set(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, data=data)) for data in ("digits", "rotmnist")]
    with pytest.raises(ConfigError, match="runs on digits, rotmnist do not belong into one table"):
        make_table(runs)
    assert [table.data for table in tables_by_data(runs)] == ["digits", "rotmnist"]
    with pytest.raises(ConfigError, match="no finished run on 'svhn'"):
        make_table(runs, data="svhn")
    with pytest.raises(ConfigError, match="no finished run to tabulate"):
        make_table([])


def test_a_catalog_says_how_many_combinations_it_had(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "monomials"))
    start = {"distances": [[0, 1, 1], [0, 1, 2], [0, 2, 2], [0, 2, 1]]}
    for initial, count in (("catalog", 1), ("random", 0)):
        choices = run.choices | {"selection": {"initial": initial}}
        catalog = replace(run, choices=choices, selections=({"start": start},))
        notes = [note for note in make_table([catalog]).notes if note.startswith("catalog")]
        assert len(notes) == count
    assert catalog_text(
        replace(catalog, choices=run.choices | {"selection": {"initial": "catalog"}})
    ) == (
        "catalog: all 3 combinations of distances up to 2, the rest of 4 monomials at random; "
        "a larger head.max_distance has more"
    )
