import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import torch
from fastapi import FastAPI
from support.serving import ask, base64_of, bomb, picture
from torch import Tensor

from invint.errors import ConfigError
from invint.serve.app import FILES, create_app
from invint.serve.limits import Limits
from invint.serve.networks import ServedNetwork

TOKEN = "a-token-of-24-characters"
POSTS = ["/api/predict", "/api/predict-batch", "/api/turns"]


@pytest.fixture(scope="module")
def app(networks: list[ServedNetwork]) -> FastAPI:
    return create_app(networks, angles=8)


@pytest.fixture(scope="module")
def locked(networks: list[ServedNetwork]) -> FastAPI:
    return create_app(networks, angles=8, token=TOKEN)


def error_of(answer: httpx.Response) -> str:
    content = answer.json()
    assert list(content) == ["error"]
    assert "Traceback" not in answer.text
    return str(content["error"])


def test_the_page_and_its_files_are_there(app: FastAPI) -> None:
    for path, (_, kind) in FILES.items():
        answer = ask(app, "GET", path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
    for digit in range(10):
        answer = ask(app, "GET", f"/samples/digit-{digit}.png")
        assert answer.content.startswith(b"\x89PNG")


def test_no_file_of_the_page_names_another_machine(app: FastAPI) -> None:
    for path in FILES:
        text = ask(app, "GET", path).text
        for word in ("https://", "//cdn", "@import", "url("):
            assert word not in text
        allowed = ("http://www.w3.org/", "http://127.0.0.1:8765")
        assert text.count("http://") == sum(text.count(each) for each in allowed)


@pytest.mark.parametrize(
    "path",
    [
        "/page/index.html",
        "/../app.py",
        "/%2e%2e/app.py",
        "/samples/..%2f..%2fapp.py",
        "/samples/digit-3.png/../../app.py",
        "//etc/passwd",
        "/index.html%00",
    ],
)
def test_no_path_of_a_request_reaches_a_file(app: FastAPI, path: str) -> None:
    answer = ask(app, "GET", path)
    assert answer.status_code == 404
    assert error_of(answer) == "Not Found"


def test_the_model_is_described(app: FastAPI) -> None:
    model = ask(app, "GET", "/api/model").json()
    assert [each["title"] for each in model["networks"]] == ["cnn-small", "sfcnn-small, local-ws"]
    assert [each["group"] for each in model["networks"]] == [None, "C8"]
    assert model["classes"] == list("0123456789")
    assert model["angles"] == 8
    assert model["limits"]["upload_bytes"] == 8 * 2**20


def test_the_interface_answers_as_documented(app: FastAPI) -> None:
    alone = ask(app, "POST", "/api/predict", content=picture()).json()
    body = {"images": [base64_of(picture())] * 2}
    batch = ask(app, "POST", "/api/predict-batch", json=body).json()
    turns = ask(app, "POST", "/api/turns", json={"image": base64_of(picture())}).json()
    few = ask(app, "POST", "/api/turns?angles=3", content=picture()).json()
    assert [each["predictions"][0]["label"] for each in batch["results"]] == [
        alone["predictions"][0]["label"]
    ] * 2
    assert turns["angles"] == [0, 45, 90, 135, 180, 225, 270, 315]
    assert few["angles"] == [0, 120, 240]
    assert len(few["curves"][1]["probabilities"]) == 3


def test_the_description_is_machine_readable_and_nothing_else_is_fetched(app: FastAPI) -> None:
    paths = ask(app, "GET", "/openapi.json").json()["paths"]
    assert set(paths) == {"/health", "/api/model", *POSTS}
    body = paths["/api/predict"]["post"]["requestBody"]["content"]
    assert set(body) == {"image/*", "application/json"}
    assert ask(app, "GET", "/redoc").status_code == 404
    assert "cdn" not in ask(app, "GET", "/docs").text


@pytest.mark.parametrize("path", ["/", "/api/model", "/nothing", "/health"])
def test_every_answer_has_the_headers_that_protect_it(app: FastAPI, path: str) -> None:
    headers = ask(app, "GET", path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "content", "status", "message"),
    [
        ("/api/predict", b"", 422, "the body is empty"),
        ("/api/predict", b"hello", 415, "the image holds no picture"),
        ("/api/turns", bomb(8_000), 413, "at most 25,000,000 pixels"),
        ("/api/turns", bomb(9_000), 413, "the image has 9,000 x 9,000 pixels, more than"),
        ("/api/predict", bytes(9 * 2**20), 413, "a request has at most 8 MiB"),
        ("/api/turns?angles=181", picture(), 422, "angles: Input should be less than or equal"),
        ("/api/turns?angles=0", picture(), 422, "angles: Input should be greater than or"),
        ("/api/turns?angles=x", picture(), 422, "angles: Input should be a valid integer"),
        ("/api/predict-batch", b"{}", 422, "images: Field required"),
    ],
)
def test_a_bad_upload_gets_one_sentence(
    app: FastAPI, path: str, content: bytes, status: int, message: str
) -> None:
    answer = ask(app, "POST", path, content=content)
    assert answer.status_code == status
    assert message in error_of(answer)


