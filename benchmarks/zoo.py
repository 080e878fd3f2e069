"""The networks of the zoo: trained, audited, and written where `create_model` finds them.

All have the recipe of the settled digits with Local-WS, but for the epochs; nothing was chosen by
test images. The last weights of seed 0 are kept. The audit turns 128 test images, in float64. About
half an hour on one core, of which the first three networks take four minutes.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from record import markdown_table, recorded, recording_parser, show_table

from invint.audit import Audit, audit_model
from invint.data import load_dataset
from invint.data.batches import scaled
from invint.export import Normalised, load_network
from invint.recipes import RECIPES, Recipe
from invint.train import train_run
from invint.zoo import HERE, Weights

BASE = RECIPES["digits/settled-local-ws"]
EPOCHS = {  # the first is what timm takes where none is named
    "digits": 40,
    "fashion-rotated": 4,
    "rotmnist-regenerated": 4,
    "svhn-recropped": 15,
    "cifar10": 10,
}
AUDITED = 128
HEADER = ["name", "data", "test error", "quarter turns", "all turns", "kB", "SHA-256"]


def recipe_of(data: str) -> Recipe:
    """Return how the network of a data set is trained."""
    return BASE.replace(
        name=f"zoo/{tag_of(data)}",
        about=f"The network of the zoo for {data}.",
        data={"name": data},
        train={"epochs": EPOCHS[data]},
    )


def tag_of(data: str) -> str:
    """Return what a network that learnt from a data set is called after its dot."""
    return data.partition("-")[0]


def audited(path: Path, data: str) -> Audit:
    """Audit the network in a file, with the normalisation inside, in float64."""
    network, card = load_network(path)
    images = scaled(load_dataset(data).test.images[:AUDITED]).double()
    return audit_model(Normalised(network, card).double(), images, angles=range(0, 360, 30))


def row_of(data: str, runs: Path) -> dict[str, Any]:
    """Train a network or take the complete run, put its file into the zoo, and measure it."""
    store = train_run(recipe_of(data), runs=runs)
    result = store.result or {}
    name = f"{BASE.model.name}.{tag_of(data)}"
    path = Path(shutil.copyfile(store.model, HERE / f"{name}.safetensors"))
    audit = audited(path, data)
    return {
        "name": name,
        "data": data,
        "error": result["error"],
        "parameters": result["parameters"],
        "steps": result["steps"],
        "train_images": result["train_images"],
        "test_images": result["test_images"],
        "quarter_turns": audit.worst_exact_drift,
        "all_turns": audit.worst_drift,
        "size": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }


def written(rows: list[dict[str, Any]]) -> None:
    """Write what the package knows of the files."""
    known = {
        row["name"]: Weights(
            row["sha256"], row["size"], row["data"], row["error"], row["quarter_turns"]
        )._asdict()
        for row in rows
    }
    (HERE / "weights.json").write_text(json.dumps(known, indent=1) + "\n")


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as people read them."""
    cells = [
        [
            f"`{row['name']}`",
            f"{row['data']}, {row['train_images']:,} + {row['test_images']:,}",
            f"{100 * row['error']:.2f} %",
            f"{row['quarter_turns']:.0e}",
            f"{row['all_turns']:.2f}",
            f"{row['size'] / 1000:.0f}",
            f"`{row['sha256'][:16]}…`",
        ]
        for row in rows
    ]
    return markdown_table(HEADER, cells)


def main() -> None:
    """Train what is not trained, and write files, record and table."""
    parser = recording_parser(__doc__ or "")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs are")
    parser.add_argument("--only", nargs="+", default=[*EPOCHS], help="others stay as recorded")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known = {row["data"]: row for row in recorded(arguments.record)}
    for data in arguments.only:
        known[data] = row_of(data, arguments.runs)
    rows = [known[data] for data in EPOCHS if data in known]
    written(rows)
    show_table(table(rows), rows, record=arguments.record)


if __name__ == "__main__":
    main()
