"""Every format and kind of pixels, written here with Pillow or by hand and read back."""

import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from support.pictures import chunk, encoded, png

from invint.data.pictures import loses_depth, open_picture, read_picture
from invint.errors import ConfigError, DataError

COLOURS = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
GREYS = np.arange(6 * 8, dtype=np.uint8).reshape(6, 8) * 5


def as_pixels(array: NDArray[np.generic]) -> torch.Tensor:
    return torch.from_numpy(np.moveaxis(np.atleast_3d(array), 2, 0).copy())


def values(pixels: torch.Tensor) -> set[int]:
    return set(pixels.flatten().tolist())


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "WEBP"])
def test_formats_without_loss_give_the_pixels_back(kind: str) -> None:
    data = encoded(Image.fromarray(COLOURS), kind, **({"lossless": True} if kind == "WEBP" else {}))
    assert torch.equal(read_picture(data), as_pixels(COLOURS))


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF"])
def test_grey_stays_one_channel(kind: str) -> None:
    assert torch.equal(read_picture(encoded(Image.fromarray(GREYS), kind)), as_pixels(GREYS))


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg_gives_nearly_the_pixels_back(mode: str) -> None:
    image = Image.linear_gradient("L").resize((32, 32)).convert(mode)
    found = read_picture(encoded(image, "JPEG", quality=95))
    expected = image if mode == "L" else image.convert("RGB")
    assert (found.int() - as_pixels(np.asarray(expected)).int()).abs().max() < 12


def test_a_palette_is_looked_up() -> None:
    image = Image.fromarray(GREYS % 3).convert("P")
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    table = np.array([[10, 20, 30], [40, 50, 60], [70, 80, 90]], dtype=np.uint8)
    assert torch.equal(read_picture(encoded(image, "PNG")), as_pixels(table[GREYS % 3]))


def test_transparent_parts_are_black_and_half_transparent_ones_half() -> None:
    array = np.full((2, 3, 4), 200, dtype=np.uint8)
    array[..., 3] = [[0, 51, 255]] * 2
    found = read_picture(encoded(Image.fromarray(array), "PNG"))
    assert found.tolist() == [[[0, 40, 200]] * 2] * 3


def test_grey_with_transparency_stays_grey() -> None:
    array = np.array([[[100, 255], [100, 0]]], dtype=np.uint8)
    found = read_picture(encoded(Image.fromarray(array, "LA"), "PNG"))
    assert found.tolist() == [[[100, 0]]]


def test_a_transparent_palette_colour_is_black() -> None:
    image = Image.fromarray(np.array([[0, 1]], dtype=np.uint8)).convert("P")
    image.putpalette([10, 20, 30, 40, 50, 60])
    found = read_picture(encoded(image, "PNG", transparency=0))
    assert found.tolist() == [[[0, 40]], [[0, 50]], [[0, 60]]]


def test_black_and_white_is_0_and_255() -> None:
    found = read_picture(encoded(Image.fromarray(GREYS > 100), "PNG"))
    assert torch.equal(found, as_pixels(np.where(GREYS > 100, 255, 0).astype(np.uint8)))


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_kept(kind: str) -> None:
    deep = (np.arange(48, dtype=np.uint16) * 1365).reshape(6, 8)
    found = read_picture(encoded(Image.fromarray(deep), kind))
    assert found.dtype == torch.uint16
    assert found[0].tolist() == deep.tolist()


def test_depth_can_be_asked_for() -> None:
    deep = np.array([[0, 128, 129, 257, 65535]], dtype=np.uint16)
    data = encoded(Image.fromarray(deep), "PNG")
    assert read_picture(data, sixteen_bit=False)[0].tolist() == [[0, 0, 1, 1, 255]]
    shallow = encoded(Image.fromarray(np.array([[0, 1, 255]], dtype=np.uint8)), "PNG")
    assert read_picture(shallow, sixteen_bit=True)[0].tolist() == [[0, 257, 65535]]


def test_sixteen_bits_survive_a_change_of_size() -> None:
    deep = np.full((40, 40), 40_001, dtype=np.uint16)
    found = read_picture(encoded(Image.fromarray(deep), "TIFF"), side=20)
    assert found.dtype == torch.uint16
    assert values(found) == {40_001}


def test_colour_of_sixteen_bits_is_read_as_eight_and_known_to_be() -> None:
    rows = b"".join(b"\0" + b"\x12\x34" * 3 * 4 for _ in range(4))
    data = png(4, 4, chunk(b"IDAT", zlib.compress(rows)), depth=16, colour=2)
    assert values(read_picture(data)) == {0x12}
    assert loses_depth(open_picture(data))
    assert not loses_depth(open_picture(encoded(Image.fromarray(COLOURS), "PNG")))


