"""Every test file says by its name which module it is about."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = ROOT / "src" / "invint", ROOT / "tests"
APART = {"attack", "docs", "support", "golden"}  # on everything at once; of pages; helpers; files
OWN = {"test_golden", "test_mirror", "test_package"}  # about the project, not about a module
FILES = sorted(
    path for path in TESTS.rglob("test_*.py") if path.relative_to(TESTS).parts[0] not in APART
)


def is_about(name: str, folder: Path) -> bool:
    """Whether a module of the folder has this name, perhaps followed by an aspect."""
    modules = [path.stem for path in folder.glob("*") if path.suffix == ".py" or path.is_dir()]
    return any(name == module or name.startswith(f"{module}_") for module in [*modules, "all"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_a_test_file_is_about_a_module(path: Path) -> None:
    place, name = path.parent.relative_to(TESTS), path.stem.removeprefix("test_")
    module = (SOURCE / place).with_suffix(".py")
    assert path.stem in OWN or module.is_file() or is_about(name, SOURCE / place)


def test_a_file_about_nothing_is_noticed() -> None:
    assert is_about("monomials", SOURCE / "nn")
    assert is_about("layers_pooling", SOURCE / "nn")
    assert not is_about("pooling", SOURCE / "nn")
    assert not is_about("layerspooling", SOURCE / "nn")
