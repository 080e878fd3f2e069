"""What every head promises, over the registry."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from invint import ConfigError, Cyclic, Dihedral, Group, ShapeError
from invint.nn import (
    HEADS,
    GlobalPool,
    GlobalWeightedSum,
    GroupPool,
    Head,
    LocalWeightedSum,
    MLPIntegration,
    MonomialIntegration,
    SelfAttentionIntegration,
    SteerableIntegration,
    make_head,
)
from invint.testing import assert_invariant

GROUPS = [Cyclic(4), Cyclic(8), Cyclic(16), Dihedral(4)]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in HEADS),
    ("monomials", {"own_angles": True}),
    ("monomials", {"factors": 1, "monomials": 2}),
    ("monomials", {"scale_free": True, "exponents": (0.5, 2.0)}),
    ("local-ws", {"kernel_size": 5}),
    ("mlp", {"layers": 3, "kernel_size": 1}),
    ("attention", {"heads": 2, "head_channels": 5, "scaled": False}),
    ("sf-ii", {"kernel_size": 3}),
    ("power-mean", {"kernel_size": 5, "power": 2.0}),
    ("exp-mean", {"kernel_size": 1, "sharpness": 0.5}),
    ("joint-monomials", {"across": True, "places": 0, "scale_free": True}),
    ("joint-ws", {"kernel_size": 5}),
    ("joint-mlp", {"layers": 1, "kernel_size": 1}),
]
ON_GROUP = ("sf-ii", "joint-monomials", "joint-ws", "joint-mlp")  # before group pooling
ANY_SIZE = (
    "local-ws",
    "mlp",
    "sf-ii",
    "power-mean",
    "exp-mean",
    "joint-ws",
    "joint-mlp",
)  # >= kernel
each_variant = pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
each_head = pytest.mark.parametrize("name", HEADS)
each_group = pytest.mark.parametrize("group", GROUPS, ids=str)


def head_and_map(
    name: str, group: Group, size: int | tuple[int, int] = 6, batch: int = 2, **options: Any
) -> tuple[nn.Module, Tensor]:
    head = make_head(name, channels=3, size=size, group=group, **options).double()
    sides = (size, size) if isinstance(size, int) else size
    axes = (group.order,) if head.takes_group else ()
    return head, torch.randn(batch, 3, *axes, *sides, dtype=torch.float64)


@each_variant
@each_group
@pytest.mark.parametrize("size", [5, 7, 8, (6, 8), (5, 8)], ids=str)
def test_features_stay_as_the_map_turns(
    name: str, options: dict[str, Any], group: Group, size: int | tuple[int, int]
) -> None:
    head, x = head_and_map(name, group, size, **options)
    assert_invariant(head, x, group)
    assert head(x).shape == (2, head.out_features)


@each_variant
def test_features_depend_on_the_map(name: str, options: dict[str, Any]) -> None:
    head, x = head_and_map(name, Dihedral(4), **options)
    first, second = head(x)
    assert (first - second).abs().max() > 1e-3


@each_variant
@pytest.mark.parametrize("group", [Cyclic(3), Dihedral(2)], ids=str)
def test_gradients(name: str, options: dict[str, Any], group: Group) -> None:
    size = 5 if options.get("kernel_size") == 5 else 4
    head, x = head_and_map(name, group, size, batch=1, **options)
    away = name == "max" or "monomials" in name  # from the kink of relu
    x = x.abs() + 0.1 if away else x

    def respond(x: Tensor, *parameters: Tensor) -> Tensor:
        named = dict(zip(dict(head.named_parameters()), parameters, strict=True))
        out: Tensor = torch.func.functional_call(head, named, (x,))
        return out

    assert torch.autograd.gradcheck(respond, (x.requires_grad_(), *head.parameters()))


@each_variant
def test_state_copies_and_pickles(name: str, options: dict[str, Any]) -> None:
    head, x = head_and_map(name, Cyclic(8), **options)
    assert list(head.train().state_dict()) == list(head.eval().state_dict())
    for twin in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        assert torch.equal(twin(x), head(x))
    fresh, _ = head_and_map(name, Cyclic(8), **options)
    fresh.load_state_dict(head.state_dict())
    assert torch.equal(fresh(x), head(x))


@each_head
def test_autocast_computes_in_float32(name: str) -> None:
    head, x = head_and_map(name, Cyclic(8))
    head, x = head.float(), x.abs().bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        out = head(x)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, head(x.float()))  # of the same rounded input


@each_head
def test_backward_may_run_under_autocast(name: str) -> None:
    head, x = head_and_map(name, Cyclic(8))
    head, x = head.float(), x.abs().float().requires_grad_()
    expected = torch.autograd.grad(head(x).square().sum(), x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        (found,) = torch.autograd.grad(head(x).square().sum(), x)
    error = (found - expected).norm() / expected.norm()
    assert error <= (1e-6 if "monomials" in name else 2e-2)  # others: as autocast would have it


@each_head
def test_is_built_without_memory_on_the_meta_device(name: str) -> None:
    with torch.device("meta"):
        head = make_head(name, channels=3, size=6, group=Cyclic(4))
    assert all(tensor.is_meta for tensor in head.parameters())


@each_head
def test_shapes_and_gradients_are_known_without_data(name: str) -> None:
    head, x = head_and_map(name, Cyclic(8))
    head, x = head.to("meta"), x.to("meta").requires_grad_()
    out = head(x)
    assert out.shape == (2, head.out_features)
    out.sum().backward()
    assert x.grad is not None
    assert all(each.grad is not None for each in head.parameters())


@each_head
def test_channels_last_gives_the_same(name: str) -> None:
    head, x = head_and_map(name, Cyclic(8))
    layout = torch.channels_last_3d if head.takes_group else torch.channels_last
    torch.testing.assert_close(head(x.to(memory_format=layout)), head(x))


@each_variant
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_networks_get_half_precision_features(
    name: str, options: dict[str, Any], dtype: torch.dtype
) -> None:
    head, x = head_and_map(name, Cyclic(4), **options)
    half, values = head.to(dtype), x.abs().to(dtype)
    any_size = name in ("max", "avg", *ANY_SIZE)
    for some in (values, values[..., :5]) if any_size else (values,):
        out = half(some)
        assert out.dtype == dtype
        assert out.isfinite().all()


@each_head
def test_an_empty_batch_has_no_features(name: str) -> None:
    head, x = head_and_map(name, Cyclic(4))
    assert head(x[:0]).shape == (0, head.out_features)


@each_head
def test_heads_do_not_share_their_buffers(name: str) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        first, second = (make_head(name, channels=2, size=6, group=Cyclic(4)) for _ in range(2))
    finally:
        torch.set_default_dtype(torch.float32)
    owned = {buffer.data_ptr() for buffer in first.buffers()}
    assert not owned & {buffer.data_ptr() for buffer in second.buffers()}


def test_attention_drops_weights_in_training_only() -> None:
    head, x = head_and_map("attention", Cyclic(4), dropout=0.5)
    assert not torch.equal(head.train()(x), head(x))
    assert torch.equal(head.eval()(x), head(x))


@pytest.mark.parametrize("name", ANY_SIZE)
def test_maps_smaller_than_the_kernel_are_refused(name: str) -> None:
    head, x = head_and_map(name, Cyclic(4), kernel_size=5)
    with pytest.raises(ShapeError, match=r"expected a map of at least 5 x 5, .*, got 4 x 6"):
        head(x[..., :4, :])


@pytest.mark.parametrize("name", ANY_SIZE)
def test_other_sizes_are_taken_without_a_trace(name: str) -> None:
    """A head built for one size, traced at another, computes real numbers afterwards."""
    head, x = head_and_map(name, Cyclic(4))
    wide = torch.cat([x, x], dim=-1)
    fresh = make_head(name, channels=3, size=(6, 12), group=Cyclic(4)).double()
    fresh.load_state_dict(head.state_dict())
    with FakeTensorMode(allow_non_fake_inputs=True):
        head(torch.empty_like(wide))
    torch.testing.assert_close(head(wide), fresh(wide))
    assert type(head(wide)) is Tensor


@pytest.mark.unchecked
@pytest.mark.slow
@each_head
def test_exports_with_an_open_batch(name: str) -> None:
    head, x = head_and_map(name, Cyclic(4))
    exported = torch.export.export(head, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    _, more = head_and_map(name, Cyclic(4), batch=5)
    torch.testing.assert_close(exported.module()(more), head(more))


@pytest.mark.unchecked
@pytest.mark.slow
@each_head
def test_compiles_to_one_graph(name: str) -> None:
    torch.compiler.reset()
    head, x = head_and_map(name, Dihedral(4))
    compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
    found = [gradients(function, head, x) for function in (compiled, head)]
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected)


def gradients(function: Any, head: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = function(x)
    return [out, *torch.autograd.grad(out.square().sum(), (x, *head.parameters()))]


@pytest.mark.unchecked
@pytest.mark.slow
@pytest.mark.parametrize("name", ["monomials", "local-ws"])
def test_compiles_with_inductor(name: str) -> None:
    torch.compiler.reset()
    head, x = head_and_map(name, Cyclic(8))
    found = [gradients(function, head, x) for function in (torch.compile(head), head)]
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected)


@each_head
@pytest.mark.parametrize("value", [0.0, 1e4])
def test_flat_maps_give_finite_features_and_gradients(name: str, value: float) -> None:
    head, x = head_and_map(name, Cyclic(16))
    head, x = head.float(), torch.full_like(x, value).float().requires_grad_()
    out = head(x)
    out.sum().backward()
    assert out.isfinite().all()
    for tensor in (x, *head.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


@each_head
def test_sizes_are_those_the_head_declares(name: str) -> None:
    head = make_head(name, channels=4, size=(6, 7), group=Cyclic(4))
    assert head.takes_group == (name in ON_GROUP)
    expected = 4 * 10 if "monomials" in name else 4
    assert head.out_features == expected
    x = torch.randn(3, 4, 4, 6, 7)
    assert head(x if head.takes_group else GroupPool()(x)).shape == (3, expected)


@pytest.mark.unchecked
@each_head
def test_says_which_axis_is_wrong(name: str) -> None:
    head = make_head(name, channels=3, size=5, group=Cyclic(4))
    axes = (4,) if head.takes_group else ()
    with pytest.raises(ShapeError, match=r": expected c=3, got c=2 \(axes: b c "):
        head(torch.zeros(1, 2, *axes, 5, 5))
    with pytest.raises(ShapeError, match=r": expected \d axes, got 3"):
        head(torch.zeros(3, 5, 5))
    with pytest.raises(ShapeError, match=r": expected a float tensor, got torch.uint8"):
        head(torch.zeros(1, 3, *axes, 5, 5, dtype=torch.uint8))


@pytest.mark.unchecked
@pytest.mark.parametrize("name", ["global-ws", "local-ws", "mlp", "attention", "sf-ii"])
def test_a_map_of_another_precision_than_the_weights_is_refused(name: str) -> None:
    head = make_head(name, channels=3, size=5, group=Cyclic(4))
    axes = (4,) if head.takes_group else ()
    x = torch.rand(1, 3, *axes, 5, 5, dtype=torch.float64)
    with pytest.raises(
        ShapeError, match=r"\w: expected a map of float32, as the weights are, got fl"
    ):
        head(x)
    with pytest.raises(
        ShapeError, match=r"got float32; convert one, with x.to\(torch.float64\) or"
    ):
        head.double()(x.float())
    assert head.float()(x.half()).dtype == torch.float16


@pytest.mark.parametrize(
    "kind",
    [
        MonomialIntegration,
        GlobalWeightedSum,
        LocalWeightedSum,
        MLPIntegration,
        SelfAttentionIntegration,
        SteerableIntegration,
    ],
)
def test_a_head_without_channels_is_refused(kind: type[Head]) -> None:
    with pytest.raises(ConfigError, match=f"{kind.__name__}: channels must be at least 1, got 0"):
        kind(0, 5, Cyclic(4))


def test_a_pool_without_channels_is_refused() -> None:
    with pytest.raises(ConfigError, match="GlobalPool: channels must be at least 1, got -1"):
        GlobalPool(-1)


@pytest.mark.parametrize("name", ["monomials", "global-ws", "attention"])
def test_heads_built_for_a_size_refuse_others(name: str) -> None:
    head = make_head(name, channels=3, size=(5, 6), group=Cyclic(4))
    assert head(torch.randn(1, 3, 6, 5)).shape[0] == 1  # the same map on its side
    with pytest.raises(ShapeError, match=r": expected w=6, got w=5 \(axes: b c h w"):
        head(torch.zeros(1, 3, 5, 5))
    for group in (Cyclic(2), Dihedral(2), Dihedral(6)):  # no quarter turn in these
        upright = make_head(name, channels=3, size=(5, 6), group=group)
        with pytest.raises(ShapeError, match=r": expected h=5, got h=6"):
            upright(torch.zeros(1, 3, 6, 5))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("monomial", {}, r"no head 'monomial'; did you mean 'monomials'\? there are max, avg, mon"),
        ("pool", {}, r"no head 'pool'; there are max, avg, monomials"),
        ("max", {}, "head 'max' has no option 'depth'; it has none"),
        ("local-ws", {}, "head 'local-ws' has no option 'depth'; it has kernel_size"),
        ("local-ws", {"kernel_size": 7}, "a kernel of 7 does not fit a map of 6 x 6; use kernel_s"),
        ("mlp", {"kernel_size": 4}, "kernel_size must be odd and at least 1, got 4; use 3"),
        ("mlp", {"kernel_size": -3}, "kernel_size must be odd and at least 1, got -3; use 1"),
        ("mlp", {"layers": 0}, "MLPIntegration: layers must be at least 1, got 0"),
        (
            "sf-ii",
            {"kernel_size": 9},
            r"SteerableIntegration: a kernel of 9 does not fit .*_size=5",
        ),
        ("attention", {"heads": 0}, "heads and head_channels must be at least 1, got 0 and 3"),
        ("attention", {"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ("monomials", {"monomials": 0}, "count, factors and max_distance must be at least 1"),
        ("monomials", {"floor": 0.0}, "MonomialIntegration: floor must be positive and finite, g"),
        ("monomials", {"floor": 1e-50}, "floor must be positive and finite, got 1e-50"),
        ("monomials", {"max_distance": 6}, "a distance of 6 does not fit a map of 6 x 6; use at m"),
        ("monomials", {"max_distance": 99}, r"a distance of \d+ does not fit a map of 6 x 6; use "),
    ],
)
def test_says_what_is_wrong_with_an_option(
    name: str, options: dict[str, Any], message: str
) -> None:
    if "depth" in message:
        options = {"depth": 3}
    with pytest.raises(ConfigError, match=message):
        make_head(name, channels=3, size=6, group=Cyclic(4), **options)


def test_refuses_channels_and_sizes_that_are_none() -> None:
    with pytest.raises(ConfigError, match="make_head: channels must be at least 1, got 0"):
        make_head("max", channels=0, size=6, group=Cyclic(4))
    with pytest.raises(ConfigError, match="size must be at least 1 x 1, got 0 x 4"):
        make_head("global-ws", channels=1, size=(0, 4), group=Cyclic(4))


@pytest.mark.unchecked
def test_refuses_sizes_of_three_numbers() -> None:
    with pytest.raises(ConfigError, match=r"size must be whole numbers, got 7\.0 x 7\.0"):
        make_head("global-ws", channels=1, size=7.0, group=Cyclic(4))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"size must be one number or two, got \(4, 4, 4\)"):
        make_head("global-ws", channels=1, size=(4, 4, 4), group=Cyclic(4))  # type: ignore[arg-type]
