import base64
import io
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image
from support.written_runs import tiny_dataset, write_run

from invint.errors import ShapeError
from invint.figures.sheets import (
    CELL,
    GAP,
    Hard,
    Missed,
    Unsure,
    contact_sheet,
    displayable,
    filter_drawing,
    hardest_drawing,
    missed_drawing,
    saliency_drawing,
    unsure_drawing,
)
from invint.figures.style import BLUE, GREY, Series, save_figure
from invint.groups import Cyclic, Dihedral
from invint.study.records import read_run

OWN = Series("digits/pooling", "pooling", 1)


def shown(figure: Figure) -> list[np.ndarray]:
    return [np.asarray(image.get_array()) for axes in figure.axes for image in axes.images]


def texts(figure: Figure) -> list[str]:
    return [axes.get_xlabel() for axes in figure.axes]


def test_images_stand_in_rows_in_their_order() -> None:
    levels = torch.tensor([0, 50, 100, 150, 200], dtype=torch.uint8)
    images = levels[:, None, None, None].expand(5, 1, 4, 4)
    figure = contact_sheet(images, list("abcde"), columns=3)
    assert [int(each.max()) for each in shown(figure)] == levels.tolist()
    assert all((each == each.max()).all() for each in shown(figure))
    assert texts(figure) == [*"abcde", ""]
    figure.draw_without_rendering()
    boxes = [axes.get_window_extent() for axes in figure.axes]
    for index, box in enumerate(boxes):
        row, column = divmod(index, 3)
        assert box.x0 == pytest.approx(boxes[column].x0)
        assert box.y0 == pytest.approx(boxes[3 * row].y0)
        assert box.width == pytest.approx(box.height)
    assert boxes[0].x1 < boxes[1].x0
    assert boxes[1].x1 < boxes[2].x0
    assert boxes[3].y1 < boxes[0].y0


def test_a_file_shows_pixels_as_they_are(tmp_path: Path) -> None:
    images = torch.tensor([[[[0, 255], [255, 0]]], [[[90, 90], [90, 90]]]], dtype=torch.uint8)
    figure = contact_sheet(images, ["a", "b"])
    save_figure(figure, tmp_path / "new" / "sheet.png")
    with Image.open(tmp_path / "new" / "sheet.png") as picture:
        assert picture.format == "PNG"
        pixels = np.asarray(picture.convert("L"))
    for index, x, y, level in (
        *((0, 0.25, 0.75, 0), (0, 0.75, 0.75, 255), (0, 0.25, 0.25, 255), (0, 0.75, 0.25, 0)),
        *((1, 0.25, 0.75, 90), (1, 0.75, 0.25, 90)),
    ):
        box = figure.axes[index].get_position()
        row = (1 - box.y0 - y * box.height) * pixels.shape[0]
        column = (box.x0 + x * box.width) * pixels.shape[1]
        assert pixels[int(row), int(column)] == level


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
    (axes,) = figure.axes
    (picture,) = axes.images
    assert tuple(picture.get_extent()) == (-96, 96, -48, 48)
    assert (axes.get_xlim(), axes.get_ylim()) == ((-96, 96), (-96, 96))
    assert to_hex(axes.get_facecolor(), keep_alpha=True) == GREY + "40"
    figure.draw_without_rendering()
    box = axes.get_window_extent()
    assert box.width == pytest.approx(box.height)
    assert box.width == pytest.approx(CELL / 72 * figure.dpi)


def test_labels_are_written_and_long_ones_shortened(tmp_path: Path) -> None:
    images = torch.zeros(1, 1, 4, 4, dtype=torch.uint8)
    figure = contact_sheet(images, ["a class with a very long name\nand a second line"])
    first, second = texts(figure)[0].split("\n")
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
    assert texts(drawing.figure) == ["3 → 4\n2 of 4", "5\n0 of 4"]
    names[3] = "a long name"
    drawing = hardest_drawing(hard, tiny_dataset().test.images, names, "digits")
    assert texts(drawing.figure) == ["a long name\n→ 4\n2 of 4", "5\n\n0 of 4"]
    assert (shown(drawing.figure)[1] == displayable(tiny_dataset().test.images)[5]).all()


@pytest.mark.parametrize("group", [Cyclic(3), Cyclic(16), Dihedral(4)])
def test_filters_are_drawn_with_their_angles(tmp_path: Path, group: Cyclic | Dihedral) -> None:
    run = read_run(write_run(tmp_path))
    filters = torch.randn(group.order, 5, 5)
    drawing = filter_drawing(group, filters, run, OWN)
    labels = texts(drawing.figure)
    assert len(labels) == group.order
    assert labels[1] == f"{360 / group.n:g}°"
    assert sum("⇅" in label for label in labels) == (group.order // 2 if group.has_flips else 0)
    colours = np.stack(shown(drawing.figure))
    assert np.allclose(colours[..., 3], abs(filters) / abs(filters).max())
    blue = colours[..., 2] > colours[..., 0]
    assert (blue == (filters.numpy() > 0)).all()
    assert math.isclose(colours[..., 3].max(), 1, rel_tol=1e-6)


def headings(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def test_each_class_has_a_row_of_its_own_images() -> None:
    first = Missed(3, 0.5, 12, (Hard(3, 3, 4, 2, 4), Hard(13, 3, 5, 1, 4)))
    missed = [first, Missed(5, 0.25, 8, (Hard(5, 5, 6, 1, 4),))]
    images, names = tiny_dataset().test.images, [f"n{label}" for label in range(10)]
    figure = missed_drawing(missed, images, names, "digits").figure
    assert headings(figure) == ["n3: 50.0% wrong (12 images)", "", "n5: 25.0% wrong (8 images)", ""]
    assert texts(figure) == ["→ n4\n2 of 4", "→ n5\n1 of 4", "→ n6\n1 of 4", ""]
    pictures = displayable(images)
    for found, index in zip(shown(figure), (3, 13, 5), strict=True):
        assert (found == pictures[index]).all()


def test_the_least_sure_images_stand_under_their_angle() -> None:
    images = torch.rand(2, 1, 6, 6)
    unsure = Unsure(45.0, 0.625, images, (0, 1), (0, 0), (0.4, 0.55))
    figure = unsure_drawing([(OWN, unsure)], ["cat", "dog"], "pets").figure
    assert headings(figure)[0] == "pooling: 45°, 62.5%"
    assert texts(figure) == ["cat\n40% sure", "dog → cat\n55% sure"]
    assert (shown(figure)[1] == displayable(images)[1]).all()


def test_saliency_is_blue_for_the_answer_and_orange_against_it(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path))
    relevance = torch.zeros(1, 4, 4)
    relevance[0, 0, 0], relevance[0, 3, 3] = 2.0, -1.0
    drawing = saliency_drawing(torch.ones(1, 1, 4, 4), relevance, ["cat"], run, OWN)
    picture, overlay = shown(drawing.figure)
    assert (picture == 255).all()
    assert to_hex(overlay[0, 0] / 255) == BLUE
    assert overlay[3, 3, 0] > overlay[3, 3, 2] + 50
    assert (overlay[1, 1] == 255).all()  # where nothing is relevant, the pale image
    assert texts(drawing.figure) == ["cat", ""]
