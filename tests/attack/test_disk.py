"""A full disk, and a process that has been quicker, for every command that writes."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from PIL import Image
from support.attack import Judge
from support.commands import TINY
from support.disks import disk_of, fill
from support.pictures import write_noise

from invint.data import official

pytestmark = [pytest.mark.slow, pytest.mark.unchecked]

FOLDERS = Path(__file__).parents[1] / "golden" / "folders"
RUN = FOLDERS / "monomials" / "complete"
TRAIN = ("train", "digits/local-ws", *TINY, "--quiet")
prepared = cache(official.load_digits)


@pytest.fixture
def disk(at_home: Path) -> Iterator[Path]:
    """A disk of a megabyte, in the folder that is watched."""
    with disk_of("1m", at_home / "disk") as place:
        yield place


COMMANDS: dict[str, tuple[str, ...]] = {
    "predictions": ("predict", "network", "picture.png", "--out=disk/answers.csv"),
    "predictions in JSON": ("predict", "network", "picture.png", "--out=disk/answers.json"),
    "an export": ("export", "network", "--format=safetensors", "--out=disk/new.safetensors"),
    "a sheet": ("data", "show", "digits", "--count=4", "--out=disk/sheet.png"),
    "a drawing": ("data", "show", "digits", "--count=4", "--out=disk/sheet.svg"),
    "monomials": ("monomials", str(RUN), "--out=disk/chosen.svg"),
    "a run": (*TRAIN, "--runs=disk/runs"),
}


@pytest.mark.parametrize(
    ("name", "free"),
    [*((name, 0) for name in COMMANDS), ("an export", 8192), ("a sheet", 8192)],
)
def test_a_full_disk(
    judge: Judge,
    network: Path,
    at_home: Path,
    disk: Path,
    name: str,
    free: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With nothing left, or with room for a beginning."""
    monkeypatch.setattr(official, "load_digits", prepared)
    shutil.copy(network, at_home / "network.safetensors")
    Image.new("L", (20, 20)).save("picture.png")
    fill(disk, free=free)
    command = [each.replace("network", "network.safetensors", 1) for each in COMMANDS[name]]
    judge.refused(*command)


def test_no_room_for_decoded_pictures(judge: Judge, at_home: Path, tmp_path: Path) -> None:
    write_noise(at_home / "pictures")
    with disk_of("64k", tmp_path / "home" / "invint") as cache_of_pictures:
        fill(cache_of_pictures)
        judge.refused("data", "check", f"folder:{at_home / 'pictures'}", "--skip-bad")


HOLD = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_on_which_another_process_is_at_work(
    judge: Judge, at_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(official, "load_digits", prepared)
    assert judge.command(*TRAIN, "--runs=runs").status == 0
    (result,) = (at_home / "runs").rglob("result.json")
    result.unlink()
    command = [sys.executable, "-c", HOLD, str(result.with_name("lock"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        line = judge.refused(*TRAIN, "--runs=runs")
        other.communicate()
    assert "another process is working on this run; wait for it or stop it" in line
