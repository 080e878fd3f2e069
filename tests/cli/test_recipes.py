"""`invint recipes show` lists what the network and the head of a recipe have, and no more."""

import pytest
from support.commands import Command

from invint.nn import HEADS
from invint.nn.heads import head_options
from invint.recipes import recipe_fields

pytestmark = pytest.mark.unchecked  # the command takes a context that typer names otherwise


def rows_of(command: Command, *arguments: str) -> dict[str, str]:
    done = command("recipes", "show", *arguments)
    assert done.status == 0, done.err
    lines = [line.strip().split(maxsplit=1) for line in done.out.splitlines()[2:]]
    return {path: rest[0].strip() if rest else "" for path, *rest in lines}


@pytest.mark.parametrize("head", HEADS)
def test_options_of_the_head_are_shown_and_no_others(command: Command, head: str) -> None:
    shown = rows_of(command, "digits/pooling", "--set", f"model.head={head}")
    known = {field.path for field in recipe_fields() if field.path.startswith("head.")}
    own = {f"head.{option}" for option in head_options(head)} & known
    assert {path for path in shown if path.startswith("head.")} == own
    assert ("model.attention_heads" in shown) == (head == "attention")


def test_what_is_left_to_the_head_is_shown_as_it_has_it(command: Command) -> None:
    shown = rows_of(command, "digits/monomials", "--set", "head.max_distance=4")
    assert shown["head.max_distance"] == "4"
    assert shown["head.floor"] == "0.1 (head's own)"
    assert rows_of(command, "digits/monomials")["head.max_distance"] == "head's own"


@pytest.mark.parametrize(
    ("name", "option"), [("digits/mlp", "kernel_sizes"), ("svhn/local-ws", "kernel_size")]
)
def test_options_another_network_has_are_not_shown(
    command: Command, name: str, option: str
) -> None:
    shown = rows_of(command, name)
    assert {"model.kernel_size", "model.kernel_sizes"} & shown.keys() == {f"model.{option}"}
    assert "model.norm_features" in shown


def test_an_option_the_head_does_not_have_is_refused(command: Command) -> None:
    done = command("recipes", "show", "digits/pooling", "--set", "head.kernel_size=5")
    assert done.status != 0
    assert "head 'max' has no option 'kernel_size'; it has none" in done.err
