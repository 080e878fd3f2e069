"""The training loop: the loss with its penalties, an optimizer, a meter, steps."""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn, stack
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from invint.errors import ConfigError
from invint.nn import GroupBatchNorm, GroupConv2d, LiftConv2d, OrbitFeatures

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
        label_smoothing: Fraction of each label that is spread over all classes.

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
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.network = network
        self.compiled: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None
        self.reg, self.elastic, self.norm_penalty = reg, elastic, norm_penalty
        self.label_smoothing = label_smoothing
        self.register_buffer("class_weights", class_weights, persistent=False)

    def forward(self, images: Float[Tensor, "b c h w"], labels: Int[Tensor, " b"]) -> Tensor:
        """Return the terms of the loss and the fraction of wrong answers, as one tensor."""
        if self.compiled is None:
            logits, elastic = self.network(images), self.elastic_term(images)
        else:
            maps, total = self.compiled(images)
            logits = self.network.forward_head(maps)  # type: ignore[operator]
            elastic = self.elastic_term(images, total)
        logits = logits.float()
        each = cross_entropy(
            logits,
            labels,
            weight=self.class_weights,
            reduction="none",
            label_smoothing=self.label_smoothing,
        )
        entropy, norm = each.mean(), self.norm_term(images)
        wrong = (logits.argmax(dim=1) != labels).float().mean()
        return stack([entropy + elastic + norm, entropy, elastic, norm, wrong])

    def compile_features(self, *, graphs: bool) -> None:
        """Compile what takes nearly all the time and is the same for every head.

        Networks with another head, or with fewer monomials than before, use what was compiled
        already. The little that follows is launched while the device still works on the features.

        Args:
            graphs: Launch each half of a step as one CUDA graph. Gradients are then valid until
                the next step, so that they cannot be accumulated over several.
        """
        body = Body(self.network.get_submodule("features"), penalised=bool(self.reg * self.elastic))
        self.compiled = torch.compile(
            body,
            dynamic=False,
            options={"triton.cudagraphs": graphs, "comprehensive_padding": False},  # see the guide
        )

    def elastic_term(self, like: Tensor, total: Tensor | None = None) -> Tensor:
        """Return the penalty of steerable weights with its factor and the constant λ.

        Args:
            like: Has the device of the result.
            total: The sum over the weights of the features, where it is known.
        """
        parts = ("",) if total is None else ("head", "classifier")  # "" is the whole network
        total = torch.zeros((), device=like.device) if total is None else total
        if self.reg * self.elastic:
            for part in parts:
                total = total_size(self.network.get_submodule(part), total)
        return self.reg * self.elastic * total

    def norm_term(self, like: Tensor) -> Tensor:
        """Return the penalty of batch normalisation with its factor and the constant λ."""
        total = torch.zeros((), device=like.device)
        if self.reg * self.norm_penalty:
            for layer in self.network.modules():
                if isinstance(layer, NORMS):
                    total = total + layer.weight.square().sum() + layer.bias.square().sum()
        return self.reg * self.norm_penalty * total


