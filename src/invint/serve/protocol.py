"""HTTP for clients that may be slow: headers have as long to arrive as bodies."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class HurriedProtocol(H11Protocol):
    """Closes a connection on which the headers of a request take too long.

    uvicorn closes connections that are idle after an answer. It waits for ever for the first
    request, and for the rest of one that has begun.
    """

    due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.hurry()

    def data_received(self, data: bytes) -> None:
        """Take what has come; a part of a header wins no time."""
        super().data_received(data)
        self.hurry()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self.calm()
        super().connection_lost(exc)

    def hurry(self) -> None:
        """Set a time for the rest of the headers, unless it is set or they are there."""
        if self.conn.their_state is not h11.IDLE:
            self.calm()
        elif self.due is None:
            self.due = self.loop.call_later(self.timeout_keep_alive, self.transport.close)

    def calm(self) -> None:
        """Give no time any more."""
        if self.due is not None:
            self.due.cancel()
            self.due = None
