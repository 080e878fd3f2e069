"""Hold many clients against the server on loopback: latency, busy answers, errors, memory.

Starts `invint serve` with an ordinary and an invariant network in a process of its own. First one
client alone asks for an image and for a whole circle of angles; then as many clients as asked for
send requests one after the other, and those told to come back do so after `Retry-After`. The
memory of the server is read before, during and after. The client runs on the same cores.

usage: python benchmarks/serve_load.py [--clients 100] [--requests 10000] [--record NAME]
"""

import asyncio
import io
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from PIL import Image
from record import markdown_table, recording_parser, show_table

from invint.export import ModelCard, export_model

SERVER = """
import sys
from functools import partial
from pathlib import Path
from invint.serve.server import choose_address, run_server
run_server(
    [Path(each) for each in sys.argv[1:]],
    choose_address("127.0.0.1", 0, None),
    started=partial(print, flush=True),
)
"""
READINGS = 100  # of memory, over all requests


@dataclass
class Tally:
    """What became of the requests.

    Attributes:
        asked: Requests that will be sent, not counting those sent again.
        seconds: How long each answered one took, from its last sending.
        statuses: How often each status came, busy ones included.
        errors: Requests that failed without an answer.
        memory: Bytes the server held, read as requests were answered.
    """

    asked: int
    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)


@contextmanager
def server() -> Iterator[tuple[str, psutil.Process]]:
    """Run a server with two small networks; yields its address and its process."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, head in (("cnn-small", None), ("sfcnn-small", "local-ws")):
            card = ModelCard(tuple("0123456789"), (20, 20), 1, name=name, head=head)
            paths.append(str(Path(folder) / f"{name}.safetensors"))
            export_model(card.build().eval(), paths[-1], card)
        command = [sys.executable, "-c", SERVER, *paths]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            if process.stdout is None:
                raise RuntimeError("the server has no output")
            yield process.stdout.readline().strip(), psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait()


def image() -> bytes:
    """Return a PNG file of 64 x 64 pixels."""
    file = io.BytesIO()
    Image.linear_gradient("L").resize((64, 64)).save(file, format="PNG")
    return file.getvalue()


async def client(
    http: httpx.AsyncClient, path: str, content: bytes, tally: Tally, process: psutil.Process
) -> None:
    """Send requests until all are sent; a busy answer is waited out and the request sent again."""
    while tally.asked > 0:
        tally.asked -= 1
        await send(http, path, content, tally)
        if tally.asked % max(1, (tally.asked + len(tally.seconds)) // READINGS) == 0:
            tally.memory.append(process.memory_info().rss)


async def send(http: httpx.AsyncClient, path: str, content: bytes, tally: Tally) -> None:
    """Send one request until it is answered."""
    while True:
        start = time.perf_counter()
        try:
            answer = await http.post(path, content=content)
        except httpx.HTTPError as error:
            tally.errors.append(repr(error))
            return
        tally.statuses[answer.status_code] += 1
        if answer.status_code != 503:
            tally.seconds.append(time.perf_counter() - start)
            return
        await asyncio.sleep(float(answer.headers["retry-after"]))


async def measure(
    address: str, process: psutil.Process, path: str, *, clients: int, requests: int
) -> dict[str, Any]:
    """Return one row: so many clients, so many requests."""
    tally = Tally(requests)
    content = image()
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as http:
        for _ in range(20):
            (await http.post(path, content=content)).raise_for_status()
        before = process.memory_info().rss
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client(http, path, content, tally, process))
        spent = time.perf_counter() - start
    return row(path, clients, tally, spent, before, process.memory_info().rss)


def row(
    path: str, clients: int, tally: Tally, spent: float, before: int, after: int
) -> dict[str, Any]:
    """Put what was counted into one row."""
    times = sorted(tally.seconds)
    middle = tally.memory[len(tally.memory) // 2 :] or [after]
    return {
        "path": path,
        "clients": clients,
        "answered": len(times),
        "busy": tally.statuses[503],
        "errors": len(tally.errors)
        + sum(count for status, count in tally.statuses.items() if status not in (200, 503)),
        "first_error": tally.errors[0] if tally.errors else None,
        "statuses": dict(sorted(tally.statuses.items())),
        "per_second": len(times) / spent,
        "median_ms": 1e3 * statistics.median(times),
        "p99_ms": 1e3 * times[int(0.99 * (len(times) - 1))],
        "memory_before_mb": before / 2**20,
        "memory_half_way_mb": middle[0] / 2**20,
        "memory_after_mb": after / 2**20,
        "memory_peak_mb": max([before, after, *tally.memory]) / 2**20,
    }


def run(clients: int, requests: int, angles: int) -> list[dict[str, Any]]:
    """Measure one client alone, then all of them."""
    turns = f"/api/turns?angles={angles}"
    plan = [
        ("/api/predict", 1, min(200, requests)),
        (turns, 1, min(40, requests)),
        ("/api/predict", clients, requests),
        (turns, clients, max(clients, requests // 20)),
    ]
    with server() as (address, process):
        return [
            asyncio.run(measure(address, process, path, clients=count, requests=total))
            for path, count, total in plan
        ]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table."""
    header = [
        "request",
        "clients",
        "answered",
        "busy",
        "errors",
        "a second",
        "median ms",
        "99 % ms",
    ]
    header += ["MB before", "half way", "after"]
    whole = ("clients", "answered", "busy", "errors")
    memory = ("memory_before_mb", "memory_half_way_mb", "memory_after_mb")
    numbers = ("per_second", "median_ms", "p99_ms", *memory)
    body = [
        [
            each["path"],
            *(str(each[name]) for name in whole),
            *(f"{each[name]:.0f}" for name in numbers),
        ]
        for each in rows
    ]
    return markdown_table(header, body)


def main() -> None:
    """Measure, print the table, and record it if asked."""
    parser = recording_parser(__doc__)
    parser.add_argument("--clients", type=int, default=100, help="at once (100)")
    parser.add_argument("--requests", type=int, default=10_000, help="of all clients (10000)")
    parser.add_argument("--angles", type=int, default=120, help="around the circle (120)")
    options = parser.parse_args()
    rows = run(options.clients, options.requests, options.angles)
    for each in rows:
        if each["errors"]:
            print(f"{each['path']}: {each['errors']} errors, the first {each['first_error']}")
    show_table(table(rows), rows, record=options.record)


if __name__ == "__main__":
    main()
