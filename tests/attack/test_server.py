"""Requests to the server: generated from its own description, forged, slow, odd and too large."""

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import torch
from fastapi import FastAPI
from support.attack import Judge, bounded, hostile_text, replaced
from support.hostile_pictures import CONTENTS
from support.serving import ask, base64_of, bomb, picture, running

from invint.export import ModelCard
from invint.serve.app import create_app
from invint.serve.limits import Limits
from invint.serve.networks import ServedNetwork

pytestmark = [pytest.mark.slow, pytest.mark.unchecked]

CARD = ModelCard(("a", "b"), (20, 20), 1)
NETWORK = ServedNetwork("constant", CARD, lambda images: torch.zeros(len(images), 2))
LIMITS = Limits(upload_bytes=2**16, upload_seconds=0.3, uploads=2, workers=1, connections=40)


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app([NETWORK], angles=4, limits=LIMITS, token=None)


@pytest.fixture(scope="module")
def schema(app: FastAPI) -> dict[str, Any]:
    """What the server says of itself."""
    found: dict[str, Any] = ask(app, "GET", "/openapi.json").json()
    return found


POSTS = ("/api/predict", "/api/predict-batch", "/api/turns")


def valid_body(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """Return a body as the description has it, with a picture wherever it wants text."""
    described = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    properties = described["schema"]["properties"]
    image = base64_of(picture())
    return {
        name: [image] if each["type"] == "array" else image for name, each in properties.items()
    }


@pytest.mark.parametrize("path", POSTS)
def test_bodies_as_described_are_answered(app: FastAPI, schema: dict[str, Any], path: str) -> None:
    """Otherwise nothing could be learned from what becomes of others."""
    assert ask(app, "POST", path, json=valid_body(schema, path)).status_code == 200


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("path", POSTS)
def test_bodies_with_a_value_of_another_kind(
    judge: Judge, app: FastAPI, schema: dict[str, Any], path: str, seed: int
) -> None:
    body = replaced(valid_body(schema, path), seed)
    with bounded():
        judge.answered(ask(app, "POST", path, content=json.dumps(body)), 413, 415, 422)


WORDS: dict[str, bytes] = {
    "empty": b"",
    "a brace": b"{",
    "deep": b'{"image": ' + b"[" * 30_000,
    "deep objects": b'{"image":' * 5000,
    "twice": b'{"image": "a", "image": "b"}',
    "not text": b'{"image": "\xff\xfe"}',
    "a lone surrogate": b'{"image": "\\ud800"}',
    "a zero byte": b'{"image": "\\u0000"}',
    "an enormous number": b'{"image": 1' + b"0" * 5000 + b"}",
    "not a number": b'{"image": NaN}',
    "nothing": b"null",
    "blanks": b" \n\t" * 1000,
    "base64 of nothing": b'{"image": ""}',
    "an address": b'{"image": "data:image/png;base64,"}',
    "a file": b'{"image": "file:///etc/passwd"}',
    "another machine": b'{"image": "http://169.254.169.254/"}',
    "a prototype": b'{"__proto__": {"a": 1}, "image": "aa"}',
    "utf-16": '{"image": "aa"}'.encode("utf-16"),
    "multipart": b'--x\r\ncontent-disposition: form-data; name="image"\r\n\r\na\r\n--x--\r\n',
    "half of multipart": b"--x\r\ncontent-disposition: form-da",
    "a form": b"image=aa&angles=3",
    "a script": b"<script>alert(1)</script>",
}


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("path", POSTS)
def test_bodies_that_are_odd(judge: Judge, app: FastAPI, name: str, path: str) -> None:
    kind = "multipart/form-data; boundary=x" if "multipart" in name else "application/json"
    with bounded():
        answer = ask(app, "POST", path, content=WORDS[name], headers={"content-type": kind})
        assert "<script>" not in judge.answered(answer, 413, 415, 422)


@pytest.mark.parametrize("name", CONTENTS)
def test_pictures_that_are_none(judge: Judge, app: FastAPI, name: str) -> None:
    content, _ = CONTENTS[name]
    path = POSTS[0] if len(name) % 2 else POSTS[2]
    with bounded():
        answer = ask(app, "POST", path, content=content)
        if name in ("png.jpg", "jpeg.png"):  # only their names were wrong
            assert answer.status_code == 200
        else:
            judge.answered(answer, 413, 415, 422)


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("side", [6000, 9000, 60_000])
def test_bombs(judge: Judge, app: FastAPI, path: str, side: int) -> None:
    body = {"image": base64_of(bomb(side))}
    if path.endswith("batch"):
        body = {"images": [base64_of(bomb(side))] * 30}  # type: ignore[dict-item]
    with bounded():
        judge.answered(ask(app, "POST", path, json=body), 413)


@pytest.mark.parametrize("seed", range(25))
def test_addresses_of_chance(judge: Judge, app: FastAPI, schema: dict[str, Any], seed: int) -> None:
    """A path of the description, with something hostile in it, behind it or as its query."""
    draw, text = random.Random(seed), hostile_text(seed).encode().hex("%")
    path = draw.choice(sorted(schema["paths"]))
    address = draw.choice(
        [f"{path}%{text}", f"/%{text}{path}", f"{path}/../../%{text}", f"/api/turns?angles=%{text}"]
    )
    method = draw.choice(["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
    with bounded():
        answer = ask(app, method, address, content=b"a")
        judge.answered(answer, 403, 404, 405, 415, 422)


HOSTS = (
    *("evil.example", "localhost.evil.example", "localhost@evil.example", "evil.example:8765"),
    *("", "[", "[::1", "]", "localhost\x00", "local host", "127.0.0.1.evil.example", "%6cocalhost"),
    *(
        "-",
        "evil.example#localhost",
        "evil.example/localhost",
        "a" * 5000,
        "évil.example",
        "0x7f000001",
    ),
)


@pytest.mark.parametrize("host", HOSTS, ids=lambda text: repr(text)[:30])
def test_hosts_that_are_forged(judge: Judge, app: FastAPI, host: str) -> None:
    answer = ask(app, "POST", POSTS[0], content=picture(), headers={"host": host.encode()})
    judge.answered(answer, 421)


ORIGINS = (
    *("null", "", "https://evil.example", "http://[bad", "://", "http://127.0.0.1:1", "file://"),
    *(
        "http://127.0.0.1:8765.evil.example",
        "http://evil.example/127.0.0.1:8765",
        "\xff",
        "a" * 5000,
    ),
    *("http://user@127.0.0.1:8765", "http://127.0.0.1:8765/", "http://localhost:8765", "\t"),
)


@pytest.mark.parametrize("origin", ORIGINS, ids=lambda text: repr(text)[:30])
def test_origins_that_are_forged(judge: Judge, app: FastAPI, origin: str) -> None:
    headers = {"origin": origin.encode("latin-1")}
    judge.answered(ask(app, "POST", POSTS[0], content=picture(), headers=headers), 403)


@pytest.mark.parametrize("seed", range(12))
def test_tokens_of_chance(judge: Judge, seed: int) -> None:
    locked = create_app([NETWORK], angles=4, limits=LIMITS, token="a-token-of-24-characters")
    value = hostile_text(seed).encode("utf-8", "replace")
    start = (b"Bearer ", b"Basic ", b"Digest ", b"")[seed % 4]
    headers = {"authorization": start + value, "cookie": b"invint-8765=" + value}
    judge.answered(ask(locked, "POST", POSTS[0], content=picture(), headers=headers), 401)


# Over a real connection


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running([NETWORK], limits=LIMITS) as address:
        yield int(address.rstrip("/").rpartition(":")[2])


GET, POST = b"GET /health HTTP/1.1\r\nhost: localhost\r\n", b"POST /api/predict HTTP/1.1\r\n"
HOST = b"host: localhost\r\n"
RAW: dict[str, bytes] = {
    "no HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(100),
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two hosts": GET + HOST + b"\r\n",
    "an enormous header": GET + b"a: " + b"b" * 2**20 + b"\r\n\r\n",
    "many headers": GET + b"a: b\r\n" * 20_000 + b"\r\n",
    "an enormous address": b"GET /" + b"a" * 2**20 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "a zero byte": GET + b"a: \0\r\n\r\n",
    "a header without a name": GET + b": b\r\n\r\n",
    "a folded header": GET + b"a: b\r\n c: d\r\n\r\n",
    "another version": b"GET /health HTTP/9.9\r\n" + HOST + b"\r\n",
    "two lengths": POST + HOST + b"content-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "a negative length": POST + HOST + b"content-length: -1\r\n\r\n",
    "a length in words": POST + HOST + b"content-length: one\r\n\r\n",
    "an enormous length": POST + HOST + b"content-length: 1" + b"0" * 30 + b"\r\n\r\n",
    "a length and chunks": POST
    + HOST
    + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk in words": POST + HOST + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    "an enormous chunk": POST + HOST + b"transfer-encoding: chunked\r\n\r\nffffffffff\r\n",
    "another encoding": POST + HOST + b"transfer-encoding: gzip\r\n\r\n",
    "half a body": POST + HOST + b"content-length: 1000\r\n\r\nabc",
    "a body that is announced": POST + HOST + b"content-length: 5\r\nexpect: 100-continue\r\n\r\n",
    "half a header": POST + b"host: loc",
    "nothing": b"",
    "a picture": picture(),
    "a web socket": GET + b"upgrade: websocket\r\nconnection: upgrade\r\norigin: null\r\n\r\n",
}
HARMLESS = {  # what is odd about them is passed over
    *("a web socket", "a length and chunks", "many headers", "a folded header", "another version"),
}


@pytest.mark.parametrize("name", RAW)
def test_bytes_on_the_wire(judge: Judge, port: int, name: str) -> None:
    with bounded(), socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            connection.sendall(RAW[name])
            if name in HARMLESS:
                connection.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: connection.recv(4096), b""))
        except (BrokenPipeError, ConnectionResetError):
            received = b""  # closed while more was coming
    refused = not received or received.startswith(
        (b"HTTP/1.1 4", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 4")
    )
    assert refused or (name in HARMLESS and not received.startswith(b"HTTP/1.1 5")), received
    assert b"Traceback" not in received
    judge.count("refused" if refused else "taken")


async def never(start: bytes) -> AsyncIterator[bytes]:
    yield start
    await asyncio.Event().wait()


@pytest.mark.parametrize("start", [b"a", b"{", b"\x89PNG", picture()[:-1]], ids=len)
def test_uploads_that_never_end(judge: Judge, app: FastAPI, start: bytes) -> None:
    with bounded():
        judge.answered(ask(app, "POST", POSTS[0], content=never(start)), 408)


def test_it_still_answers(app: FastAPI, port: int) -> None:
    """After all of that."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(GET + b"\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    assert ask(app, "POST", POSTS[0], content=picture()).status_code == 200
