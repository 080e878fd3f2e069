"""Running the application: where it listens, the token, uvicorn."""

import ipaddress
import math
import os
import re
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from invint.errors import ConfigError, require_extra
from invint.serve.limits import Limits
from invint.serve.networks import ServedNetwork, open_networks

TOKEN = re.compile(r"[\w.~-]{16,256}", re.ASCII)


@dataclass(frozen=True)
class Address:
    """Where the server listens, and what clients must know.

    Attributes:
        host: Address or name to listen on.
        port: Port to listen on; 0 takes a free one.
        token: What clients must know; `None` lets everybody in.
        names: What the server goes by, beside `localhost` and numeric addresses.
    """

    host: str
    port: int
    token: str | None
    names: frozenset[str] = frozenset()

    def url(self, port: int) -> str:
        """Return what to open in a browser."""
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
        host = everywhere.get(self.host, self.host)
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}/" + (f"?token={self.token}" if self.token else "")


def choose_address(host: str, port: int, token: str | None, names: Sequence[str] = ()) -> Address:
    """Check where to listen; off loopback there is always a token.

    Args:
        host: Address or name to listen on.
        port: Port to listen on.
        token: What clients must know; drawn if the server can be reached from elsewhere.
        names: Further names the server goes by.
    """
    if token is not None and not TOKEN.fullmatch(token):
        raise ConfigError(
            "serve: a token has 16 to 256 letters, digits, '-', '_', '.' or '~'; "
            "leave it out to have one drawn"
        )
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    own = {host.lower(), *(name.lower() for name in names)}
    if not is_loopback(host):
        own |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return Address(host, port, token, frozenset(own))


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach a host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def run_server(
    paths: Sequence[Path],
    address: Address,
    *,
    limits: Limits | None = None,
    started: Callable[[str], object] = lambda _: None,
) -> None:
    """Read the networks and serve them until interrupted.

    Args:
        paths: Run folders or files, the main one first.
        address: Where to listen.
        limits: How much may be asked.
        started: Receives the address to open, once the server listens.
    """
    for module in ("fastapi", "uvicorn"):
        require_extra(module, "invint serve", "serve")
    networks = open_networks(paths)
    with listen(address) as listening:
        torch.set_num_threads(1)  # every worker has its core
        server = make_server(networks, address, limits or Limits())
        started(address.url(listening.getsockname()[1]))
        server.run(sockets=[listening])


def listen(address: Address) -> socket.socket:
    """Take the port, or raise `ConfigError`; clients may connect before the server is ready."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio sends small answers at once only where the protocol is named
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if os.name == "posix":  # elsewhere the option lets two servers share a port
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise ConfigError(
            f"serve: cannot listen on {address.host} port {address.port} ({error}); "
            "choose another --port or --host"
        ) from error
    listening.listen(512)
    return listening


def make_server(networks: Sequence[ServedNetwork], address: Address, limits: Limits) -> Any:
    """Return uvicorn's server for the networks."""
    import uvicorn

    from invint.serve.app import create_app
    from invint.serve.protocol import HurriedProtocol

    config = uvicorn.Config(
        create_app(networks, hosts=address.names, token=address.token, limits=limits),
        http=HurriedProtocol,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,  # addresses may hold the token
        server_header=False,
        proxy_headers=False,  # anybody could write them
        limit_concurrency=limits.connections,
        backlog=min(limits.connections, 512),
        timeout_keep_alive=math.ceil(limits.upload_seconds),  # longer than clients keep theirs
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)
