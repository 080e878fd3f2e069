"""A folder of hostile files: each is named in one line, none crashes, hangs or fills the memory."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.hostile_pictures import CONTENTS, NOISE, PNG, THINGS, zeros
from support.pictures import chunk, png

from invint.data.folder import load_folder, scan
from invint.errors import DataError


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    root = tmp_path / "hostile"
    for name in ("good", "bad"):
        (root / name).mkdir(parents=True)
        for number in range(5):
            array = NOISE ^ np.uint8(number + 10 * len(name))
            Image.fromarray(array).save(root / name / f"{number}.png")
    for name, (data, _) in CONTENTS.items():
        (root / "bad" / name).write_bytes(data)
    for name, (make, _) in THINGS.items():
        make(root / "bad" / name)
    return root


EXPECTED = {name: problem for name, (_, problem) in {**CONTENTS, **THINGS}.items()}


def test_each_hostile_file_is_named_in_one_line(hostile: Path, tmp_path: Path) -> None:
    found = scan(hostile, cache=tmp_path / "cache")
    assert len(EXPECTED) >= 40
    lines = {bad.path.removeprefix("bad/"): bad for bad in found.bad}
    assert lines.keys() == EXPECTED.keys()
    for name, bad in lines.items():
        assert EXPECTED[name] in bad.problem, name
        assert str(bad).isprintable(), name
        assert len(bad.problem) < 220, name
    assert found.images == 10


def test_hostile_files_stop_the_run_or_are_left_out(hostile: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=rf"{len(EXPECTED)} bad file\(s\): .*; and 46 more\. `invint"
    ):
        load_folder(hostile, cache=tmp_path / "cache")
    found = load_folder(hostile, cache=tmp_path / "cache", skip_bad=True)
    assert len(found.train) + len(found.test) == 10


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(hostile: Path, tmp_path: Path) -> None:
    (hostile / "good" / "0.png").chmod(0)
    found = scan(hostile, cache=tmp_path / "cache")
    lines = {bad.path: bad.problem for bad in found.bad}
    assert lines["good/0.png"].startswith("permission denied")


def test_a_class_whose_name_is_not_printable_is_named(hostile: Path, tmp_path: Path) -> None:
    (hostile / os.fsdecode(b"\xff")).mkdir()
    (hostile / "loose.png").write_bytes(PNG)
    lines = [str(bad) for bad in scan(hostile, cache=tmp_path / "cache").bad]
    assert r"\xff: the name of a class must be printable UTF-8; rename the folder" in lines
    assert "loose.png: is in no class; move it into the folder of its class" in lines


MEASURED = """
import sys
from pathlib import Path
from invint.data.folder import scan
found = scan(Path(sys.argv[1]), cache=Path(sys.argv[2]))
status = Path("/proc/self/status").read_text()  # `resource` would count the parent's memory too
print(len(found.bad), found.images, int(status.split("VmHWM:")[1].split()[0]) // 1024)
"""


@pytest.mark.slow
def test_hostile_files_do_not_fill_the_memory(hostile: Path, tmp_path: Path) -> None:
    """Pictures at the limit, 256 MB each when decoded, are read one at a time."""
    data = png(2**13, 2**13, chunk(b"IDAT", zeros((2**15 + 1) * 2**13)), colour=6)
    for number in range(2):
        (hostile / "good" / f"large{number}.png").write_bytes(data)
    command = [sys.executable, "-c", MEASURED, str(hostile), str(tmp_path / "cache")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    bad, good, megabytes = map(int, done.stdout.split())
    assert (bad, good) == (len(EXPECTED), 12)
    assert megabytes < 1024
    assert done.stderr == ""
