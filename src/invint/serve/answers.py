"""The JSON interface: what goes in, what comes out, and how one becomes the other.

The functions run in a worker thread of the server.

Axes:  t angle   c channel   h w pixel
"""

import base64
import io
import math
from collections.abc import Sequence
from typing import TypeVar

import torch
from einops import rearrange
from jaxtyping import Float
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from torch import Tensor

from invint.data.batches import scaled
from invint.data.pictures import TooManyPixelsError, open_picture, read_picture
from invint.errors import DataError
from invint.ops.grids import permute_grid, rotate
from invint.serve.limits import Limits
from invint.serve.networks import ServedNetwork

CURVE_CLASSES = 32  # in a curve; of more than these only the likeliest are sent
DECIMALS = 5  # of a probability
Body = TypeVar("Body", bound=BaseModel)


class ImageRequest(BaseModel):
    """One image."""

    model_config = ConfigDict(extra="forbid")
    image: str = Field(description="The file as base64, with or without `data:…;base64,`.")


class BatchRequest(BaseModel):
    """Several images."""

    model_config = ConfigDict(extra="forbid")
    images: list[str] = Field(description="Each file as base64.")


class Prediction(BaseModel):
    """What one network says about one image."""

    network: str = Field(description="Title of the network, as in `/api/model`.")
    label: str = Field(description="Name of the likeliest class.")
    probability: float = Field(description="Its probability.")
    probabilities: list[float] = Field(description="One for each class, in their order.")


class PredictResponse(BaseModel):
    """What every network says about one image."""

    predictions: list[Prediction]


class BatchResponse(BaseModel):
    """One result for each image, in their order."""

    results: list[PredictResponse]


class Curve(BaseModel):
    """What one network says at every angle."""

    network: str
    classes: list[int] = Field(description="Indices of the classes in `probabilities`.")
    probabilities: list[list[float]] = Field(description="A row for each angle.")
    labels: list[int] = Field(description="Index of the likeliest class at each angle.")


class TurnsResponse(BaseModel):
    """What every network says as an image turns."""

    angles: list[float] = Field(description="In degrees, counter-clockwise.")
    picture: str = Field(description="What the first network sees, as a `data:` address.")
    background: str = Field(description="Colour that comes in at the border.")
    curves: list[Curve]


class NetworkResponse(BaseModel):
    """A network behind this server."""

    title: str
    network: str | None = Field(description="Name for `create_model`.")
    head: str | None
    group: str | None = Field(description="Its symmetries; null for an ordinary network.")
    image_size: tuple[int, int]
    channels: int


class LimitsResponse(BaseModel):
    """What one request may ask for."""

    upload_bytes: int
    pixels: int
    batch: int
    angles: int
    seconds: float


class ModelResponse(BaseModel):
    """The networks, their classes and the limits."""

    networks: list[NetworkResponse]
    classes: list[str]
    angles: int = Field(description="How many `/api/turns` looks at by default.")
    limits: LimitsResponse


class ErrorResponse(BaseModel):
    """Why there is no answer."""

    error: str


