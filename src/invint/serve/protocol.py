"""HTTP for uvicorn, without patience for headers that never end."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class ImpatientProtocol(H11Protocol):
    """Closes a connection whose next request is not there after a while.

    uvicorn itself waits forever once a single byte has arrived.
    """

    patience = 15.0
    _timer: asyncio.TimerHandle | None = None

    @classmethod
    def waiting(cls, seconds: float) -> "type[ImpatientProtocol]":
        """Return the protocol with another patience."""
        return type(cls.__name__, (cls,), {"patience": seconds})

    def connection_made(self, transport: Any) -> None:
        """Start waiting for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Stop waiting when a request is whole, start when a part of the next one is here."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._timer is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self.patience, self.transport.close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
