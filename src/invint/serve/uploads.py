"""Reading the bodies of requests, which may be large, slow, many or never finished."""

import asyncio
from collections import defaultdict

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from invint.serve.limits import Limits


class Uploads:
    """Reads bodies within the limits of size, time and number.

    A client with too many unfinished bodies loses the oldest of them, not the newest: what it
    began and never ends cannot keep its next request out, nor those of others who share its
    address behind a proxy.

    Args:
        limits: How large, how slow and how many of one client.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.unfinished: defaultdict[str, list[asyncio.Timeout]] = defaultdict(list)

    async def read(self, request: Request) -> bytes:
        """Return the body of a request, or raise what it is refused with."""
        client = request.client.host if request.client else ""
        try:
            async with asyncio.timeout(self.limits.upload_seconds) as deadline:
                self._begin(client, deadline)
                return await self._body(request)
        except TimeoutError as error:
            if deadline not in self.unfinished[client]:
                raise busy() from error
            message = f"the body took longer than {self.limits.upload_seconds:g} s"
            # Without closing, the rest could go on arriving for ever.
            raise HTTPException(408, message, {"connection": "close"}) from error
        except ClientDisconnect as error:  # nobody is left to read the answer
            raise HTTPException(400, "the body ended too early") from error
        finally:
            self._end(client, deadline)

    def _begin(self, client: str, deadline: asyncio.Timeout) -> None:
        unfinished = self.unfinished[client]
        unfinished.append(deadline)
        if len(unfinished) > self.limits.uploads:
            oldest = unfinished.pop(0)
            if not oldest.expired():
                oldest.reschedule(0)  # a time long past: it ends at once

    def _end(self, client: str, deadline: asyncio.Timeout) -> None:
        if deadline in self.unfinished[client]:
            self.unfinished[client].remove(deadline)
        if not self.unfinished[client]:
            del self.unfinished[client]

    async def _body(self, request: Request) -> bytes:
        """Read a body; one announced as too large is refused before any of it is read.

        uvicorn drops what is not read, so that the client gets to see the answer.
        """
        most = self.limits.upload_bytes
        too_large = HTTPException(413, f"a request has at most {most / 2**20:g} MiB")
        announced = request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > most:
            raise too_large
        body = bytearray()
        async for chunk in request.stream():
            if len(body) + len(chunk) > most:
                raise too_large
            body += chunk
        return bytes(body)


def busy(message: str = "the server is busy; try again in a second") -> HTTPException:
    """Return the refusal of a request that may be sent again."""
    return HTTPException(503, message, {"retry-after": "1"})
