"""How much one request, and all requests together, may ask of the server."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from invint.data.cache import processors
from invint.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """Bounds that hold whatever clients send.

    Attributes:
        upload_bytes: Most bytes in the body of a request.
        pixels: Most pixels of an image, before it is made smaller.
        batch: Most images in one request.
        angles: Most angles in one request.
        upload_seconds: Longest time for a body, or for the headers before it, to arrive.
        seconds: Longest time between the arrival of a request and the end of its computation.
        workers: Requests computed at once; by default one per core.
        waiting: Requests that may wait for a worker; further ones are told to come back.
        connections: Most open connections.
    """

    upload_bytes: int = 8 * 2**20
    pixels: int = 25_000_000
    batch: int = 32
    angles: int = 180
    upload_seconds: float = 15.0
    seconds: float = 30.0
    workers: int = field(default_factory=processors)
    waiting: int = 32
    connections: int = 512

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0 or (value == 0 and name != "waiting"):
                raise ConfigError(f"Limits: {name} must be positive, got {value}")


class RequestError(Exception):
    """A request that is answered with a status and one sentence.

    Args:
        status: Of HTTP.
        message: What is wrong and what to do.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Gate:
    """Lets a bounded number of requests in; the next one is refused, not queued.

    Args:
        places: Requests inside at once.
    """

    def __init__(self, places: int) -> None:
        self.places, self.taken = places, 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold one of the places."""
        if self.taken >= self.places:
            raise RequestError(503, "the server is busy; try again in a second")
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
