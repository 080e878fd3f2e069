"""A hash that a file carries of itself, so that changed bytes are found when it is read.

It guards against damage, by a disk or on the way, and not against people: who changes a file on
purpose can seal it again.
"""

import hashlib
import re

from invint.errors import ConfigError

KEY = "invint.sha256"  # of the metadata, in ONNX and safetensors files alike
BLANK = "unsealed" * 8  # as long as a hash: in its place while the hash is taken
FOUND = re.compile(  # how protobuf and JSON write the pair of key and value
    re.escape(KEY).encode() + rb'(?:\x12\x40|" *: *")(' + BLANK.encode() + rb"|[0-9a-f]{64})"
)


def sealed(content: bytes) -> bytes:
    """Return the content of a file that holds `BLANK` under `KEY` with its hash in that place."""
    digest = hashlib.sha256(content).hexdigest()
    return FOUND.sub(lambda found: found[0].replace(BLANK.encode(), digest.encode()), content, 1)


def check_seal(content: bytes) -> None:
    """Raise `ConfigError` if a file has changed since it was sealed; files of 0.1 have no seal."""
    found = FOUND.search(content)
    if found is None:
        return
    start, end = found.span(1)
    blank = content[:start] + BLANK.encode() + content[end:]
    if hashlib.sha256(blank).hexdigest().encode() != found[1]:
        raise ConfigError("bytes of it have changed since it was written; export or copy it again")