def describe(networks: Sequence[ServedNetwork], limits: Limits, angles: int) -> ModelResponse:
    """Say which networks there are, what they know and how much may be asked."""
    return ModelResponse(
        networks=[
            NetworkResponse(
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
        limits=LimitsResponse.model_validate(limits, from_attributes=True),
    )


def predict(
    body: bytes, networks: Sequence[ServedNetwork], *, limits: Limits, deadline: float
) -> PredictResponse:
    """Answer for one image."""
    return _predictions([("", image_bytes(body))], networks, limits, deadline)[0]


def predict_batch(
    body: bytes, networks: Sequence[ServedNetwork], *, limits: Limits, deadline: float
) -> BatchResponse:
    """Answer for several images, or refuse them all, naming the first bad one."""
    encoded = _parsed(BatchRequest, body).images
    if not 1 <= len(encoded) <= limits.batch:
        raise HTTPException(
            413 if encoded else 422,
            f"a batch has 1 to {limits.batch} images, got {len(encoded)}",
        )
    pictures = [
        (f"image {i}: ", _from_base64(each, f"image {i}")) for i, each in enumerate(encoded)
    ]
    return BatchResponse(results=_predictions(pictures, networks, limits, deadline))


def turns(
    body: bytes, networks: Sequence[ServedNetwork], *, count: int, limits: Limits, deadline: float
) -> TurnsResponse:
    """Answer for one image at `count` angles around the circle."""
    data = image_bytes(body)
    formats = {_format(each): each for each in networks}  # networks of one size share the views
    views = {key: rotated(pixels(data, each, limits), count) for key, each in formats.items()}
    first = views[_format(networks[0])][:1]
    return TurnsResponse(
        angles=[round(360 * i / count, 3) for i in range(count)],
        picture=_data_address(first),
        background=_colour(first),
        curves=[_curve(each, views[_format(each)], deadline) for each in networks],
    )


def image_bytes(body: bytes) -> bytes:
    """Return the image in a body: the body itself, or what its JSON holds as base64."""
    if not body:
        raise HTTPException(422, "the body is empty; send the bytes of an image")
    if body.lstrip()[:1] != b"{":  # no image starts like this
        return body
    return _from_base64(_parsed(ImageRequest, body).image, "image")


def pixels(data: bytes, network: ServedNetwork, limits: Limits) -> Float[Tensor, "1 c h w"]:
    """Decode an image at the size of a network, between 0 and 1."""
    try:
        with open_picture(data) as picture:  # reads the header alone
            width, height = picture.size
    except TooManyPixelsError as error:
        raise HTTPException(413, f"the image {error}") from error
    except DataError as error:
        raise HTTPException(415, f"the image {error}") from error
    if width * height > limits.pixels:
        raise HTTPException(
            413, f"an image has at most {limits.pixels:,} pixels, this one {width} x {height}"
        )
    side, channels = _format(network)
    try:
        levels = read_picture(data, side=side, channels=channels)
    except DataError as error:
        raise HTTPException(422, str(error)) from error
    return rearrange(scaled(levels), "c h w -> 1 c h w")


def rotated(image: Float[Tensor, "1 c h w"], count: int) -> Float[Tensor, "t c h w"]:
    """Rotate an image counter-clockwise to `count` angles; background comes in at the border.

    The background is the median of the pixels along the border, channel by channel. Quarter turns
    permute pixels; between them the interpolation is bicubic.
    """
    background = _background(image)
    centred = image - background
    views = [
        permute_grid(centred, 4 * i // count, flip=False)
        if 4 * i % count == 0
        else rotate(centred, 2 * math.pi * i / count, mode="bicubic")
        for i in range(count)
    ]
    return (torch.cat(views) + background).clamp(0, 1)


def _format(network: ServedNetwork) -> tuple[int, int]:
    """Return the side and the channels of the images a network takes."""
    return network.card.image_size[0], network.card.in_channels


def _curve(network: ServedNetwork, views: Tensor, deadline: float) -> Curve:
    probabilities = network.probabilities(views, deadline=deadline)
    likeliest = probabilities.amax(dim=0).topk(min(CURVE_CLASSES, probabilities.shape[1])).indices
    classes = sorted(likeliest.tolist())
    return Curve(
        network=network.title,
        classes=classes,
        probabilities=_rounded(probabilities[:, classes]),
        labels=probabilities.argmax(dim=1).tolist(),
    )


def _predictions(
    pictures: list[tuple[str, bytes]],
    networks: Sequence[ServedNetwork],
    limits: Limits,
    deadline: float,
) -> list[PredictResponse]:
    """Answer for pictures; a refusal begins with what stands before the one it is about."""
    columns = []
    for network in networks:
        images = []
        for owner, data in pictures:
            try:
                images.append(pixels(data, network, limits))
            except HTTPException as error:
                raise HTTPException(error.status_code, owner + error.detail) from error
        rows = network.probabilities(torch.cat(images), deadline=deadline)
        columns.append([_prediction(network, row) for row in rows])
    return [PredictResponse(predictions=list(row)) for row in zip(*columns, strict=True)]


def _prediction(network: ServedNetwork, row: Tensor) -> Prediction:
    best = int(row.argmax())
    (values,) = _rounded(row[None])
    return Prediction(
        network=network.title,
        label=network.card.class_names[best],
        probability=values[best],
        probabilities=values,
    )


def _parsed(kind: type[Body], body: bytes) -> Body:
    """Read JSON; the refusal names the first problem, without what was sent."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        problem = f"{place}: {first['msg']}" if place else first["msg"]
        raise HTTPException(422, f"the body is not as documented: {problem}") from error


def _from_base64(text: str, owner: str) -> bytes:
    _, _, content = text.rpartition(",")  # a `data:` address ends its header with one
    try:
        return base64.b64decode(content, validate=True)
    except ValueError as error:
        raise HTTPException(422, f"{owner}: not base64") from error


def _background(image: Tensor) -> Tensor:
    border = torch.cat((image[..., 0, :], image[..., -1, :], image[..., 0], image[..., -1]), dim=-1)
    return rearrange(border.median(dim=-1).values, "1 c -> 1 c 1 1")


def _colour(image: Tensor) -> str:
    """Return the background as CSS has it: `#` and two digits for red, green and blue."""
    channels = _background(image).expand(1, 3, 1, 1).flatten().tolist()  # grey is three alike
    return "#" + "".join(f"{round(255 * each):02x}" for each in channels)


def _data_address(image: Tensor) -> str:
    levels = (255 * image[0]).round().to(torch.uint8).permute(1, 2, 0)
    if levels.shape[2] == 1:
        levels = levels[..., 0]
    file = io.BytesIO()
    Image.fromarray(levels.contiguous().numpy()).save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _rounded(rows: Tensor) -> list[list[float]]:
    return [[round(value, DECIMALS) for value in row] for row in rows.tolist()]
