import socket
import time

import pytest
from support.serving import running

from invint.serve.limits import Limits
from invint.serve.networks import ServedNetwork

WHOLE = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


def connected(address: str) -> socket.socket:
    port = int(address.rstrip("/").rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def answer(connection: socket.socket) -> bytes:
    """Return a whole answer to `WHOLE`, which may come in parts."""
    received = b""
    while not received.endswith(b"}"):
        part = connection.recv(4096)
        assert part, received
        received += part
    return received


def trickle(connection: socket.socket) -> None:
    """Send the header of a request a letter at a time."""
    connection.sendall(b"GET / HTTP/1.1\r\nhost: ")
    for _ in range(200):
        connection.sendall(b"a")
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("before", [b"", WHOLE])
@pytest.mark.parametrize("start", [b"", b"POST /api/predict HTTP/1.1\r\nhost: loc"])
def test_headers_that_do_not_come_end_the_connection(
    networks: list[ServedNetwork], before: bytes, start: bytes
) -> None:
    with (
        running(networks, limits=Limits(upload_seconds=0.5)) as address,
        connected(address) as connection,
    ):
        connection.sendall(before)
        if before:
            assert answer(connection).startswith(b"HTTP/1.1 200")
        connection.sendall(start)
        assert connection.recv(4096) == b""  # it waits for ever where nothing closes it


@pytest.mark.slow
def test_headers_that_trickle_in_win_no_time(networks: list[ServedNetwork]) -> None:
    with (
        running(networks, limits=Limits(upload_seconds=0.5)) as address,
        connected(address) as connection,
        pytest.raises(OSError, match=r"pipe|reset"),
    ):
        trickle(connection)


@pytest.mark.slow
def test_a_connection_goes_on_as_long_as_requests_come(networks: list[ServedNetwork]) -> None:
    with (
        running(networks, limits=Limits(upload_seconds=0.5)) as address,
        connected(address) as connection,
    ):
        for _ in range(4):
            connection.sendall(WHOLE[:20])
            time.sleep(0.4)
            connection.sendall(WHOLE[20:])
            assert answer(connection).startswith(b"HTTP/1.1 200")