def test_what_was_sent_is_not_sent_back(app: FastAPI) -> None:
    for path in POSTS:
        answer = ask(app, "POST", path, json={"images": "<script>", "image": 7, "secret": 1})
        assert "<script>" not in error_of(answer)


def test_a_wrong_method_is_refused(app: FastAPI) -> None:
    assert ask(app, "GET", "/api/predict").status_code == 405
    assert ask(app, "DELETE", "/api/model").status_code == 405


async def drops(total: int) -> AsyncIterator[bytes]:
    for _ in range(total):
        yield bytes(2**20)


def test_a_body_is_counted_where_nothing_was_announced(app: FastAPI) -> None:
    answer = ask(app, "POST", "/api/predict", content=drops(12))
    assert "content-length" not in answer.request.headers
    assert answer.status_code == 413


def test_an_enormous_body_is_not_read_to_its_end(app: FastAPI) -> None:
    given = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal given
        while given < 1000:
            given += 1
            yield bytes(2**20)

    assert ask(app, "POST", "/api/predict", content=endless()).status_code == 413
    assert given < 60


def test_a_body_that_does_not_come_is_not_waited_for(networks: list[ServedNetwork]) -> None:
    app = create_app(networks, angles=4, limits=Limits(upload_seconds=0.2))
    answer = ask(app, "POST", "/api/predict", content=unfinished())
    assert answer.status_code == 408
    assert error_of(answer) == "the body took longer than 0.2 s"
    assert answer.headers["connection"] == "close"


