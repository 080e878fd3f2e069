"""What training makes small: cross-entropy and the paper's penalties, term by term."""

from jaxtyping import Float, Int
from torch import Tensor, nn, stack
from torch.nn.functional import cross_entropy

from invint.nn import GroupBatchNorm, GroupConv2d, LiftConv2d

TERMS = ("loss", "cross_entropy", "elastic", "norm_penalty", "error")
NORMS = (GroupBatchNorm, nn.BatchNorm1d, nn.BatchNorm2d)


class Objective(nn.Module):
    r"""The loss of a batch with each of its terms.

    $$L = \mathrm{CE} + \lambda\,\Big(a \sum_w (|w| + w^2) + b \sum (\gamma^2 + \beta^2)\Big)$$

    over the weights $w$ of steerable filters and the coefficients $\gamma, \beta$ of batch
    normalisation. At λ = 0.2 and b = 0.1 the last term starts above the cross-entropy: the paper
    says so. CE is a mean over images, with class weights too, so that the mean of equal parts of a
    batch is that of the whole.

    Args:
        network: Takes images to logits.
        reg: λ.
        elastic: a.
        norm_penalty: b.
        class_weights: Weight of each class in the cross-entropy.

    Shape:
        Images `(b, c, h, w)` and labels `(b,)` to the five `TERMS`.
    """

    class_weights: Tensor | None

    def __init__(
        self,
        network: nn.Module,
        *,
        reg: float = 0.0,
        elastic: float = 0.0,
        norm_penalty: float = 0.0,
        class_weights: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.reg, self.elastic, self.norm_penalty = reg, elastic, norm_penalty
        self.register_buffer("class_weights", class_weights, persistent=False)

    def forward(self, images: Float[Tensor, "b c h w"], labels: Int[Tensor, " b"]) -> Tensor:
        """Return the terms of the loss and the share of wrong answers, as one tensor."""
        logits = self.network(images).float()
        each = cross_entropy(logits, labels, weight=self.class_weights, reduction="none")
        entropy = each.mean()
        elastic, norm = self.penalties(like=entropy)
        wrong = (logits.argmax(dim=1) != labels).float().mean()
        return stack([entropy + elastic + norm, entropy, elastic, norm, wrong])

    def penalties(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return both penalties, each with its factor and the constant λ."""
        elastic, norm = like.new_zeros(()), like.new_zeros(())
        if self.reg * self.elastic:
            for weight in steerable_weights(self.network):
                elastic = elastic + weight.abs().sum() + weight.square().sum()
        if self.reg * self.norm_penalty:
            for coefficient in norm_coefficients(self.network):
                norm = norm + coefficient.square().sum()
        return self.reg * self.elastic * elastic, self.reg * self.norm_penalty * norm


def steerable_weights(network: nn.Module) -> list[Tensor]:
    """Return the weights of all steerable filters."""
    layers = (each for each in network.modules() if isinstance(each, LiftConv2d | GroupConv2d))
    return [layer.weight for layer in layers]


def norm_coefficients(network: nn.Module) -> list[Tensor]:
    """Return scales and shifts of all batch normalisations."""
    layers = (each for each in network.modules() if isinstance(each, NORMS))
    return [coefficient for layer in layers for coefficient in (layer.weight, layer.bias)]