class Body(nn.Module):
    """The features of a network, and how large their steerable weights are.

    Args:
        features: Takes images to the last feature map.
        penalised: Whether the weights are looked at; the sum is zero otherwise.
    """

    def __init__(self, features: nn.Module, *, penalised: bool) -> None:
        super().__init__()
        self.features, self.penalised = features, penalised

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last feature map and the sum over the weights."""
        total = torch.zeros((), device=images.device)
        return self.features(images), total_size(self, total) if self.penalised else total


def total_size(network: nn.Module, total: Tensor) -> Tensor:
    """Add |w| + w² of all steerable weights to a sum."""
    for layer in network.modules():
        if isinstance(layer, LiftConv2d | GroupConv2d):
            total = total + layer.weight.abs().sum() + layer.weight.square().sum()
    return total


Batch = tuple[Tensor, Tensor]


class Meter:
    """Means of the terms of the loss, kept on the device until they are read."""

    def __init__(self, device: torch.device) -> None:
        dtype = torch.float32 if device.type == "mps" else torch.float64  # MPS has no other
        self.sums = torch.zeros(len(TERMS) + 1, dtype=dtype, device=device)

    def add(self, terms: Tensor, images: int) -> None:
        """Count a batch; nothing is waited for."""
        self.sums[:-1] += terms.detach() * images
        self.sums[-1] += images

    def read(self) -> dict[str, float]:
        """Return the means and start over; waits for the device."""
        *sums, images = self.sums.tolist()
        self.sums.zero_()
        return {term: total / max(images, 1) for term, total in zip(TERMS, sums, strict=True)}


def make_optimizer(
    network: nn.Module,
    name: str,
    *,
    lr: float,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    clip_norm: float = 0.0,
) -> torch.optim.Optimizer:
    """Return Adam, AdamW, or stochastic gradient descent with Nesterov momentum.

    Args:
        network: Its parameters that require gradients are optimised.
        name: `adam`, `adamw` or `sgd`.
        lr: The learning rate.
        momentum: Of `sgd`.
        weight_decay: Of `adamw` and `sgd`.
        clip_norm: Norm that gradients are scaled down to where they are longer; 0 for any length.
    """
    if not all(0 <= each < math.inf for each in (lr, momentum, weight_decay, clip_norm)):
        raise ConfigError(
            "optimizer: expected learning rate, momentum, weight decay and clip_norm of 0 or more, "
            f"got {lr:g}, {momentum:g}, {weight_decay:g} and {clip_norm:g}"
        )
    parameters = [each for each in network.parameters() if each.requires_grad]
    common: dict[str, Any] = {"lr": lr, "fused": parameters[0].is_cuda}
    optimizer: torch.optim.Optimizer
    if name == "adam":
        optimizer = torch.optim.Adam(parameters, **common)
    elif name == "adamw":
        optimizer = torch.optim.AdamW(parameters, **common, weight_decay=weight_decay)
    elif name == "sgd":
        common |= {"momentum": momentum, "nesterov": momentum > 0, "weight_decay": weight_decay}
        optimizer = torch.optim.SGD(parameters, **common)
    else:
        raise ConfigError(f"no optimizer {name!r}; there are adam, adamw and sgd")
    if clip_norm:
        optimizer.register_step_pre_hook(partial(_clip, clip_norm))
    return optimizer


def _clip(norm: float, optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Scale gradients down; asked for at each step, since pruning replaces parameters."""
    clip_grad_norm_([each for group in optimizer.param_groups for each in group["params"]], norm)


def channels_last(network: nn.Module) -> None:
    """Lay out plain convolutions as a GPU likes them; steerable ones see to it themselves."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.weight.data = module.weight.data.contiguous(memory_format=torch.channels_last)


def set_modes(network: nn.Module, *, keep_statistics: bool, one_copy: bool) -> None:
    """Say how a network is to behave in training; in evaluation it is the same.

    Args:
        network: In training mode.
        keep_statistics: Normalise by running statistics, and leave them as they are.
        one_copy: Show orbits one random copy of each image; in evaluation one after another, so
            that it takes no more memory.
    """
    for module in network.modules():
        if isinstance(module, NORMS) and keep_statistics:
            module.eval()
        if isinstance(module, OrbitFeatures) and one_copy:
            module.one_copy, module.chunk = True, 1


def fit(
    objective: Callable[[Tensor, Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    batches: Callable[[range], Iterable[Batch]],
    *,
    steps: range,
    rate: Callable[[int], float],
    meter: Meter,
    accumulate: int = 1,
    after_step: Callable[[int], bool] | None = None,
) -> int:
    """Train in place, and return the index of the next step.

    Args:
        objective: Takes images and labels to the terms of the loss, the loss first.
        optimizer: Holds the parameters.
        batches: The batches of given steps; a step always gets the same batch.
        steps: Which steps to make: `range(0, 100)`, or `range(40, 100)` to resume at 40.
        rate: The learning rate at a step.
        meter: Counts the terms.
        accumulate: Parts a batch is worked through in.
        after_step: Told the next step; true stops the loop there.
    """
    if accumulate < 1:
        raise ConfigError(f"fit: expected accumulate to be 1 or more, got {accumulate}")
    for step, (images, labels) in zip(steps, batches(steps), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.zero_grad(set_to_none=True)
        for part, answers in _parts(images, labels, accumulate):
            terms = objective(part, answers)
            (terms[0] * (len(part) / len(images))).backward()  # type: ignore[no-untyped-call]
            meter.add(terms, len(part))
        optimizer.step()
        if after_step is not None and after_step(step + 1):
            return step + 1
    return steps.stop


def _parts(images: Tensor, labels: Tensor, count: int) -> Iterator[Batch]:
    if count == 1:
        return iter([(images, labels)])
    count = min(count, len(images))
    return zip(images.tensor_split(count), labels.tensor_split(count), strict=True)
