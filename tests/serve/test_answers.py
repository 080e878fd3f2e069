import base64
import io
import math
from pathlib import Path

import pytest
import torch
from PIL import Image
from starlette.exceptions import HTTPException
from support.serving import base64_of, bomb, picture, write_network

from invint.ops.grids import rotate
from invint.serve import answers
from invint.serve.limits import Limits
from invint.serve.networks import ServedNetwork, open_networks

FOREVER = float("inf")
LIMITS = Limits()


def test_a_prediction_is_the_softmax_of_the_logits(networks: list[ServedNetwork]) -> None:
    answer = answers.predict(picture(), networks, limits=LIMITS, deadline=FOREVER)
    image = torch.zeros(1, 1, 20, 20)
    image[..., 2:10, 5:10] = 1
    for network, prediction in zip(networks, answer.predictions, strict=True):
        expected = network.run(image).softmax(dim=1)[0]
        torch.testing.assert_close(
            torch.tensor(prediction.probabilities), expected, atol=1e-5, rtol=0
        )
        assert prediction.label == str(int(expected.argmax()))
        assert prediction.probability == max(prediction.probabilities)


def test_an_image_may_come_as_json(networks: list[ServedNetwork]) -> None:
    plain = answers.predict(picture(), networks, limits=LIMITS, deadline=FOREVER)
    for text in (base64_of(picture()), "data:image/png;base64," + base64_of(picture())):
        body = b' {"image": "%s"}' % text.encode()
        assert answers.predict(body, networks, limits=LIMITS, deadline=FOREVER) == plain


def test_a_batch_gives_what_its_images_give_alone(networks: list[ServedNetwork]) -> None:
    files = [picture(side) for side in (20, 33, 64)]
    body = b'{"images": [%s]}' % ", ".join(f'"{base64_of(each)}"' for each in files).encode()
    batch = answers.predict_batch(body, networks, limits=LIMITS, deadline=FOREVER)
    for file, result in zip(files, batch.results, strict=True):
        alone = answers.predict(file, networks, limits=LIMITS, deadline=FOREVER)
        for one, other in zip(result.predictions, alone.predictions, strict=True):
            assert one.label == other.label
            assert one.probabilities == pytest.approx(other.probabilities, abs=2e-5)


