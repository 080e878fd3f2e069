import re

import pytest
import torch
from safetensors.torch import load, save

from invint.errors import ConfigError
from invint.export.seal import BLANK, KEY, check_seal, sealed


@pytest.fixture
def content() -> bytes:
    return sealed(save({"weight": torch.arange(6.0)}, metadata={"note": "a", KEY: BLANK}))


def test_a_sealed_file_is_as_it_was_written(content: bytes) -> None:
    check_seal(content)
    assert BLANK.encode() not in content
    assert torch.equal(load(content)["weight"], torch.arange(6.0))


def test_every_changed_byte_is_found(content: bytes) -> None:
    (place,) = re.finditer(KEY.encode(), content)
    for index in set(range(len(content))) - set(range(place.start(), place.end() + 3)):
        changed = bytearray(content)
        changed[index] ^= 1
        if index in range(place.end() + 3, place.end() + 67) and not re.fullmatch(
            rb"[0-9a-f]", changed[index : index + 1]
        ):
            continue  # no hash any more
        with pytest.raises(ConfigError, match="bytes of it have changed since it was written; exp"):
            check_seal(bytes(changed))


def test_a_part_of_a_file_is_not_the_file(content: bytes) -> None:
    with pytest.raises(ConfigError, match="have changed"):
        check_seal(content[:-1])
    with pytest.raises(ConfigError, match="have changed"):
        check_seal(content + b"\0")


def test_a_file_without_a_seal_is_left_alone() -> None:
    content = save({"weight": torch.arange(6.0)}, metadata={"note": "a"})
    check_seal(content)
    assert sealed(content) == content
