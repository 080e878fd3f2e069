import base64
import io
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from support.written_runs import tiny_dataset, write_run

from invint.errors import ShapeError
from invint.figures.sheets import (
    CELL,
    GAP,
    LINE,
    Hard,
    contact_sheet,
    displayable,
    filter_drawing,
    hardest_drawing,
)
from invint.figures.style import Series, save_figure
from invint.groups import Cyclic, Dihedral
from invint.study.records import read_run

OWN = Series("digits/pooling", "pooling", 1)


def shown(figure: Figure) -> list[np.ndarray]:
    return [np.asarray(each.get_array()) for each in figure.axes[0].images]


def texts(figure: Figure) -> list[str]:
    return [each.get_text() for each in figure.axes[0].texts]


def test_images_stand_in_rows_in_their_order() -> None:
    levels = torch.tensor([0, 50, 100, 150, 200], dtype=torch.uint8)
    images = levels[:, None, None, None].expand(5, 1, 4, 4)
    figure = contact_sheet(images, list("abcde"), columns=3)
    drawn = figure.axes[0].images
    for index, (each, level) in enumerate(zip(drawn, levels.tolist(), strict=True)):
        assert (np.asarray(each.get_array()) == level).all()
        row, column = divmod(index, 3)
        left, top = GAP + column * (CELL + GAP), GAP + row * (CELL + GAP + LINE)
        assert each.get_extent() == pytest.approx((left, left + CELL, top + CELL, top))
    assert texts(figure) == [*"abcde", ""]


def test_a_file_shows_pixels_as_they_are(tmp_path: Path) -> None:
    images = torch.tensor([[[[0, 255], [255, 0]]], [[[90, 90], [90, 90]]]], dtype=torch.uint8)
    save_figure(contact_sheet(images, ["a", "b"]), tmp_path / "new" / "sheet.png")
    with Image.open(tmp_path / "new" / "sheet.png") as picture:
        assert picture.format == "PNG"
        pixels = np.asarray(picture.convert("L"))
    scale = 150 / 72
    first, second = GAP + CELL / 2, GAP + CELL + GAP + CELL / 2
    quarter = CELL / 4
    for x, y, level in (
        *((first - quarter, first - quarter, 0), (first + quarter, first - quarter, 255)),
        *((first - quarter, first + quarter, 255), (second, first, 90)),
    ):
        assert pixels[round(y * scale), round(x * scale)] == level


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.float32])
def test_all_stored_types_look_the_same(dtype: torch.dtype) -> None:
    levels = torch.linspace(0, 1, 16)[None, None, :, None].expand(1, 3, 16, 16)
    scale = {torch.uint8: 255, torch.uint16: 65535, torch.float32: 1}[dtype]
    images = (levels * scale).round().to(dtype) if scale > 1 else levels
    (pixels,) = displayable(images)
    assert (pixels[0] == 0).all()
    assert (pixels[-1] == 255).all()
    assert abs(int(pixels[8, 0, 0]) - 136) <= 1


def test_colours_are_red_green_blue() -> None:
    images = torch.zeros(1, 3, 2, 2, dtype=torch.uint8)
    images[:, 1] = 9
    assert (shown(contact_sheet(images, ["x"]))[0] == (0, 9, 0)).all()


def test_a_picture_that_is_not_square_keeps_its_shape_on_grey() -> None:
    figure = contact_sheet(torch.zeros(1, 1, 96, 192, dtype=torch.uint8), ["x"])
    grey, picture = (each.get_extent() for each in figure.axes[0].images)
    assert grey[1] - grey[0] == grey[2] - grey[3] == pytest.approx(CELL)
    assert picture[1] - picture[0] == pytest.approx(CELL)
    assert picture[2] - picture[3] == pytest.approx(CELL / 2)


def test_labels_are_written_and_long_ones_shortened(tmp_path: Path) -> None:
    images = torch.zeros(1, 1, 4, 4, dtype=torch.uint8)
    figure = contact_sheet(images, ["a class with a very long name\nand a second line"])
    first, second, _ = texts(figure)
    assert first.startswith("a class")
    assert (first[-1], second[-1]) == ("…", "…")
    save_figure(figure, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        margin = np.asarray(picture.convert("L"))[:, -int(GAP) :]
    assert (margin == 255).all()


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sheet = contact_sheet(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), ["a"])
    with pytest.raises(OSError, match=r"file"):
        save_figure(sheet, tmp_path / "file" / "sheet.png")


def test_labels_must_match_images() -> None:
    with pytest.raises(ShapeError, match=r"contact_sheet: expected .*, got \(2, 1, 4, 4\) and 1"):
        contact_sheet(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), ["a"])


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_of_a_page_come_back_pixel_by_pixel(channels: int) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (2, channels, 6, 6), generator=generator).to(torch.uint8)
    hard = [Hard(1, 0, 1, 3, 4)]
    svg = hardest_drawing(hard, images, ["cat", "dog"], "pets").svg
    (image,) = ET.fromstring(svg).iter("image")
    assert "pixelated" in image.attrib["style"]
    kind, _, text = image.attrib["href"].partition(",")
    assert kind == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(text))) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert (pixels == displayable(images)[1]).all()


def test_hard_images_are_named_by_both_classes() -> None:
    hard = [Hard(3, 3, 4, 2, 4), Hard(5, 5, None, 0, 4)]
    names = [str(label) for label in range(10)]
    drawing = hardest_drawing(hard, tiny_dataset().test.images, names, "digits")
    assert texts(drawing.figure)[:4] == ["3 → 4", "2 of 4", "5", "0 of 4"]
    names[3] = "a long name"
    drawing = hardest_drawing(hard, tiny_dataset().test.images, names, "digits")
    assert texts(drawing.figure)[:6] == ["a long name", "→ 4", "2 of 4", "5", "", "0 of 4"]
    assert (shown(drawing.figure)[1] == displayable(tiny_dataset().test.images)[5]).all()


@pytest.mark.parametrize("group", [Cyclic(3), Cyclic(16), Dihedral(4)])
def test_filters_are_drawn_with_their_angles(tmp_path: Path, group: Cyclic | Dihedral) -> None:
    run = read_run(write_run(tmp_path))
    filters = torch.randn(group.order, 5, 5)
    drawing = filter_drawing(group, filters, run, OWN)
    labels = texts(drawing.figure)[:-1]
    assert len(labels) == group.order
    assert labels[1] == f"{360 / group.n:g}°"
    assert sum("⇅" in label for label in labels) == (group.order // 2 if group.has_flips else 0)
    colours = np.stack(shown(drawing.figure))
    assert np.allclose(colours[..., 3], abs(filters) / abs(filters).max())
    blue = colours[..., 2] > colours[..., 0]
    assert (blue == (filters.numpy() > 0)).all()
    assert math.isclose(colours[..., 3].max(), 1, rel_tol=1e-6)