def test_rotation_is_that_of_rotate_about_the_background() -> None:
    image = torch.rand(1, 3, 12, 12)
    image[..., 0, :] = image[..., -1, :] = image[..., 0] = image[..., -1] = 0.25
    views = answers.rotated(image, 8)
    assert len(views) == 8
    for i in (1, 3, 5):
        expected = rotate(image - 0.25, i * math.pi / 4, mode="bicubic") + 0.25
        torch.testing.assert_close(views[i], expected[0].clamp(0, 1))
    for i in (0, 2, 4, 6):
        assert torch.equal(views[i], torch.rot90(image[0] - 0.25, i // 2, (-2, -1)) + 0.25)


def test_a_plain_image_stays_plain_at_every_angle() -> None:
    image = torch.full((1, 3, 16, 16), 0.7)
    torch.testing.assert_close(answers.rotated(image, 7), image.expand(7, -1, -1, -1))


def test_the_invariant_network_answers_alike_at_quarter_turns(
    networks: list[ServedNetwork],
) -> None:
    turns = answers.turns(picture(), networks, count=4, limits=LIMITS, deadline=FOREVER)
    ordinary, invariant = (torch.tensor(each.probabilities) for each in turns.curves)
    assert turns.angles == [0, 90, 180, 270]
    torch.testing.assert_close(invariant, invariant[:1].expand(4, -1), atol=2e-5, rtol=0)
    assert (ordinary - ordinary[:1]).abs().max() > 1e-4


def test_a_curve_starts_with_the_upright_prediction(networks: list[ServedNetwork]) -> None:
    turns = answers.turns(picture(), networks, count=5, limits=LIMITS, deadline=FOREVER)
    upright = answers.predict(picture(), networks, limits=LIMITS, deadline=FOREVER)
    for curve, prediction in zip(turns.curves, upright.predictions, strict=True):
        assert curve.classes == list(range(10))
        assert curve.probabilities[0] == pytest.approx(prediction.probabilities, abs=2e-5)
        assert str(curve.labels[0]) == prediction.label
        for row, label in zip(curve.probabilities, curve.labels, strict=True):
            assert row[label] == max(row)


def test_the_picture_is_what_the_network_sees(networks: list[ServedNetwork]) -> None:
    turns = answers.turns(picture(40), networks, count=1, limits=LIMITS, deadline=FOREVER)
    kind, _, content = turns.picture.partition(",")
    with Image.open(io.BytesIO(base64.b64decode(content))) as shown:
        assert (kind, shown.size, shown.mode) == ("data:image/png;base64", (20, 20), "L")
    assert turns.background == "#000000"


def test_networks_of_other_sizes_and_channels_see_the_image_as_they_need_it(
    files: list[Path], tmp_path: Path
) -> None:
    colour = write_network(tmp_path / "b.safetensors", "cnn-small", in_channels=3)
    wide = write_network(tmp_path / "c.safetensors", "cnn-small", image_size=(28, 28))
    networks = open_networks([colour, wide, files[0]])
    body = picture(40, "RGB")
    turns = answers.turns(body, networks, count=4, limits=LIMITS, deadline=FOREVER)
    for network, curve in zip(networks, turns.curves, strict=True):
        alone = answers.turns(body, [network], count=4, limits=LIMITS, deadline=FOREVER)
        assert alone.curves == [curve]
    with Image.open(io.BytesIO(base64.b64decode(turns.picture.partition(",")[2]))) as shown:
        assert (shown.mode, shown.getpixel((7, 6))) == ("RGB", (255, 120, 0))


def test_only_the_likeliest_of_many_classes_are_sent(networks: list[ServedNetwork]) -> None:
    logits = torch.arange(100).float().roll(7)
    many = ServedNetwork("many", networks[0].card, lambda images: logits.expand(len(images), -1))
    curve = answers.turns(picture(), [many], count=3, limits=LIMITS, deadline=FOREVER).curves[0]
    assert curve.classes == sorted(logits.argsort(descending=True)[:32].tolist())
    assert len(curve.probabilities[0]) == 32
    assert curve.labels == [6] * 3


@pytest.mark.parametrize("format", ["PNG", "JPEG", "BMP", "TIFF", "WEBP"])
def test_every_format_is_read(networks: list[ServedNetwork], format: str) -> None:
    body = picture(64, "RGB", format)
    answer = answers.predict(body, networks, limits=LIMITS, deadline=FOREVER)
    assert sum(answer.predictions[0].probabilities) == pytest.approx(1, abs=1e-4)


def cut_in_the_middle() -> bytes:
    noise = torch.randint(0, 256, (64, 64), generator=torch.Generator().manual_seed(0))
    file = io.BytesIO()
    Image.fromarray(noise.byte().numpy()).save(file, format="PNG")
    data = file.getvalue()
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 422, "the body is empty; send the bytes of an image"),
        (b"hello", 415, "the image holds no picture; expected PNG, JPEG"),
        (b"%PDF-1.7 ...", 415, "the image holds PDF"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "the image holds SVG or XML"),
        (b"%!PS-Adobe-3.0 EPSF-3.0", 415, "the image holds no picture"),
        (cut_in_the_middle(), 415, "is cut off"),
        (cut_in_the_middle() + b"IEND", 422, "picture: is damaged or cut off"),
        (picture(format="GIF"), 415, "the image holds GIF"),
        (picture(6000), 413, "at most 25,000,000 pixels, this one 6000 x 6000"),
        (bomb(8_000), 413, "at most 25,000,000 pixels, this one 8000 x 8000"),
        (bomb(30_000), 413, "the image has 30,000 x 30,000 pixels"),
        (b'{"image": 3}', 422, "the body is not as documented: image: Input should be a valid str"),
        (b'{"image": "%%%"}', 422, "image: not base64"),
        (b'{"image": "\xc3\xa9"}', 422, "image: not base64"),
        (b'{"picture": "a"}', 422, "the body is not as documented: image: Field required"),
        (b"{" * 100_000, 422, "the body is not as documented: Invalid JSON"),
    ],
)
def test_says_what_is_wrong_with_an_image(
    networks: list[ServedNetwork], body: bytes, status: int, message: str
) -> None:
    with pytest.raises(HTTPException) as caught:
        answers.turns(body, networks, count=2, limits=LIMITS, deadline=FOREVER)
    assert caught.value.status_code == status
    assert message in caught.value.detail


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 422, "the body is not as documented: Invalid JSON"),
        (b"[]", 422, "the body is not as documented: "),
        (b'{"images": []}', 422, "a batch has 1 to 2 images, got 0"),
        (b'{"images": ["", "", ""]}', 413, "a batch has 1 to 2 images, got 3"),
        (b'{"images": ["a"]}', 422, "image 0: not base64"),
        (
            b'{"images": ["%s", "aGVsbG8="]}' % base64_of(picture()).encode(),
            415,
            "image 1: the image holds no picture",
        ),
    ],
)
def test_says_what_is_wrong_with_a_batch(
    networks: list[ServedNetwork], body: bytes, status: int, message: str
) -> None:
    with pytest.raises(HTTPException) as caught:
        answers.predict_batch(body, networks, limits=Limits(batch=2), deadline=FOREVER)
    assert caught.value.status_code == status
    assert message in caught.value.detail
