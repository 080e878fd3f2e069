import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from invint import create_model
from invint.errors import ShapeError
from invint.ops.grids import permute_grid
from invint.report import saliency


def network(name: str, head: str | None) -> nn.Module:
    torch.manual_seed(0)
    return create_model(name, head=head, in_channels=3, image_size=20).double().eval()


@pytest.mark.parametrize(
    ("name", "head"),
    [("cnn-small", None), ("sfcnn-small", "local-ws"), ("sfcnn-small", "max")],
)
@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_saliency_of_a_turned_image_is_the_turned_saliency(
    name: str, head: str | None, quarters: int
) -> None:
    model, images = network(name, head), torch.rand(3, 3, 20, 20, dtype=torch.float64)
    expected = permute_grid(saliency(model, images), quarters, flip=False)
    actual = saliency(model, permute_grid(images, quarters, flip=False))
    largest = expected.abs().max()
    assert largest > 0  # or nothing is shown
    assert (actual - expected).abs().max() <= 1e-9 * largest


def upright_saliency(model: nn.Module, images: Tensor) -> Tensor:
    """Return the term of the sum that belongs to no turn at all."""
    leaf = images.clone().requires_grad_()
    logits = model(leaf)
    score = logits.max(dim=1).values - logits.mean(dim=1)
    (gradient,) = torch.autograd.grad(score.sum(), leaf)
    relevance = (gradient * (images - images.mean(dim=(2, 3), keepdim=True))).sum(dim=1)
    return avg_pool2d(relevance, 3, stride=1, padding=1, count_include_pad=False)


def test_of_an_invariant_network_every_turn_says_the_same_and_of_others_not() -> None:
    images = torch.rand(3, 3, 20, 20, dtype=torch.float64)
    for name, head, same in (("sfcnn-small", "local-ws", True), ("cnn-small", None, False)):
        model = network(name, head)
        upright = upright_saliency(model, images)
        for known in (False, True):
            found = saliency(model, images, invariant=known)
            gap = (found - upright).abs().max() / upright.abs().max()
            assert gap <= 1e-9 if same or known else gap > 0.1


def test_saliency_of_a_linear_network_is_its_definition() -> None:
    weight = torch.randn(4, 2, 6, 6, dtype=torch.float64)
    images = torch.rand(2, 2, 6, 6, dtype=torch.float64)

    def linear(x: Tensor) -> Tensor:
        return torch.einsum("kchw,bchw->bk", weight, x)

    found = saliency(linear, images)
    for image, own in zip(images, found, strict=True):
        turns = [torch.rot90(image, k, (1, 2)) for k in range(4)]
        answer = int(sum(linear(each[None])[0] for each in turns).argmax())  # type: ignore[union-attr]
        expected = torch.zeros(6, 6, dtype=torch.float64)
        for row in range(6):
            for column in range(6):
                for k in range(4):
                    slope = torch.rot90(weight[answer] - weight.mean(dim=0), -k, (1, 2))
                    for channel in range(2):
                        value = image[channel, row, column] - image[channel].mean()
                        expected[row, column] += value * slope[channel, row, column] / 4
        torch.testing.assert_close(own, expected)


def test_saliency_leaves_no_gradients_behind() -> None:
    model, images = network("cnn-small", None), torch.rand(1, 3, 20, 20, dtype=torch.float64)
    found = saliency(model, images)
    assert not found.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


def test_images_that_are_not_square_are_refused() -> None:
    with pytest.raises(ShapeError, match="saliency: expected square images, got 4 x 6; crop or"):
        saliency(lambda x: x.sum(dim=(2, 3)), torch.rand(1, 3, 4, 6))
