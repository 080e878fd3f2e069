"""Dropout that treats the orientations of a channel as one thing."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import dropout3d

from invint.axes import check_axes
from invint.errors import ConfigError


class GroupDropout(nn.Module):
    """Zero whole channels while training, all orientations and pixels of a channel together.

    Args:
        rate: Probability that a channel is dropped.

    Shape:
        `(b, c, g, h, w)` to the same.
    """

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        if not 0 <= rate <= 1:
            raise ConfigError(f"GroupDropout: rate must lie between 0 and 1, got {rate}")
        self.rate = rate

    def forward(self, x: Float[Tensor, "b c g h w"]) -> Float[Tensor, "b c g h w"]:
        """Drop."""
        check_axes(x, "b c g h w", "GroupDropout")
        return dropout3d(x, self.rate, self.training)

    def extra_repr(self) -> str:
        """Describe the layer as a printed model shows it."""
        return f"rate={self.rate}"
