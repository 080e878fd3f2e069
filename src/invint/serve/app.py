"""The application: the page, its samples and the JSON interface."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from invint.serve import answers, schema
from invint.serve.guard import Access, Guard, refusal
from invint.serve.limits import Gate, Limits, RequestError
from invint.serve.networks import ServedNetwork, comfortable_angles
from invint.serve.samples import sample_images

FOLDER = Path(__file__).parent / "page"
FILES = {  # the only files there are: no part of an address becomes a path
    "/": ("index.html", "text/html"),
    "/docs": ("docs.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
DESCRIPTION = "Class probabilities of images, upright and at every angle."
IMAGE_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "image/*": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {"schema": schema.ImageRequest.model_json_schema()},
        },
    }
}
BATCH_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": schema.BatchRequest.model_json_schema()}},
    }
}
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": schema.ErrorResponse, "description": text}
    for status, text in {
        401: "The token is missing or wrong.",
        408: "The body took too long to arrive.",
        413: "Too many bytes, pixels or images.",
        415: "Not an image.",
        422: "A damaged image, or not what is documented.",
        503: "Busy, or too slow; `Retry-After` says when to try again.",
    }.items()
}


def create_app(
    networks: Sequence[ServedNetwork],
    *,
    access: Access | None = None,
    limits: Limits | None = None,
    angles: int | None = None,
) -> Guard:
    """Return the ASGI application.

    Args:
        networks: What to try, the main one first.
        access: Who may ask; by default everybody who reaches the server under its own names.
        limits: How much may be asked.
        angles: How finely the circle is looked at unless a request says; by default what the
            networks manage in half a second on this machine.
    """
    limits = limits or Limits()
    access = replace(access or Access(), token_page=(FOLDER / "token.html").read_text())
    app = FastAPI(
        title="invint serve",
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    _add_errors(app)
    _add_files(app)
    _add_interface(app, networks, limits, angles or comfortable_angles(networks))
    return Guard(app, access, limits, Gate(limits.workers + limits.waiting))


def _add_errors(app: FastAPI) -> None:
    """Make every error one sentence in JSON; what went wrong inside stays in the log."""

    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> Response:
        return refusal(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return refusal(RequestError(422, f"{first['loc'][-1]}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        return refusal(RequestError(error.status_code, str(error.detail)))

    @app.exception_handler(Exception)
    async def unforeseen(_: Request, __: Exception) -> Response:
        return refusal(RequestError(500, "something went wrong in the server; its log says what"))


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
    work = _worker(limits)
    model = _model(networks, limits, angles)

    @app.get("/health", summary="Say that the server is there")
    async def health() -> schema.HealthResponse:
        return schema.HealthResponse(status="ok")

    @app.get("/api/model", summary="Networks, classes and limits")
    async def about() -> schema.ModelResponse:
        return model

    @app.post(
        "/api/predict",
        summary="Probabilities of one image",
        response_model=schema.PredictResponse,
        responses=REFUSALS,
        openapi_extra=IMAGE_BODY,
    )
    async def predict(request: Request) -> Response:
        return await work(answers.predict, await request.body(), networks)

    @app.post(
        "/api/predict-batch",
        summary="Probabilities of several images",
        response_model=schema.BatchResponse,
        responses=REFUSALS,
        openapi_extra=BATCH_BODY,
    )
    async def predict_batch(request: Request) -> Response:
        return await work(answers.predict_batch, await request.body(), networks)

    @app.post(
        "/api/turns",
        summary="Probabilities of one image at angles around the circle",
        response_model=schema.TurnsResponse,
        responses=REFUSALS,
        openapi_extra=IMAGE_BODY,
    )
    async def turns(
        request: Request, count: int = Query(angles, alias="angles", ge=1, le=limits.angles)
    ) -> Response:
        return await work(partial(answers.turns, count=count), await request.body(), networks)


def _worker(limits: Limits) -> Callable[..., Awaitable[Response]]:
    """Return a function that computes an answer in one of a few threads.

    The guard bounds how many wait. One that waited past its time is not begun, and one that runs
    past it stops between batches.
    """
    pool = ThreadPoolExecutor(limits.workers, thread_name_prefix="invint-serve")

    def compute(
        function: Callable[..., BaseModel],
        body: bytes,
        networks: Sequence[ServedNetwork],
        deadline: float,
    ) -> str:
        if time.monotonic() > deadline:
            raise TimeoutError
        answer = function(body, networks, limits=limits, deadline=deadline)
        return answer.model_dump_json()

    async def work(
        function: Callable[..., BaseModel], body: bytes, networks: Sequence[ServedNetwork]
    ) -> Response:
        deadline = time.monotonic() + limits.seconds
        loop = asyncio.get_running_loop()
        try:
            content = await loop.run_in_executor(pool, compute, function, body, networks, deadline)
        except TimeoutError as error:
            raise RequestError(
                503, f"no answer within {limits.seconds:g} s; ask for less"
            ) from error
        return Response(content, media_type="application/json")

    return work


def _model(networks: Sequence[ServedNetwork], limits: Limits, angles: int) -> schema.ModelResponse:
    return schema.ModelResponse(
        networks=[
            schema.NetworkResponse(
                title=each.title,
                network=each.card.name,
                head=each.card.head,
                group=each.card.group,
                image_size=each.card.image_size,
                channels=each.card.in_channels,
            )
            for each in networks
        ],
        classes=list(networks[0].card.class_names),
        angles=min(angles, limits.angles),
        limits=schema.LimitsResponse(
            **{name: getattr(limits, name) for name in schema.LimitsResponse.model_fields}
        ),
    )
