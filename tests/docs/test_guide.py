"""The code of the guide runs as it stands, page by page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = BLOCK.findall(page.read_text())
    if not blocks:
        pytest.skip("no code on this page")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    assert len(names) > 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_generated_table_is_there(page: Path) -> None:
    empty = re.findall(r"<!-- ([\w -]+) -->\s*<!-- /\1 -->", page.read_text())
    assert empty == [], "run `make figures`"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["headline", "shown", "undecided", "unlike", "settling", "missing"]
)
def test_what_the_results_claim_is_what_the_records_say(name: str) -> None:
    import tables  # of benchmarks/

    page = ROOT / ("README.md" if name == "headline" else "docs/results.md")
    text = page.read_text().partition(f"<!-- {name} -->\n")[2].partition(f"\n<!-- /{name} -->")[0]
    assert text == getattr(tables, name)(), "run `python benchmarks/tables.py`"
    if name in ("shown", "undecided", "settling"):  # no claim without an interval
        rows = [line for line in text.splitlines() if line.startswith("|")][2:]
        assert rows
        assert all("[" in row for row in rows)
