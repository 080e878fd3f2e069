"""How much one request, and all requests together, may ask of the server."""

from dataclasses import dataclass, field

from invint.data.cache import processors
from invint.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """Bounds that hold whatever clients send.

    Attributes:
        upload_bytes: Most bytes in the body of a request.
        upload_seconds: Longest time for a body to arrive.
        uploads: Bodies of one client that may be arriving at once; beyond them the oldest is
            given up.
        pixels: Most pixels of an image, before it is made smaller.
        batch: Most images in one request.
        angles: Most angles in one request.
        seconds: Longest time between the arrival of a request and the end of its computation.
        workers: Requests computed at once; by default one per core.
        waiting: Requests that may wait for a worker; further ones are told to come back.
        connections: Most open connections.
    """

    upload_bytes: int = 8 * 2**20
    upload_seconds: float = 15.0
    uploads: int = 64
    pixels: int = 25_000_000
    batch: int = 32
    angles: int = 180
    seconds: float = 30.0
    workers: int = field(default_factory=processors)
    waiting: int = 32
    connections: int = 512

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0 or (value == 0 and name != "waiting"):
                raise ConfigError(f"Limits: {name} must be positive, got {value}")
