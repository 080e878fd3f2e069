import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Scope

from invint.serve.limits import Limits
from invint.serve.uploads import Uploads

WHOLE = [b"one", b"two"]


def request(
    chunks: Sequence[bytes], *, client: str = "10.0.0.1", ends: bool = True, length: str = ""
) -> Request:
    """Return a request whose body arrives in chunks, and then is whole or waited for."""
    messages: AsyncIterator[Message] = _messages(chunks, ends)
    headers = [(b"content-length", length.encode())] if length else []
    scope = {"type": "http", "method": "POST", "headers": headers, "client": (client, 1)}
    return Request(scope, receive=messages.__anext__)


async def _messages(chunks: Sequence[bytes], ends: bool) -> AsyncIterator[Message]:
    for chunk in chunks:
        yield {"type": "http.request", "body": chunk, "more_body": True}
    if not ends:
        await asyncio.Event().wait()
    yield {"type": "http.request", "body": b"", "more_body": False}


def outcomes(uploads: Uploads, *requests: Request) -> list[object]:
    """Return what becomes of requests that come at once: their bodies, or the statuses."""

    async def read() -> list[object]:
        reading = [uploads.read(each) for each in requests]
        results = await asyncio.gather(*reading, return_exceptions=True)
        assert not uploads.unfinished  # nothing is remembered of clients that have gone
        return list(results)

    found = asyncio.run(read())
    return [each.status_code if isinstance(each, HTTPException) else each for each in found]


def test_a_body_is_what_arrived() -> None:
    assert outcomes(Uploads(Limits()), request(WHOLE), request([])) == [b"onetwo", b""]


def test_the_bytes_that_come_are_counted() -> None:
    uploads = Uploads(Limits(upload_bytes=5))
    assert outcomes(uploads, request(WHOLE), request([b"12345"])) == [413, b"12345"]


@pytest.mark.parametrize("ends", [True, False])
def test_what_is_announced_as_too_large_is_not_waited_for(ends: bool) -> None:
    uploads = Uploads(Limits(upload_bytes=5))
    assert outcomes(uploads, request([], ends=ends, length="6")) == [413]


def test_a_body_that_does_not_end_is_given_up() -> None:
    uploads = Uploads(Limits(upload_seconds=0.05))
    assert outcomes(uploads, request(WHOLE, ends=False), request(WHOLE)) == [408, b"onetwo"]


def test_a_client_with_too_many_unfinished_bodies_loses_the_oldest_of_its_own() -> None:
    uploads = Uploads(Limits(uploads=1, upload_seconds=0.05))
    clients = [request(WHOLE, client=str(i // 3), ends=False) for i in range(9)]
    assert outcomes(uploads, *clients) == [503, 503, 408] * 3


def test_a_client_that_goes_in_the_middle_is_nothing_unforeseen() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    scope: Scope = {"type": "http", "method": "POST", "headers": [], "client": None}
    assert outcomes(Uploads(Limits()), Request(scope, receive=gone)) == [400]
