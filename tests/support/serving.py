"""What the tests of the server share: networks with random weights, images, a client, a server."""

import asyncio
import base64
import io
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import torch
from PIL import Image
from starlette.types import ASGIApp
from support.pictures import chunk, png

from invint import create_model
from invint.export import ModelCard, export_model
from invint.serve.limits import Limits
from invint.serve.networks import ServedNetwork
from invint.serve.server import choose_address, listen, make_server

CLASSES = tuple("0123456789")


def write_network(path: Path, name: str, head: str | None = None, **card: Any) -> Path:
    """Export a network with random weights."""
    values = {"class_names": CLASSES, "image_size": (20, 20), "in_channels": 1, **card}
    torch.manual_seed(1)
    model = create_model(
        name,
        head=head,
        num_classes=len(values["class_names"]),
        in_channels=values["in_channels"],
        image_size=values["image_size"],
    )
    export_model(model.eval(), path, ModelCard(name=name, head=head, **values))
    return path


def picture(side: int = 20, mode: str = "L", format: str = "PNG") -> bytes:
    """Return the file of an image with a bright bar left of the middle."""
    image = Image.new(mode, (side, side))
    image.paste(255 if mode == "L" else (255, 120, 0), (side // 4, side // 8, side // 2, side // 2))
    file = io.BytesIO()
    image.save(file, format=format)
    return file.getvalue()


def bomb(side: int) -> bytes:
    """Return a small PNG file that claims to be an enormous image."""
    return png(side, side, chunk(b"IDAT", zlib.compress(bytes(1_000_000))))


def base64_of(data: bytes) -> str:
    """Return bytes as JSON can hold them."""
    return base64.b64encode(data).decode()


def ask(app: ASGIApp, method: str, path: str, **options: Any) -> httpx.Response:
    """Ask an application without a server in between."""

    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8765"
        ) as client:
            return await client.request(method, path, **options)

    return asyncio.run(request())


@contextmanager
def running(
    networks: Sequence[ServedNetwork], *, limits: Limits | None = None, token: str | None = None
) -> Iterator[str]:
    """Serve networks from a thread of this process, on a free port; yields the address."""
    address = choose_address("127.0.0.1", 0, token)
    with listen(address) as listening:
        server = make_server(networks, address, limits or Limits())
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield address.url(listening.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()