async def unfinished(start: bytes = b"a") -> AsyncIterator[bytes]:
    yield start
    await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def unfinished_uploads(
    app: FastAPI, count: int, client: str = "127.0.0.1"
) -> AsyncIterator[list[asyncio.Task[httpx.Response]]]:
    """Begin uploads one after the other; none of them ever ends."""
    transport = httpx.ASGITransport(app=app, client=(client, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        tasks = []
        for _ in range(count):
            tasks.append(asyncio.create_task(http.post("/api/predict", content=unfinished())))
            await asyncio.sleep(0.01)
        yield tasks
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def predicted(app: FastAPI, client: str = "127.0.0.1") -> int:
    transport = httpx.ASGITransport(app=app, client=(client, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        return (await http.post("/api/predict", content=picture())).status_code


def test_unfinished_uploads_keep_no_place_from_a_whole_one(networks: list[ServedNetwork]) -> None:
    app = create_app(networks, angles=4, limits=Limits(workers=1, waiting=0))

    async def scene() -> int:
        async with unfinished_uploads(app, 20) as tasks:
            status = await predicted(app)
            assert not any(task.done() for task in tasks)
            return status

    assert asyncio.run(scene()) == 200


def test_a_client_with_too_many_unfinished_uploads_loses_its_oldest(
    networks: list[ServedNetwork],
) -> None:
    app = create_app(networks, angles=4, limits=Limits(uploads=2))

    async def scene() -> None:
        async with (
            unfinished_uploads(app, 1, client="10.0.0.2") as others,
            unfinished_uploads(app, 5) as tasks,
        ):
            given_up = await asyncio.gather(*tasks[:3])
            assert {answer.status_code for answer in given_up} == {503}
            assert given_up[0].headers["retry-after"] == "1"
            assert await predicted(app) == 200
            assert (await tasks[3]).status_code == 503
            assert await predicted(app, client="10.0.0.2") == 200
            assert not tasks[4].done()
            assert not others[0].done()

    asyncio.run(scene())


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil", "[::1"]
)
def test_a_name_that_is_not_its_own_is_refused(app: FastAPI, host: str) -> None:
    answer = ask(app, "GET", "/", headers={"host": host})
    assert answer.status_code == 421
    assert "does not go by this name" in error_of(answer)


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:1", "[::1]:8765", "10.0.0.3"])
def test_its_own_names_and_addresses_are_accepted(app: FastAPI, host: str) -> None:
    assert ask(app, "GET", "/", headers={"host": host}).status_code == 200


def test_further_names_can_be_given(networks: list[ServedNetwork]) -> None:
    app = create_app(networks, angles=4, hosts=frozenset({"lab.example"}))
    assert ask(app, "GET", "/", headers={"host": "LAB.example:80"}).status_code == 200


def test_the_page_of_another_site_cannot_ask(app: FastAPI) -> None:
    for origin in (
        "https://evil.example",
        "null",
        "http://127.0.0.1:9999",
        "http://[bad",
        "",
        "://",
    ):
        answer = ask(app, "POST", "/api/predict", content=picture(), headers={"origin": origin})
        assert answer.status_code == 403
        assert error_of(answer) == "pages of other sites may not ask this server"
    own = {"origin": "http://127.0.0.1:8765"}
    assert ask(app, "POST", "/api/predict", content=picture(), headers=own).status_code == 200


@pytest.mark.parametrize("path", ["/api/model", "/page.js", "/openapi.json", "/docs", "/nothing"])
def test_nothing_is_shown_without_the_token(locked: FastAPI, path: str) -> None:
    answer = ask(locked, "GET", path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Basic realm="invint"'
    assert "this server wants its token" in error_of(answer)


def basic(user: str, password: str) -> str:
    return "Basic " + base64_of(f"{user}:{password}".encode())


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer "},
        {"authorization": TOKEN},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Basic %%%"},
        {"authorization": "Basic é".encode()},
        {"authorization": basic(TOKEN, "")},
        {"authorization": basic("reader", "wrong")},
        {"authorization": "Bearer é".encode()},
        {"cookie": f"invint-8765={TOKEN}"},
        {"cookie": "invint-8765="},
        {"cookie": '"; =;;'},
    ],
)
def test_a_wrong_token_is_refused(locked: FastAPI, headers: dict[str, Any]) -> None:
    for path in POSTS:
        answer = ask(locked, "POST", path, content=picture(), headers=headers)
        assert answer.status_code == 401


@pytest.mark.parametrize("value", [f"Bearer {TOKEN}", basic("", TOKEN), basic("reader", TOKEN)])
def test_the_right_token_opens(locked: FastAPI, value: str) -> None:
    headers = {"authorization": value}
    answer = ask(locked, "POST", "/api/predict", content=picture(), headers=headers)
    assert answer.status_code == 200


def test_the_token_in_the_address_becomes_a_cookie_that_scripts_cannot_read(
    locked: FastAPI,
) -> None:
    answer = ask(locked, "GET", f"/?token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert TOKEN not in cookie
    headers = {"cookie": cookie.partition(";")[0]}
    assert ask(locked, "GET", "/", headers=headers).status_code == 200
    assert ask(locked, "GET", "/api/model", headers=headers).status_code == 200
    again = ask(locked, "GET", f"/?token={TOKEN}", headers=headers)
    assert again.status_code == 303  # the token does not stay in the address


def test_a_browser_without_the_token_is_asked_for_it(locked: FastAPI) -> None:
    for path in ("/", "/?token=wrong", "/?token="):
        answer = ask(locked, "GET", path)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic ")  # opens a dialog
        assert "open the address that `invint serve` printed" in error_of(answer)
    assert ask(locked, "GET", "/health").json() == {"status": "ok"}


def test_the_token_in_an_address_opens_nothing_but_the_page(locked: FastAPI) -> None:
    assert ask(locked, "GET", f"/api/model?token={TOKEN}").status_code == 401


@pytest.fixture
def held(networks: list[ServedNetwork]) -> Iterator[tuple[ServedNetwork, threading.Event]]:
    """A network that answers when it is told to."""
    release = threading.Event()

    def run(images: Tensor) -> Tensor:
        release.wait(20)
        return torch.zeros(len(images), 10)

    yield ServedNetwork("held", networks[0].card, run), release
    release.set()


def test_the_queue_is_bounded_and_the_rest_is_told_to_come_back(
    held: tuple[ServedNetwork, threading.Event],
) -> None:
    network, release = held
    app = create_app([network], angles=4, limits=Limits(workers=1, waiting=2))

    async def crowd() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            asking = [
                asyncio.create_task(client.post("/api/predict", content=picture()))
                for _ in range(10)
            ]
            while sum(task.done() for task in asking) < 7:
                await asyncio.sleep(0.01)
            assert (await client.get("/health")).status_code == 200
            release.set()
            return list(await asyncio.gather(*asking))

    answers = asyncio.run(crowd())
    statuses = [answer.status_code for answer in answers]
    assert (statuses.count(200), statuses.count(503)) == (3, 7)
    busy = next(answer for answer in answers if answer.status_code == 503)
    assert busy.headers["retry-after"] == "1"
    assert error_of(busy) == "the server is busy; try again in a second"
    assert ask(app, "POST", "/api/predict", content=picture()).status_code == 200


def test_what_takes_too_long_is_given_up(networks: list[ServedNetwork]) -> None:
    computed = 0

    def slow(images: Tensor) -> Tensor:
        nonlocal computed
        computed += len(images)
        time.sleep(0.15)
        return torch.zeros(len(images), 10)

    snail = ServedNetwork("snail", networks[0].card, slow)
    app = create_app([snail], angles=180, limits=Limits(seconds=0.2))
    answer = ask(app, "POST", "/api/turns", content=picture())
    assert answer.status_code == 503
    assert error_of(answer) == "no answer within 0.2 s; ask for less"
    assert computed < 180  # it stopped between batches


def test_a_fault_inside_says_nothing_about_the_inside(networks: list[ServedNetwork]) -> None:
    def broken(images: Tensor) -> Tensor:
        raise ValueError(f"secret of {len(images)}")

    app = create_app([ServedNetwork("broken", networks[0].card, broken)], angles=4)
    answer = ask(app, "POST", "/api/predict", content=picture())
    assert answer.status_code == 500
    assert error_of(answer) == "something went wrong in the server; its log says what"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_deeply_nested_json_is_refused(app: FastAPI) -> None:
    content = b'{"images": ' + b"[" * 200_000
    assert ask(app, "POST", "/api/predict-batch", content=content).status_code == 422


def test_answers_are_json_that_browsers_read(app: FastAPI) -> None:
    answer = ask(app, "POST", "/api/turns", content=picture())
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.text)["background"] == "#000000"


def test_says_which_limit_makes_no_sense() -> None:
    with pytest.raises(ConfigError, match="Limits: batch must be positive, got 0"):
        Limits(batch=0)
    assert Limits(waiting=0).waiting == 0
