"""What goes into and comes out of the JSON interface."""

from pydantic import BaseModel, ConfigDict, Field


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
    classes: list[int] = Field(description="Numbers of the classes in `probabilities`.")
    probabilities: list[list[float]] = Field(description="A row for each angle.")
    labels: list[int] = Field(description="Number of the likeliest class at each angle.")


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
    group: str | None = Field(description="Its symmetries; none for an ordinary network.")
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
    angles: int = Field(description="How many `/api/turns` looks at unless told.")
    limits: LimitsResponse


class HealthResponse(BaseModel):
    """That the server is there."""

    status: str


class ErrorResponse(BaseModel):
    """Why there is no answer."""

    error: str
