"""The Triton kernels against the plain path: interpreted on a CPU, compiled on a GPU."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from invint import Cyclic, Dihedral, Group
from invint.nn import MonomialIntegration
from invint.ops.monomial import KERNEL, Sampling, monomial_averages

pytestmark = [
    pytest.mark.unchecked,
    pytest.mark.slow,
    pytest.mark.skipif(not KERNEL, reason="triton is not installed"),
]
CASES = [
    (Cyclic(4), (5, 5), 3, False),
    (Cyclic(8), (4, 7), 5, True),
    (Dihedral(3), (9, 8), 17, False),
    (Cyclic(16), (3, 3), 1, False),
]
each_case = pytest.mark.parametrize(("group", "size", "count", "own_angles"), CASES, ids=str)


def test_interpreted_kernels_agree_with_the_plain_path() -> None:
    """In a process of its own: the interpreter is chosen when Triton is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["same"] * len(CASES)


def problem(
    group: Group, size: tuple[int, int], count: int, own_angles: bool
) -> tuple[Tensor, Tensor, Tensor, Sampling]:
    torch.manual_seed(0)
    head = MonomialIntegration(3, size, group, monomials=count, own_angles=own_angles)
    powers = (head.exponents[:, :, None] * head.factor_offsets).sum(1).detach()
    x = torch.randn(2, 3, *size)
    sampling = Sampling(*(getattr(head, name) for name in Sampling._fields))
    return x, powers, torch.randn(2, 3, count), sampling


def interpreted(group: Group, size: tuple[int, int], count: int, own_angles: bool) -> None:
    from invint.ops import monomial_triton as kernels

    x, powers, gradient, sampling = problem(group, size, count, own_angles)
    found = kernels.run_average(kernels._average, x, powers, sampling.shifts, 0.1)
    to_x, to_powers = kernels.run_gradients(
        kernels._gradients, x, powers, sampling.shifts, gradient, 0.1
    )
    x.requires_grad_(), powers.requires_grad_()
    expected = monomial_averages(x, powers, sampling, floor=0.1)
    torch.testing.assert_close(found, expected)
    wanted = torch.autograd.grad(expected, (x, powers), gradient)
    torch.testing.assert_close(to_x, wanted[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(to_powers.sum(0).mT, wanted[1], rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@each_case
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_compiled_kernels_agree_with_the_plain_path(
    group: Group,
    size: tuple[int, int],
    count: int,
    own_angles: bool,
    compiled: bool,
    dtype: torch.dtype,
) -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    head = MonomialIntegration(3, size, group, monomials=count, own_angles=own_angles)
    x, gradient = torch.randn(2, 3, *size).to(dtype), torch.randn(2, 3 * count)
    twin = MonomialIntegration(3, size, group, monomials=head.monomials).cuda()
    run = torch.compile(twin, fullgraph=True) if compiled else twin
    x.requires_grad_()
    there = x.detach().cuda().requires_grad_()
    out = run(there)
    expected = head(x)
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-5)
    wanted = torch.autograd.grad(expected, (x, head.exponents), gradient)
    found = torch.autograd.grad(out, (there, twin.exponents), gradient.cuda())
    for actual, reference in zip(found, wanted, strict=True):
        assert actual.dtype == reference.dtype
        torch.testing.assert_close(
            actual.cpu(), reference, rtol=1e-2 if dtype == torch.bfloat16 else 1e-4, atol=1e-4
        )


if __name__ == "__main__":
    for case in CASES:
        interpreted(*case)
        sys.stdout.write("same\n")
