from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from invint.data.contact_sheet import CELL, GAP, LINE, TITLE, contact_sheet, save_sheet
from invint.errors import DataError, ShapeError


def cell(sheet: Image.Image, row: int, column: int) -> np.ndarray:
    left, top = GAP + column * (CELL + GAP), TITLE + row * (CELL + GAP + LINE)
    return np.asarray(sheet.crop((left, top, left + CELL, top + CELL)))


def test_images_stand_in_rows_in_their_order() -> None:
    levels = torch.tensor([0, 50, 100, 150, 200], dtype=torch.uint8)
    images = levels[:, None, None, None].expand(5, 1, 4, 4)
    sheet = contact_sheet(images, list("abcde"), columns=3)
    for number, level in enumerate(levels.tolist()):
        assert (cell(sheet, number // 3, number % 3) == level).all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.float32])
def test_all_stored_types_look_the_same(dtype: torch.dtype) -> None:
    share = torch.linspace(0, 1, 16)[None, None, :, None].expand(1, 3, 16, 16)
    scale = {torch.uint8: 255, torch.uint16: 65535, torch.float32: 1}[dtype]
    images = (share * scale).round().to(dtype) if scale > 1 else share
    shown = cell(contact_sheet(images, [""]), 0, 0)
    assert (shown[0] == 0).all()
    assert (shown[-1] == 255).all()
    assert abs(int(shown[CELL // 2, 0, 0]) - 136) <= 1


def test_colours_are_red_green_blue() -> None:
    images = torch.zeros(1, 3, 2, 2, dtype=torch.uint8)
    images[:, 1] = 9
    assert (cell(contact_sheet(images, ["x"]), 0, 0) == (0, 9, 0)).all()


def test_a_picture_that_is_not_square_keeps_its_shape() -> None:
    shown = cell(contact_sheet(torch.zeros(1, 1, 96, 192, dtype=torch.uint8), ["x"]), 0, 0)
    assert (shown[:, :, 0] == 0).sum() == CELL * CELL // 2


def test_labels_are_written_and_long_ones_shortened() -> None:
    images = torch.zeros(1, 1, 4, 4, dtype=torch.uint8)
    blank = np.asarray(contact_sheet(images, [""]))
    short = np.asarray(contact_sheet(images, ["frog"]))
    long = np.asarray(contact_sheet(images, ["a class with a very long name\nand a second line"]))
    assert (short != blank).any()
    assert (long != blank).any()
    assert (long[:, -GAP:] == 255).all()


def test_the_file_is_a_png(tmp_path: Path) -> None:
    sheet = contact_sheet(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), ["a", "b"], title="two")
    save_sheet(sheet, tmp_path / "new" / "sheet.png")
    with Image.open(tmp_path / "new" / "sheet.png") as picture:
        assert picture.format == "PNG"
        assert np.array_equal(np.asarray(picture), np.asarray(sheet))


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sheet = contact_sheet(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), ["a"])
    with pytest.raises(DataError, match=r"sheet\.png: cannot be written: "):
        save_sheet(sheet, tmp_path / "file" / "sheet.png")


def test_labels_must_match_images() -> None:
    with pytest.raises(ShapeError, match=r"contact_sheet: expected .*, got \(2, 1, 4, 4\) and 1"):
        contact_sheet(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), ["a"])
