"""Generalised means: their formulas, their limits, their gradients."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from invint.ops.means import exp_mean, power_mean

Mean = Callable[[Tensor, Tensor], Tensor]
each_mean = pytest.mark.parametrize("mean", [power_mean, exp_mean])


def by_loops(mean: Mean, x: Tensor, degree: Tensor) -> Tensor:
    out = torch.zeros(x.shape[:2], dtype=torch.float64)
    for b, row in enumerate(x.tolist()):
        for o, values in enumerate(row):
            d = degree[o].item()
            if mean is power_mean:
                out[b, o] = (sum(max(v, 0.0) ** d for v in values) / len(values)) ** (1 / d)
            else:
                out[b, o] = math.log(sum(math.exp(d * v) for v in values) / len(values)) / d
    return out


@each_mean
def test_it_is_the_printed_formula(mean: Mean) -> None:
    x = torch.randn(2, 3, 7, dtype=torch.float64)
    degree = torch.tensor([1.1, 3.0, 20.0], dtype=torch.float64)
    torch.testing.assert_close(mean(x, degree), by_loops(mean, x, degree))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_low_degrees_give_the_mean(dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 50, dtype=dtype)
    one, small = torch.ones(3, dtype=dtype), torch.full((3,), 1e-6, dtype=dtype)
    torch.testing.assert_close(power_mean(x, one), x.relu().mean(-1))
    torch.testing.assert_close(power_mean(x, one + small), x.relu().mean(-1), rtol=1e-5, atol=0)
    torch.testing.assert_close(exp_mean(x, small), x.mean(-1), rtol=1e-5, atol=1e-5)


@each_mean
@pytest.mark.parametrize("degree", [10.0, 100.0, 1e4])
def test_high_degrees_give_the_maximum_within_the_stated_bound(mean: Mean, degree: float) -> None:
    x = torch.rand(20, 3, 50, dtype=torch.float64)
    found, most = mean(x, torch.full((3,), degree, dtype=torch.float64)), x.amax(-1)
    least = most * 50 ** (-1 / degree) if mean is power_mean else most - math.log(50) / degree
    assert (found <= most).all()
    assert (found >= least).all()


@each_mean
def test_gradients(mean: Mean) -> None:
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    degree = torch.tensor([1.5, 3.0, 20.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(mean, (x, degree))


@each_mean
@pytest.mark.parametrize("value", [0.0, -1.0, 1e-38, 1.0, 1e4, 1e30])
@pytest.mark.parametrize("degree", [1.001, 50.0, 1e4])
def test_flat_values_are_their_own_mean_with_finite_gradients(
    mean: Mean, value: float, degree: float
) -> None:
    x = torch.full((1, 1, 9), value, requires_grad=True)
    degrees = torch.tensor([degree], requires_grad=True)
    out = mean(x, degrees)
    out.sum().backward()  # type: ignore[no-untyped-call]
    wanted = max(value, 0.0) if mean is power_mean else value
    torch.testing.assert_close(out.item(), wanted, rtol=1e-5, atol=1e-30)
    for tensor in (x, degrees):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


@each_mean
def test_large_and_small_values_together_are_finite(mean: Mean) -> None:
    x = torch.tensor([[[0.0, 1e-30, 1.0, 1e4, -1e4]]], requires_grad=True)
    degree = torch.tensor([50.0], requires_grad=True)
    out = mean(x, degree)
    out.sum().backward()  # type: ignore[no-untyped-call]
    assert 9e3 < out.item() <= 1e4
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert degree.grad is not None
    assert degree.grad.isfinite().all()


@each_mean
def test_a_nan_is_not_hidden(mean: Mean) -> None:
    x = torch.tensor([[[0.0, float("nan")]], [[0.0, 1.0]]])
    out = mean(x, torch.tensor([5.0]))
    assert out[0].isnan().all()
    assert out[1].isfinite().all()
