"""The application: the page, its samples and the JSON interface."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from invint.serve import answers
from invint.serve.guard import PROTECTION, Guard, refusal
from invint.serve.limits import Limits
from invint.serve.networks import ServedNetwork, default_angles, sample_images
from invint.serve.uploads import Uploads, busy

FOLDER = Path(__file__).parent / "page"
FILES = {  # the only files there are: no part of an address becomes a path
    "/": ("index.html", "text/html"),
    "/docs": ("docs.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
IMAGE_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "image/*": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {"schema": answers.ImageRequest.model_json_schema()},
        },
    }
}
BATCH_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": answers.BatchRequest.model_json_schema()}},
    }
}
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": answers.ErrorResponse, "description": text}
    for status, text in {
        401: "The token is missing or wrong.",
        408: "The body took too long to arrive.",
        413: "Too many bytes, pixels or images.",
        415: "Not an image.",
        422: "A damaged image, or not what is documented.",
        503: "Busy, or too slow; `Retry-After` says when to try again.",
    }.items()
}
Work = Callable[[Callable[..., BaseModel], Request], Awaitable[Response]]


def create_app(
    networks: Sequence[ServedNetwork],
    *,
    hosts: frozenset[str] = frozenset(),
    token: str | None = None,
    limits: Limits | None = None,
    angles: int | None = None,
) -> FastAPI:
    """Return the ASGI application.

    Args:
        networks: What to try, the main one first.
        hosts: Names the server goes by, beside `localhost` and numeric addresses.
        token: What clients must know; by default everybody may ask.
        limits: How much may be asked.
        angles: How finely the circle is divided unless a request says; by default what the
            networks manage in half a second on this machine.
    """
    limits = limits or Limits()
    app = FastAPI(
        title="invint serve",
        description="Class probabilities of images, upright and at every angle.",
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(Guard, hosts=hosts, token=token)
    _add_errors(app)
    _add_files(app)
    _add_interface(app, networks, limits, angles or default_angles(networks))
    return app


def _add_errors(app: FastAPI) -> None:
    """Make every error one sentence in JSON; what went wrong inside stays in the log."""

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        return refusal(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return refusal(HTTPException(422, f"{first['loc'][-1]}: {first['msg']}"))

    @app.exception_handler(Exception)
    async def unforeseen(_: Request, __: Exception) -> Response:
        message = "something went wrong in the server; its log says what"
        answer = refusal(HTTPException(500, message))
        answer.headers.update(PROTECTION)  # this one is sent from outside of all middleware
        return answer


def _add_files(app: FastAPI) -> None:
    for address, (name, kind) in FILES.items():
        _add_file(app, address, (FOLDER / name).read_bytes(), kind)
    for name, content in sample_images().items():
        _add_file(app, f"/samples/{name}.png", content, "image/png")


def _add_file(app: FastAPI, address: str, content: bytes, kind: str) -> None:
    @app.api_route(address, methods=["GET", "HEAD"], include_in_schema=False)
    async def file() -> Response:
        return Response(content, media_type=kind)


def _add_interface(
    app: FastAPI, networks: Sequence[ServedNetwork], limits: Limits, angles: int
) -> None:
    work = _worker(networks, limits)
    model = answers.describe(networks, limits, angles)

    @app.get("/health", summary="Say that the server is there")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/api/model", summary="Networks, classes and limits")
    async def about() -> answers.ModelResponse:
        return model

    @app.post(
        "/api/predict",
        summary="Probabilities of one image",
        response_model=answers.PredictResponse,
        responses=REFUSALS,
        openapi_extra=IMAGE_BODY,
    )
    async def predict(request: Request) -> Response:
        return await work(answers.predict, request)

    @app.post(
        "/api/predict-batch",
        summary="Probabilities of several images",
        response_model=answers.BatchResponse,
        responses=REFUSALS,
        openapi_extra=BATCH_BODY,
    )
    async def predict_batch(request: Request) -> Response:
        return await work(answers.predict_batch, request)

    @app.post(
        "/api/turns",
        summary="Probabilities of one image at angles around the circle",
        response_model=answers.TurnsResponse,
        responses=REFUSALS,
        openapi_extra=IMAGE_BODY,
    )
    async def turns(
        request: Request, count: int = Query(angles, alias="angles", ge=1, le=limits.angles)
    ) -> Response:
        return await work(partial(answers.turns, count=count), request)


def _worker(networks: Sequence[ServedNetwork], limits: Limits) -> Work:
    """Return a function that reads a body and computes its answer in one of a few threads.

    A request takes one of the places only when its body is there, so that slow clients keep
    nobody out. When all are taken it is refused. One that waited past its time is not begun, and
    one that runs past it stops between batches.
    """
    pool = ThreadPoolExecutor(limits.workers, thread_name_prefix="invint-serve")
    places = asyncio.Semaphore(limits.workers + limits.waiting)
    uploads = Uploads(limits)

    def compute(function: Callable[..., BaseModel], body: bytes, deadline: float) -> str:
        if time.monotonic() > deadline:
            raise TimeoutError
        return function(body, networks, limits=limits, deadline=deadline).model_dump_json()

    async def work(function: Callable[..., BaseModel], request: Request) -> Response:
        body = await uploads.read(request)
        if places.locked():
            raise busy()
        deadline = time.monotonic() + limits.seconds
        loop = asyncio.get_running_loop()
        try:
            async with places:
                content = await loop.run_in_executor(pool, compute, function, body, deadline)
        except TimeoutError as error:
            raise busy(f"no answer within {limits.seconds:g} s; ask for less") from error
        return Response(content, media_type="application/json")

    return work
