"""Write the tables of the documentation again from the records; nothing is measured.

usage: python benchmarks/tables.py
"""

import json
from typing import Any

import heads
import layers
from record import ROOT, markdown_table, publish

KERNELS = {
    "plain path, compiled": "heads-cuda-plain",
    "kernel by rows": "heads-cuda-triton-rows",
    "kernel by tiles": "heads-cuda-triton-tiles",
}


def rows_of(name: str) -> list[dict[str, Any]]:
    """Return the rows of a record."""
    rows: list[dict[str, Any]] = json.loads((ROOT / "results" / f"{name}.json").read_text())["rows"]
    return rows


def kernels() -> str:
    """Return the time of a training step of the monomial head, in milliseconds."""
    places = [(net, count) for net in ("sfcnn", "sf-wrn16-8") for count in (5, 10, 50)]
    body = [[label, *_times(rows_of(name), places)] for label, name in KERNELS.items()]
    floor = {row["place"]["network"]: row for row in rows_of("heads-cuda-triton-tiles")}
    body.append(["last convolution", *(f"{floor[net]['convolution_ms']:.2f}" for net, _ in places)])
    return markdown_table(["ms", *(f"{net}, {count}" for net, count in places)], body)


def _times(rows: list[dict[str, Any]], places: list[tuple[str, int]]) -> list[str]:
    found = {(row["place"]["network"], row.get("monomials")): row["ms"] for row in rows}
    return [f"{found[place]:.2f}" for place in places]


def main() -> None:
    """Write every table."""
    tables = {
        "layers-cpu": layers.table(rows_of("layers-cpu")),
        "layers-cuda": layers.table(rows_of("layers-cuda")),
        "layers-cuda-bfloat16": layers.table(rows_of("layers-cuda-bfloat16")),
        "heads-cpu": heads.table(rows_of("heads-cpu")),
        "heads-cuda": heads.table(
            [row for row in rows_of("heads-cuda-triton-tiles") if row["head"] != "monomials"]
        ),
        "kernels": kernels(),
    }
    for name, text in tables.items():
        print(name, publish(name, text))


if __name__ == "__main__":
    main()
