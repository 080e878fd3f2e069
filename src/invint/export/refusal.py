"""Files that are not read, and why."""

from pathlib import Path

from invint.errors import ConfigError

PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin", ".joblib")


def unreadable(path: Path, kind: str) -> ConfigError:
    """Return the error that says what a file is that was expected to be of a kind."""
    with path.open("rb") as file:
        start = file.read(4)
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return ConfigError(f"it is a pickle, not {kind}; pickles are never read")
    if start == b"PK\x03\x04" and path.suffix != ".pt2":
        return ConfigError(f"it is a zip archive, as torch.save writes pickles, not {kind}")
    return ConfigError(f"it is not {kind}, or only a part of one; export or copy it again")
