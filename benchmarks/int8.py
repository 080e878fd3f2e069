"""Networks of runs with their convolutions in int8: error, drift, size and speed.

invint study digits --only cnn,monomials,local-ws --sizes all --seeds 1 --runs runs
python benchmarks/int8.py runs/digits/*/*/0 --record int8-digits
"""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from record import markdown_table, recording_parser, show_table
from timing import in_turn

from invint.data.batches import scaled
from invint.export import export_model, load_network
from invint.predict import export_int8
from invint.train.setup import load_data
from invint.train.store import RunStore

HEADER = ("network", "precision", "test error", "largest drift, quarter turns", "any angle", "kB")


def measured(run: Path, folder: Path) -> list[dict[str, Any]]:
    """Return a row for the network of a run in float32, and one in int8."""
    store = RunStore(run)
    dataset = load_data(store.data_choice, None)
    files = folder / "float32.onnx", folder / "int8.onnx"
    network, card = load_network(store.model)
    export_model(network, files[0], card)
    both = export_int8(run, files[1], dataset)
    images = {"images": scaled(dataset.test.images[:64]).numpy()}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    sessions = [onnxruntime.InferenceSession(each, options) for each in files]
    times = in_turn([partial(each.run, None, images) for each in sessions], 5)
    return [
        {"run": store.recipe_name, "precision": name, **each.to_dict(), "time": time / times[0]}
        for name, each, time in zip(("float32", "int8"), both, times, strict=True)
    ]


def main() -> None:
    """Measure every run that is named."""
    parser = recording_parser(__doc__ or "")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    arguments = parser.parse_args()
    rows = []
    for run in arguments.runs:
        with tempfile.TemporaryDirectory() as folder:
            rows += measured(run, Path(folder))
    cells = [
        (
            row["run"],
            row["precision"],
            f"{row['error']:.2%}",
            f"{row['worst_exact_drift']:.1e}",
            f"{row['worst_drift']:.2f}",
            f"{row['bytes'] / 1000:,.0f}",
            f"{row['time']:.2f}",
        )
        for row in rows
    ]
    show_table(markdown_table([*HEADER, "time"], cells), rows, record=arguments.record)


if __name__ == "__main__":
    main()
