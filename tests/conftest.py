"""Shape annotations are checked while testing, but not in tests marked `unchecked`."""

import importlib.util
import os
from collections.abc import Iterator

import pytest
import torch

CHECK_SHAPES = os.environ.get("INVINT_SHAPE_CHECKS") != "0" and importlib.util.find_spec("beartype")
if CHECK_SHAPES:
    import support.shape_checks  # noqa: F401 - the hook looks for an attribute of `support`
    from jaxtyping import install_import_hook

    install_import_hook("invint", "support.shape_checks.check")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Start every test from the same random state."""
    torch.manual_seed(0)


@pytest.fixture
def double_precision() -> Iterator[None]:
    """Build everything in float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this process or this machine cannot run."""
    for item in items:
        if "unchecked" in item.keywords and CHECK_SHAPES:
            item.add_marker(pytest.mark.skip(reason="needs INVINT_SHAPE_CHECKS=0"))
        if "gpu" in item.keywords and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
