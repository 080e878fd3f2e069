"""The Triton kernels against the plain path: interpreted on a CPU, compiled on a GPU."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from invint import Cyclic, Dihedral, Group
from invint.nn import MonomialIntegration, Monomials

CASES = [
    (Cyclic(4), (5, 5), 3, False),
    (Cyclic(8), (4, 7), 5, True),
    (Dihedral(3), (9, 8), 13, False),
    (Cyclic(16), (3, 3), 1, False),
]
PRECISIONS = [torch.float32, torch.bfloat16]
INTERPRETED = [  # small: the interpreter works through every program one by one
    (Cyclic(4), (5, 5), 3, False, torch.float32),
    (Cyclic(4), (5, 5), 3, False, torch.bfloat16),
    (Cyclic(8), (3, 5), 5, True, torch.float32),
    (Dihedral(3), (4, 5), 2, False, torch.float32),
]
each_case = pytest.mark.parametrize(("group", "size", "count", "own_angles"), CASES, ids=str)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_interpreted_kernels_agree_with_the_plain_path() -> None:
    """In a process of its own: the interpreter is chosen when Triton is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["same"] * len(INTERPRETED)


def interpreted(
    group: Group, size: tuple[int, int], count: int, own_angles: bool, dtype: torch.dtype
) -> None:
    from invint.ops import monomial_triton as kernels

    torch.manual_seed(0)
    head = MonomialIntegration(3, size, group, monomials=count, own_angles=own_angles)
    x, gradient = torch.randn(2, 3, *size, dtype=dtype), torch.randn(2, 3, count)
    exponents, shifts = head.exponents.detach(), head.get_buffer("shifts")
    arguments = x, exponents, shifts, head.plan
    found = kernels.run_average(*arguments, floor=head.floor)
    found_gradients = kernels.run_gradients(gradient, *arguments, floor=head.floor)
    same = x.float().requires_grad_()
    expected = head(same)
    wanted = torch.autograd.grad(expected, (same, head.exponents), gradient.flatten(1))
    torch.testing.assert_close(found.flatten(1), expected)
    assert found_gradients[0].dtype == dtype
    to_x = {torch.float32: 1e-4, torch.bfloat16: 2**-7}[dtype]  # the interpreter cuts bits off
    for actual, reference, rtol in zip(found_gradients, wanted, (to_x, 1e-4), strict=True):
        torch.testing.assert_close(actual.float(), reference, rtol=rtol, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.slow
@each_case
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_kernels_on_a_gpu_agree_with_the_plain_path(
    group: Group,
    size: tuple[int, int],
    count: int,
    own_angles: bool,
    compiled: bool,
    dtype: torch.dtype,
) -> None:
    torch.compiler.reset()
    head = MonomialIntegration(3, size, group, monomials=count, own_angles=own_angles)
    x = torch.randn(2, 3, *size).to(dtype).requires_grad_()
    twin = MonomialIntegration(3, size, group, monomials=head.monomials).cuda()
    run = torch.compile(twin, fullgraph=True) if compiled else twin
    there = x.detach().cuda().requires_grad_()
    with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
        out = run(there)
    gradient = torch.randn(2, 3 * count)
    exact, reference = head.double(), x.detach().double().requires_grad_()
    expected = exact(reference)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=1e-5, atol=1e-6)
    wanted = torch.autograd.grad(expected, (reference, exact.exponents), gradient.double())
    found = torch.autograd.grad(out, (there, twin.exponents), gradient.cuda())
    again = torch.autograd.grad(run(there), (there, twin.exponents), gradient.cuda().to(dtype))
    assert found[0].dtype == dtype
    half = dtype == torch.bfloat16
    for actual, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(
            actual.cpu().double(), right, rtol=1e-2 if half else 1e-4, atol=1e-4
        )
    if not half:
        assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


@pytest.mark.gpu
@pytest.mark.slow
def test_extreme_values_stay_finite_on_a_gpu() -> None:
    monomials = Monomials(((0, 1), (0, 1)), ((0, 0), (0, 0)), ((16.0, 0.0), (0.0, 0.0)))
    head = MonomialIntegration(64, 5, Cyclic(16), monomials=monomials).cuda()
    for value in (0.0, 1e-3, 1e4):
        x = torch.full((64, 64, 5, 5), value, device="cuda", requires_grad=True)
        out = head(x)
        gradients = torch.autograd.grad(out.sum(), (x, head.exponents))
        assert all(tensor.isfinite().all() for tensor in (out, *gradients))
    x = torch.ones(2, 64, 5, 5, device="cuda")
    x[0, :, 2, 2] = float("nan")
    assert torch.equal(head(x).isnan().all(dim=1).cpu(), torch.tensor([True, False]))


if __name__ == "__main__":
    for case in INTERPRETED:
        interpreted(*case)
        sys.stdout.write("same\n")
