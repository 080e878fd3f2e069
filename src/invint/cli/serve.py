"""`invint serve`: a page to try a network on, as images turn."""

from pathlib import Path
from typing import Annotated

import typer

from invint.cli.console import say


def serve(
    network: Annotated[
        Path, typer.Argument(metavar="RUN|FILE", help="A run folder, or an exported network.")
    ],
    compare: Annotated[
        Path | None, typer.Option(metavar="RUN|FILE", help="Another network beside it.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="INVINT_TOKEN",
            help="What clients must know; off loopback one is drawn if none is given.",
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="Another name the server goes by; repeatable.")
    ] = None,
) -> None:
    """Open a web page where images are turned while one or two networks look at them."""
    from invint.serve.server import choose_address, run_server

    run_server(
        [network] if compare is None else [network, compare],
        choose_address(host, port, token, allowed_host or ()),
        started=lambda url: say(f"Open {url}  (stop with Ctrl+C)", bold=url),
    )
