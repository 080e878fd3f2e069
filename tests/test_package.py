"""What `import invint` brings, and what it leaves for later."""

import subprocess
import sys

import pytest

import invint


@pytest.mark.slow
def test_importing_the_package_leaves_torch_for_later() -> None:
    code = (
        "import sys, invint; print('torch' in sys.modules); "
        "invint.nn.LiftConv2d, invint.models.MODELS, invint.ops, invint.groups; "
        "print('torch' in sys.modules, 'sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True", "False"]


def test_every_name_of_the_package_is_there_and_listed() -> None:
    for name in invint.__all__:
        assert getattr(invint, name).__name__ == name
    assert set(invint.__all__) <= set(dir(invint))
    with pytest.raises(AttributeError, match="module 'invint' has no attribute 'Nothing'"):
        _ = invint.Nothing
