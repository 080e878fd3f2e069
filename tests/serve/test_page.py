"""The page in Chromium: choose, drop, paste, turn, compare, read what went wrong."""

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch
from playwright.sync_api import Route, expect
from sklearn.datasets import load_digits
from support.browser import Visit, browser_page
from support.serving import CLASSES, base64_of, picture, running
from torch.nn.functional import cross_entropy, interpolate, pad

from invint import create_model
from invint.export import ModelCard, export_model
from invint.serve.answers import pixels
from invint.serve.limits import Limits
from invint.serve.networks import ServedNetwork, open_networks, sample_images

pytestmark = [pytest.mark.slow, pytest.mark.unchecked]  # checks of shapes make training slow
Scheme = Literal["light", "dark"]

GIVE = """
([kind, type, files]) => {
  const data = new DataTransfer();
  for (const [name, content] of files) {
    const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
    data.items.add(new File([bytes], name, { type }));
  }
  const event = kind === "drop"
    ? new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })
    : new ClipboardEvent("paste", { clipboardData: data, bubbles: true });
  document.body.dispatchEvent(event);
}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[ServedNetwork]:
    """An ordinary and an invariant network that have seen upright digits for a few seconds."""
    torch.manual_seed(0)
    digits = load_digits()
    small = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]
    images = pad(interpolate(small, size=(16, 16), mode="bicubic"), (2, 2, 2, 2)).clamp(0, 1)
    labels = torch.tensor(digits.target)
    folder = tmp_path_factory.mktemp("trained")
    paths = []
    for name, head in (("cnn-small", None), ("sfcnn-small", "local-ws")):
        model = create_model(name, in_channels=1, image_size=20, head=head)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
        for _ in range(2):
            for batch in torch.split(torch.randperm(len(labels)), 64):
                optimizer.zero_grad()
                loss = cross_entropy(model(images[batch]), labels[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        paths.append(folder / f"{name}.safetensors")
        export_model(model, paths[-1], ModelCard(CLASSES, (20, 20), 1, name=name, head=head))
    return open_networks(paths)


@pytest.fixture(scope="module")
def address(trained: list[ServedNetwork]) -> Iterator[str]:
    with running(trained, limits=Limits(upload_bytes=100_000)) as url:
        yield url


def give(visit: Visit, kind: str, name: str, content: bytes) -> None:
    """Drop or paste a file on a page."""
    give_all(visit, kind, {name: content} if name else {})


def give_all(visit: Visit, kind: str, files: dict[str, bytes]) -> None:
    """Drop or paste several files at once."""
    named = [(name, base64_of(content)) for name, content in files.items()]
    visit.page.evaluate(GIVE, [kind, "image/png", named])


def choose_sample(visit: Visit, digit: int) -> None:
    visit.page.get_by_role("button", name=f"The digit {digit}").click()
    expect(visit.page.locator("#tried button").first).to_have_attribute(
        "title", f"digit-{digit}.png"
    )


def answer(visit: Visit, number: int) -> str:
    return visit.page.locator(".network .answer").nth(number).inner_text()


def test_a_sample_is_answered_and_the_invariant_network_keeps_its_answer_at_quarter_turns(
    address: str,
) -> None:
    with browser_page(address) as visit:
        page = visit.page
        expect(page.locator(".network h2")).to_have_text(["cnn-small", "sfcnn-small, local-ws"])
        choose_sample(visit, 4)
        upright = [answer(visit, number) for number in (0, 1)]
        assert all(each.startswith("4") for each in upright)
        page.get_by_role("button", name="Quarter turn counter-clockwise").click()
        expect(page.locator("#angle")).to_have_text("90°")
        assert answer(visit, 1) == upright[1]
        assert "over" in page.locator(".summary").nth(0).inner_text()


def test_the_keyboard_turns(address: str) -> None:
    with browser_page(address) as visit:
        page = visit.page
        choose_sample(visit, 3)
        dial = page.get_by_role("slider", name="Angle of the image")
        dial.focus()
        step = 360 / page.evaluate("state.turns.angles.length")
        for key, expected in (
            ("ArrowRight", step),
            ("ArrowUp", 2 * step),
            ("PageUp", 2 * step + 15),
            ("ArrowLeft", step + 15),
            ("End", 360 - step),
            ("Home", 0),
            ("ArrowDown", 360 - step),
        ):
            page.keyboard.press(key)
            assert dial.get_attribute("aria-valuenow") == str(round(expected))
        assert f"rotate({step - 360:g}deg)" in (page.locator("#image").get_attribute("style") or "")
        degrees = round(360 - step)
        expect(dial).to_have_attribute("aria-valuetext", f"{degrees} degrees counter-clockwise")
        expect(page.locator("#status")).to_contain_text(f"{degrees} degrees. cnn-small: ")


def test_dragging_turns_the_image_and_one_request_serves_all_angles(address: str) -> None:
    with browser_page(address) as visit:
        page = visit.page
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        choose_sample(visit, 7)
        before = len(asked)
        box = page.locator("#dial").bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x + 60, y)
        page.mouse.down()
        seen = set()
        for left, up in ((50, 30), (30, 50), (0, 60)):
            page.mouse.move(x + left, y - up)
            seen.add(page.locator("#angle").inner_text())
        page.mouse.up()
        expect(page.locator("#angle")).to_have_text("90°")
        assert len(seen) == 3
        page.mouse.move(x - box["width"] * 0.46, y)  # the ring: the handle comes to the pointer
        page.mouse.down()
        page.mouse.up()
        expect(page.locator("#angle")).to_have_text("90°")
        page.mouse.click(x, y + box["height"] * 0.46)
        expect(page.locator("#angle")).to_have_text("180°")
        assert len(asked) == before


def test_a_chart_turns_too(address: str) -> None:
    with browser_page(address) as visit:
        choose_sample(visit, 2)
        box = visit.page.locator(".chart").nth(1).bounding_box()
        assert box is not None
        middle = (40 + (400 - 48) / 2) / 400
        visit.page.mouse.click(box["x"] + middle * box["width"], box["y"] + box["height"] / 2)
        expect(visit.page.locator("#angle")).to_have_text("180°")


def test_turning_slowly_goes_on_until_stopped(address: str) -> None:
    with browser_page(address) as visit:
        choose_sample(visit, 5)
        button = visit.page.locator("#play")
        button.click()
        expect(button).to_have_text("Stop")
        expect(visit.page.locator("#angle")).to_have_text(re.compile(r"[1-9]\d+°"))
        button.click()
        angle = visit.page.evaluate("state.angle")
        visit.page.wait_for_timeout(150)
        assert visit.page.evaluate("state.angle") == angle


def test_an_image_can_be_dropped_and_pasted(address: str) -> None:
    with browser_page(address) as visit:
        for kind in ("drop", "paste"):
            give(visit, kind, f"{kind}.png", picture(64))
            tried = visit.page.locator("#tried button").first
            expect(tried).to_have_attribute("title", f"{kind}.png")
        expect(visit.page.locator("#image")).to_be_visible()
        expect(visit.page.locator("#message")).to_be_hidden()


def test_each_of_several_images_has_a_row_with_every_answer(
    address: str, trained: list[ServedNetwork]
) -> None:
    samples = sample_images()
    files = {f"digit-{digit}.png": samples[f"digit-{digit}"] for digit in (3, 7, 4)}
    with browser_page(address) as visit:
        page = visit.page
        give_all(visit, "drop", files | {"notes.png": b"hello", "large.png": bytes(200_000)})
        rows = page.locator("#several tbody tr")
        expect(rows).to_have_count(5)
        expect(page.locator("#several-title")).to_have_text("5 images")
        heads = page.locator("#several thead th")
        expect(heads).to_have_text(["image", *(network.title for network in trained)])
        expect(page.locator("#status")).to_have_text("5 images answered.")
        for row, content in zip(rows.all(), files.values(), strict=False):
            for cell, network in zip(row.locator("td").all(), trained, strict=True):
                image = pixels(content, network, Limits())
                sure, label = network.probabilities(image, deadline=math.inf)[0].max(dim=0)
                expect(cell.locator("strong")).to_have_text(network.card.class_names[int(label)])
                shown = cell.locator("small").inner_text().removesuffix("\u00a0%")
                assert abs(float(shown) - 100 * sure) <= 0.51
        expect(rows.nth(3).locator("td")).to_contain_text("The image holds no picture; expected")
        expect(rows.nth(4).locator("td")).to_contain_text("This file has 0.2 MiB; at most")
        rows.nth(1).click()  # the row goes to the dial
        expect(page.locator("#tried button")).to_have_attribute("title", "digit-7.png")
        expect(rows.nth(1)).to_have_attribute("aria-current", "true")
        visit.errors[:] = [each for each in visit.errors if "status of 415" not in each]
        visit.errors[:] = [each for each in visit.errors if "failed: blob:" not in each]


def test_a_long_list_is_cut_and_says_so(address: str) -> None:
    with browser_page(address) as visit:
        visit.page.route("**/api/predict", lambda route: route.abort())
        content = base64_of(picture(4))
        visit.page.evaluate(
            GIVE, ["drop", "image/png", [(f"{k}.png", content) for k in range(203)]]
        )
        expect(visit.page.get_by_role("alert")).to_contain_text("the other 3 are left out")
        expect(visit.page.locator("#several tbody tr")).to_have_count(200)
        expect(visit.page.locator("#status")).to_have_text("200 images answered.")
        visit.errors.clear()


FAKE_CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")


def test_a_frame_of_the_camera_is_answered(address: str) -> None:
    with browser_page(address, arguments=FAKE_CAMERA) as visit:
        page = visit.page
        camera = page.locator("#camera")
        camera.click()
        expect(camera).to_have_text("Close the camera")
        for number in (1, 2):
            page.get_by_role("button", name="Take a picture").click()
            tried = page.locator("#tried button").first
            expect(tried).to_have_attribute("title", f"camera-{number}.jpg")
        image = page.locator("#image")
        expect(image).to_be_visible()
        sides = image.evaluate("each => [each.naturalWidth, each.naturalHeight]")
        assert sides[0] == sides[1] > 100
        tracks = page.evaluate_handle("state.stream.getTracks()")
        camera.click()
        expect(page.locator("#booth")).to_be_hidden()
        assert tracks.evaluate("each => each.map((track) => track.readyState)") == ["ended"]


def test_the_page_says_why_there_is_no_camera(address: str) -> None:
    with browser_page(address) as visit:
        message = visit.page.get_by_role("alert")
        for name, text in (
            ("NotFoundError", "There is no camera."),
            ("NotAllowedError", "The browser does not allow the camera here"),
            ("AbortError", "The camera cannot be used: gone."),
        ):
            visit.page.evaluate(
                "name => { navigator.mediaDevices.getUserMedia ="
                " async () => { throw new DOMException('gone', name); }; }",
                name,
            )
            visit.page.locator("#camera").click()
            expect(message).to_contain_text(text)
        visit.page.evaluate(
            "() => Object.defineProperty(navigator, 'mediaDevices', { value: undefined })"
        )
        visit.page.locator("#camera").click()
        expect(message).to_contain_text("only to pages on this machine (localhost) or over")
        expect(visit.page.locator("#booth")).to_be_hidden()


def test_a_file_can_be_chosen_and_a_format_the_browser_cannot_show_is_shown_anyway(
    address: str, tmp_path: Path
) -> None:
    file = tmp_path / "cell.tif"
    file.write_bytes(picture(64, format="TIFF"))
    with browser_page(address) as visit:
        visit.page.locator("#file").set_input_files(file)
        expect(visit.page.locator("#tried button")).to_have_attribute("title", "cell.tif")
        image = visit.page.locator("#image")
        expect(image).to_have_attribute("src", re.compile("^data:image/png"))
        expect(image).to_have_js_property("naturalWidth", 20)


def test_images_tried_come_back_without_asking(address: str) -> None:
    with browser_page(address) as visit:
        for digit in (1, 2, 1):
            choose_sample(visit, digit)
        asked: list[str] = []
        visit.page.on("request", lambda request: asked.append(request.url))
        tried = visit.page.locator("#tried button")
        expect(tried).to_have_count(2)
        tried.nth(1).click()
        expect(tried.first).to_have_attribute("title", "digit-2.png")
        assert answer(visit, 0).startswith("2")
        assert [each for each in asked if "/api/" in each] == []


def test_an_image_dropped_before_the_networks_are_known_is_answered(address: str) -> None:
    held: list[Route] = []
    with browser_page("about:blank") as visit:
        visit.page.route("**/api/model", lambda route: held.append(route))
        with visit.page.expect_request("**/api/model"):
            visit.page.goto(address, wait_until="domcontentloaded")
        give(visit, "drop", "early.png", picture(20))
        assert visit.page.evaluate("state.model") is None
        held[0].continue_()
        expect(visit.page.locator("#tried button")).to_have_attribute("title", "early.png")


WRONG = [
    ("drop", "notes.png", b"hello", "The image holds no picture; expected PNG"),
    ("drop", "cut.png", picture(64)[:60], "is cut off"),
    ("drop", "large.png", bytes(200_000), "This file has 0.2 MiB; at most"),
    ("drop", "", b"", "There is no image in what was dropped"),
    ("paste", "", b"", "There is no image in what was pasted."),
]


def test_the_page_says_what_is_wrong(address: str) -> None:
    with browser_page(address) as visit:
        for digit, (kind, name, content, message) in enumerate(WRONG):
            give(visit, kind, name, content)
            expect(visit.page.get_by_role("alert")).to_contain_text(message)
            choose_sample(visit, digit)
            expect(visit.page.get_by_role("alert")).to_be_hidden()
        visit.errors[:] = [each for each in visit.errors if "status of 415" not in each]


def test_the_page_says_that_the_server_has_gone(trained: list[ServedNetwork]) -> None:
    with running(trained) as url, browser_page(url) as visit:
        choose_sample(visit, 1)
        visit.page.route("**/api/turns", lambda route: route.abort())
        visit.page.get_by_role("button", name="The digit 0").click()
        expect(visit.page.get_by_role("alert")).to_contain_text("The server cannot be reached")
        visit.errors.clear()


def test_a_busy_server_is_asked_again(address: str) -> None:
    with browser_page(address) as visit:
        left = [503, 503]

        def handle(route: object) -> None:
            if left:
                headers = {"retry-after": "0"}
                route.fulfill(status=left.pop(), headers=headers, json={"error": "busy"})  # type: ignore[attr-defined]
            else:
                route.continue_()  # type: ignore[attr-defined]

        visit.page.route("**/api/turns", handle)
        choose_sample(visit, 9)
        assert left == []
        visit.errors[:] = [each for each in visit.errors if "status of 503" not in each]


def test_a_single_network_has_one_ring(trained: list[ServedNetwork]) -> None:
    with running(trained[1:]) as url, browser_page(url) as visit:
        expect(visit.page.locator("#rings path")).to_have_count(1)
        choose_sample(visit, 3)
        expect(visit.page.locator(".network")).to_have_count(1)


def test_a_browser_gets_in_with_the_token(trained: list[ServedNetwork]) -> None:
    token = "a-token-of-24-characters"
    with running(trained, token=token) as url:
        with browser_page(url) as visit:
            assert "token" not in visit.page.url
            choose_sample(visit, 0)
        with browser_page(url.partition("?")[0], password=token) as visit:
            choose_sample(visit, 0)


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (320, "dark")]
)
def test_nothing_is_wider_than_the_window(
    address: str, width: int, scheme: Scheme, tmp_path: Path
) -> None:
    folder = Path(os.environ.get("INVINT_SCREENSHOTS", tmp_path))
    camera = FAKE_CAMERA
    with browser_page(address, width=width, scheme=scheme, arguments=camera) as visit:
        content = sample_images()["digit-5"]
        give_all(visit, "drop", {f"{'a long name ' * k}{k}.png": content for k in range(6)})
        expect(visit.page.locator("#status")).to_have_text("6 images answered.")
        choose_sample(visit, 3)
        visit.page.locator("#camera").click()
        expect(visit.page.locator("#booth")).to_be_visible()
        visit.page.get_by_role("slider").focus()
        for _ in range(3):
            visit.page.keyboard.press("PageUp")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        for element in visit.page.locator("button, .button, h1, h2, .answer").all():
            box = element.bounding_box()
            assert box is None or box["x"] + box["width"] <= width
        visit.page.screenshot(path=folder / f"serve-{width}-{scheme}.png", full_page=True)
        visit.page.goto(address + "docs")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
