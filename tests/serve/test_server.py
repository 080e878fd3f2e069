import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from support.serving import picture, running

from invint.cli.serve import serve
from invint.errors import ConfigError
from invint.serve.limits import Limits
from invint.serve.networks import ServedNetwork
from invint.serve.server import Address, choose_address, is_loopback, listen

TOKEN = "a-token-of-24-characters"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "localhost", "::1", "LOCALHOST"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    assert choose_address(host, 8765, None).token is None
    assert choose_address(host, 8765, TOKEN).token == TOKEN


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "lab.example", "localhost.evil"])
def test_elsewhere_there_is_always_a_token(host: str) -> None:
    first, second = (choose_address(host, 8765, None).token for _ in range(2))
    assert first is not None
    assert len(first) >= 32
    assert first != second
    assert choose_address(host, 8765, TOKEN).token == TOKEN


@pytest.mark.parametrize("token", ["", "short", "with spaces in the middle", "é" * 20, "a" * 257])
def test_says_what_a_token_is(token: str) -> None:
    with pytest.raises(ConfigError, match="serve: a token has 16 to 256 letters"):
        choose_address("127.0.0.1", 8765, token)


def test_the_address_is_one_to_open() -> None:
    assert Address("127.0.0.1", 0, None).url(81) == "http://127.0.0.1:81/"
    assert Address("::1", 0, None).url(81) == "http://[::1]:81/"
    assert Address("0.0.0.0", 0, TOKEN).url(81) == f"http://127.0.0.1:81/?token={TOKEN}"


def test_says_that_a_port_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}"):
            listen(choose_address("127.0.0.1", port, None))


def test_small_answers_are_not_held_back() -> None:
    with listen(choose_address("127.0.0.1", 0, None)) as listening:
        assert listening.proto == socket.IPPROTO_TCP  # where asyncio switches Nagle's delay off


def test_the_command_passes_errors_on(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        serve(tmp_path / "none.onnx")


@pytest.mark.slow
def test_a_real_server_answers_and_keeps_to_its_limits(networks: list[ServedNetwork]) -> None:
    with running(networks) as address, httpx.Client(base_url=address, timeout=20) as client:
        assert client.get("/health").json() == {"status": "ok"}
        assert "server" not in client.get("/").headers
        answer = client.post("/api/turns?angles=12", content=picture())
        assert len(answer.json()["angles"]) == 12
        assert client.post("/api/predict", content=bytes(9 * 2**20)).status_code == 413
        assert client.get("/", headers={"host": "evil.example"}).status_code == 421


@pytest.mark.slow
def test_headers_that_never_end_are_not_waited_for(networks: list[ServedNetwork]) -> None:
    with running(networks, limits=Limits(upload_seconds=1)) as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for start in (b"", b"GET /health HTTP/1.1\r\nHost: loc", whole + whole[:9]):
            with socket.create_connection(("127.0.0.1", port), timeout=8) as connection:
                began = time.monotonic()
                connection.sendall(start)
                received = b""
                while chunk := connection.recv(4096):
                    received += chunk
                assert time.monotonic() - began < 7
                assert (b'"ok"' in received) == start.startswith(whole)


@pytest.mark.slow
def test_the_command_serves_until_it_is_stopped(files: list[Path]) -> None:
    code = "import typer; from invint.cli.serve import serve; typer.run(serve)"
    options = ["--compare", str(files[1]), "--host", "0.0.0.0", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(files[0]), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", process.stdout.readline())
        assert found is not None
        with httpx.Client(timeout=20, follow_redirects=True) as client:
            assert client.get(found[0].partition("?")[0]).status_code == 401
            assert "Turn an image" in client.get(found[0]).text
            assert client.get(found[0].partition("?")[0] + "api/model").status_code == 200
    finally:
        process.terminate()
        output = process.communicate(timeout=20)[0]
    assert "Traceback" not in output
