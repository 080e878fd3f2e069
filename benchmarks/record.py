"""Writing what a script measured: a JSON record, and a table inside a Markdown page."""

import argparse
import json
import platform
import shlex
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from invint.train.device import without_place

ROOT = Path(__file__).parent.parent


def recording_parser(about: str) -> argparse.ArgumentParser:
    """Return a parser that says what a script does and knows `--record`.

    Args:
        about: Its docstring, of which the first line is shown.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--record", metavar="NAME", help="write results/NAME.json")
    return parser


def show_table(
    text: str, rows: Sequence[dict[str, Any]], *, record: str | None, **more: Any
) -> None:
    """Print a table; under a name, also write its rows and put it into the pages that have it."""
    print(f"\n{text}\n")
    if record:
        print(write_record(record, this_command(), rows, **more))
        print(f"put into {publish(record, text)}")


def this_command() -> str:
    """Return the command that runs now, as a record names it."""
    arguments = map(without_place, sys.argv[1:])
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *arguments])


def write_record(name: str, command: str, rows: Sequence[dict[str, Any]], **more: Any) -> Path:
    """Write `results/<name>.json`: the rows, the command that makes them, and where it ran."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else _processor()
    made = {
        "command": command,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": device,
        "threads": torch.get_num_threads(),
    }
    path = ROOT / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"made": made, **more, "rows": rows}, indent=1) + "\n")
    return path


def recorded(name: str | None) -> list[dict[str, Any]]:
    """Return the rows of a record, none if it is not there yet."""
    path = ROOT / "results" / f"{name}.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    return rows


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose columns line up: text to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [
        " | ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [header, rule, *rows]
    ]
    return "\n".join(f"| {line} |" for line in lines)


def mean_and_deviation(values: Sequence[float]) -> str:
    """Return `mean ± standard deviation` of a few measurements."""
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}"


def publish(name: str, text: str) -> list[str]:
    """Put `text` into the block `name` of every page that has one."""
    pages = [
        ROOT / "README.md",
        *(ROOT / "benchmarks").glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
    ]
    chosen = [page for page in pages if f"<!-- {name} -->" in page.read_text()]
    for page in chosen:
        replace_block(page, name, text)
    return [str(page.relative_to(ROOT)) for page in chosen]


def replace_block(page: Path, name: str, text: str) -> None:
    """Put `text` between the comments `<!-- name -->` and `<!-- /name -->` of a page."""
    before, _, rest = page.read_text().partition(f"<!-- {name} -->\n")
    _, mark, after = rest.partition(f"<!-- /{name} -->")
    if not mark:
        raise ValueError(f"{page}: no block <!-- {name} --> … <!-- /{name} -->")
    page.write_text(f"{before}<!-- {name} -->\n{text}\n{mark}{after}")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.processor()
