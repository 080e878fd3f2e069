import contextlib
import re
import socket
import subprocess
import sys
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
UNFINISHED = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\na"


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


def test_the_address_is_printed_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = Address("fe80::1", 0, TOKEN).url(81)
    monkeypatch.setattr("invint.serve.server.run_server", lambda *_, started: started(url))
    serve(Path("model.onnx"))
    assert capsys.readouterr().out == f"Open {url}  (stop with Ctrl+C)\n"


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
@pytest.mark.parametrize("mebibytes", [9, 100])
@pytest.mark.parametrize("announced", [True, False])
def test_who_sends_too_much_gets_to_read_so(
    networks: list[ServedNetwork], mebibytes: int, announced: bool
) -> None:
    content = bytes(mebibytes * 2**20)
    pieces = (content[i : i + 2**16] for i in range(0, len(content), 2**16))
    with running(networks) as address, httpx.Client(base_url=address, timeout=20) as client:
        answer = client.post("/api/predict", content=content if announced else pieces)
        assert answer.status_code == 413
        assert client.post("/api/predict", content=picture()).status_code == 200


@pytest.mark.slow
def test_clients_that_never_finish_keep_nobody_from_an_answer(
    networks: list[ServedNetwork],
) -> None:
    with running(networks) as address, contextlib.ExitStack() as open_ones:
        port = int(address.rstrip("/").rpartition(":")[2])
        for start in [UNFINISHED] * 300 + [UNFINISHED[:20], b""] * 50:
            connection = socket.create_connection(("127.0.0.1", port), timeout=20)
            open_ones.enter_context(connection)
            connection.sendall(start)
        with httpx.Client(base_url=address, timeout=20) as client:
            for _ in range(3):
                assert client.post("/api/predict", content=picture()).status_code == 200


@pytest.mark.slow
def test_a_body_that_does_not_come_ends_the_connection(networks: list[ServedNetwork]) -> None:
    with running(networks, limits=Limits(upload_seconds=0.5)) as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(UNFINISHED)
            received = b"".join(iter(lambda: connection.recv(4096), b""))
    assert received.startswith(b"HTTP/1.1 408")


@pytest.mark.slow
def test_a_client_that_goes_in_the_middle_is_no_fault(
    networks: list[ServedNetwork], caplog: pytest.LogCaptureFixture
) -> None:
    with running(networks) as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(UNFINISHED)
        assert httpx.get(address + "health").status_code == 200
    assert caplog.records == []


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
