"""Networks as ONNX files, which run wherever onnxruntime does."""

from pathlib import Path

import torch
from torch import Tensor, nn

from invint.errors import ConfigError
from invint.export.card import KEY, ModelCard, read_card
from invint.export.refusal import unreadable
from invint.export.running import LoadedModel
from invint.export.tracing import example_images, exportable, quiet
from invint.extras import needed

ONNX_LIMIT = 2**31 - 2**24  # bytes one protobuf message can hold, less room for the graph


def write_onnx(model: nn.Module, card: ModelCard, path: Path) -> None:
    """Write the folded network with the normalisation inside, for batches of any size."""
    for module in ("onnx", "onnxscript", "onnxruntime"):
        needed(module, "export_model", "onnx")
    network = exportable(model, card)
    size = sum(each.nbytes for each in (*network.parameters(), *network.buffers()))
    if size > ONNX_LIMIT:
        raise ConfigError(
            f"export_model: {size / 2**30:.1f} GiB of weights do not fit one ONNX file, which "
            "holds 2; export to torch"
        )
    with quiet():
        program = torch.onnx.export(
            network,
            (example_images(card, 2),),
            dynamo=True,
            verbose=False,
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
        if program is None:
            raise ConfigError("export_model: torch.onnx.export returned nothing")
        for node in program.model.graph.all_nodes():
            node.metadata_props.clear()  # stack traces, with the paths of this machine
        program.model.metadata_props[KEY] = card.to_json()
        program.save(path, external_data=False)


def read_onnx(path: Path) -> LoadedModel:
    """Read a network that computes in onnxruntime."""
    runtime = needed("onnxruntime", "export_model", "onnx")
    try:
        session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no common class of errors
        raise unreadable(path, "an ONNX file") from error
    card = read_card(session.get_modelmeta().custom_metadata_map.get(KEY))

    def run(images: Tensor) -> Tensor:
        array = images.detach().cpu().float().contiguous().numpy()
        return torch.from_numpy(session.run(["logits"], {"images": array})[0])

    return LoadedModel(card, run, path.name)
