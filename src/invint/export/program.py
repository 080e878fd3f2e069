"""Networks as `torch.export` files, which run wherever torch does."""

import zipfile
from pathlib import Path

import torch
from torch import nn

from invint.errors import ConfigError
from invint.export.archive import refuse_code
from invint.export.card import KEY, ModelCard, read_card
from invint.export.refusal import unreadable
from invint.export.running import LoadedModel
from invint.export.tracing import example_images, exportable, quiet


def write_program(model: nn.Module, card: ModelCard, path: Path) -> None:
    """Write the folded network with the normalisation inside, for batches of any size."""
    shapes = ({0: torch.export.Dim("batch")},)
    with quiet():
        program = torch.export.export(
            exportable(model, card), (example_images(card, 2),), dynamic_shapes=shapes
        )
        torch.export.save(program, path, extra_files={f"{KEY}.json": card.to_json()})


def read_program(path: Path) -> LoadedModel:
    """Read a network, if nothing in its file could do more than compute with tensors."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [(name.partition("/")[2], archive.read(name)) for name in archive.namelist()]
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise unreadable(path, "a torch.export file") from error
    files = dict(entries)
    if len(files) < len(entries):
        raise ConfigError("it has two entries of one name, so that one could hide the other")
    refuse_code(files)
    content = files.get(f"extra/{KEY}.json")
    card = read_card(None if content is None else content.decode())
    try:
        with quiet():
            program = torch.export.load(path).module()
    except Exception as error:  # torch has no common class of errors
        raise unreadable(path, "a torch.export file") from error
    return LoadedModel(card, lambda images: program(images.cpu().float()), path.name)