def test_channels_can_be_asked_for() -> None:
    grey = read_picture(encoded(Image.fromarray(GREYS), "PNG"), channels=3)
    assert torch.equal(grey, as_pixels(GREYS).repeat(3, 1, 1))
    colour = read_picture(encoded(Image.fromarray(COLOURS), "PNG"), channels=1)
    assert torch.equal(colour, as_pixels(np.asarray(Image.fromarray(COLOURS).convert("L"))))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_exif_orientation_6_turns_the_picture_clockwise(kind: str) -> None:
    array = np.zeros((16, 32), dtype=np.uint8)
    array[:, :16] = 255  # bright on the left: after a turn clockwise, at the top
    exif = Image.Exif()
    exif[0x0112] = 6
    found = read_picture(encoded(Image.fromarray(array), kind, exif=exif), channels=1)[0].int()
    assert found.shape == (32, 16)
    assert found[:14].min() > 240
    assert found[18:].max() < 15


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_is_undone(orientation: int) -> None:
    """Store a picture turned as the EXIF standard defines each value; it comes back upright."""
    stored = {
        1: GREYS,
        2: GREYS[:, ::-1],
        3: GREYS[::-1, ::-1],
        4: GREYS[::-1],
        5: GREYS.T,
        6: np.rot90(GREYS),
        7: GREYS[::-1, ::-1].T,
        8: np.rot90(GREYS, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(np.ascontiguousarray(stored)), "PNG", exif=exif)
    assert torch.equal(read_picture(data), as_pixels(GREYS))


def test_damaged_exif_data_is_no_reason_to_refuse() -> None:
    data = encoded(Image.fromarray(GREYS), "PNG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert torch.equal(read_picture(data), as_pixels(GREYS))


def test_the_longer_side_is_fitted_and_the_rest_is_black() -> None:
    white = Image.new("L", (40, 20), 255)
    found = read_picture(encoded(white, "PNG"), side=20)[0]
    assert found.shape == (20, 20)
    assert found.any(dim=1).nonzero()[:, 0].tolist() == list(range(5, 15))
    assert values(found[5:15]) == {255}


def test_small_pictures_are_enlarged() -> None:
    assert read_picture(encoded(Image.new("L", (4, 4), 255), "PNG"), side=20).min() == 255


def test_one_pixel_too_few_is_padded_not_enlarged() -> None:
    array = np.random.default_rng(0).integers(0, 256, (27, 27), dtype=np.uint8)
    found = read_picture(encoded(Image.fromarray(array), "PNG"), side=28)
    assert torch.equal(found[0, :27, :27], torch.from_numpy(array))
    assert not found[0, 27].any()


def test_large_jpegs_are_decoded_smaller_and_look_the_same() -> None:
    image = Image.radial_gradient("L").resize((1024, 1024))
    fast = read_picture(encoded(image, "JPEG", quality=95), side=32)
    whole = read_picture(encoded(image, "PNG"), side=32)
    assert (fast.int() - whole.int()).abs().max() < 6


def test_extreme_shapes_keep_two_pixels() -> None:
    assert read_picture(encoded(Image.new("L", (500, 1), 255), "PNG"), side=16).sum() == 32 * 255


def test_a_file_is_read_like_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.PNG"
    path.write_bytes(encoded(Image.fromarray(COLOURS), "PNG"))
    assert torch.equal(read_picture(path), as_pixels(COLOURS))


def refused(data: bytes) -> str:
    with pytest.raises(DataError) as caught:
        read_picture(data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (png(8, 8, chunk(b"IDAT", zlib.compress(bytes(20)))), "picture: is damaged or cut off ("),
        (
            encoded(Image.fromarray(np.ones((4, 4), dtype=np.float32)), "TIFF"),
            "picture: has float pixels without a known range; save it with 8 or 16 bits",
        ),
        (
            encoded(Image.fromarray(np.full((4, 4), 70_000, dtype=np.int32)), "TIFF"),
            "picture: has values outside 0 to 65,535; save it with 8 or 16 bits",
        ),
    ],
)
def test_pixels_that_cannot_be_read_are_said_in_one_line(data: bytes, line: str) -> None:
    message = refused(data)
    assert message.startswith(line)
    assert "\n" not in message


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "TIFF", "WEBP"])
def test_a_picture_cut_anywhere_is_refused(kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    whole = encoded(Image.fromarray(noise), kind)
    for share in (0.02, 0.1, 0.3, 0.5, 0.8, 0.95):
        assert "; " in refused(whole[: int(share * len(whole))])


@pytest.mark.parametrize("side", [-2, 0, 27, 8194])
def test_a_side_that_cannot_be_is_named(side: int) -> None:
    line = f"pictures: expected an even side from 2 to 8,192, got {side}"
    with pytest.raises(ConfigError, match=line):
        read_picture(b"", side=side)


def test_wrong_requests_are_named() -> None:
    with pytest.raises(ConfigError, match="pictures: expected 1 or 3 channels, got 4"):
        read_picture(b"", channels=4)


@pytest.mark.parametrize("size", [(32, 32), (90, 61), (7, 300), (48, 33)])
@pytest.mark.parametrize("mode", ["L", "RGB", "I;16"])
def test_a_turned_picture_becomes_the_picture_turned(
    size: tuple[int, int], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enlarged or shrunk, at once or in strips; the last of 16 bits may differ."""
    shape = (*size, 3) if mode == "RGB" else size
    kind = np.uint16 if mode == "I;16" else np.uint8
    array = np.random.default_rng(0).integers(0, np.iinfo(kind).max, shape, dtype=kind)
    for side in (160, 48):
        found = read_picture(encoded(Image.fromarray(array), "PNG"), side=side)
        for turns in (1, 2, 3):
            turned = Image.fromarray(np.rot90(array, turns).copy())
            again = read_picture(encoded(turned, "PNG"), side=side)
            off = (again.int() - torch.rot90(found.int(), turns, (1, 2))).abs().max()
            assert off <= (mode == "I;16")
    monkeypatch.setattr("invint.data.pictures.STRIP", 100)
    again = read_picture(encoded(Image.fromarray(array), "PNG"), side=48)
    assert torch.equal(again.int(), found.int())
