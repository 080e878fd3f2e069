import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from invint.data.download import File, unpack
from invint.errors import DataError

WANTED = (File("one.bin"), File("two.bin"))


def write_tar(path: Path, *members: tuple[str, bytes] | tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                entry = tarfile.TarInfo(member[0])
                entry.size = len(member[1])
                tar.addfile(entry, io.BytesIO(member[1]))
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def write_zip(path: Path, *members: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members:
            packed.writestr(name, content)
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.suffix not in (".gz", ".zip"))


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_only_known_members_come_out(tmp_path: Path, kind: str) -> None:
    members = (("in/two.bin", b"2"), ("in/readme.html", b"x"), ("in/one.bin", b"1"))
    archive = (
        write_tar(tmp_path / "a.tar.gz", *members)
        if kind == "tar"
        else write_zip(tmp_path / "a.zip", *members)
    )
    unpack(archive, WANTED, tmp_path, inside="in")
    assert names(tmp_path) == ["one.bin", "two.bin"]
    assert (tmp_path / "one.bin").read_bytes() == b"1"


@pytest.mark.parametrize(
    "member",
    [
        ("../one.bin", b"1"),
        ("/one.bin", b"1"),
        ("in/../../one.bin", b"1"),
        ("..\\one.bin", b"1"),
        special("one.bin", tarfile.SYMTYPE, "/etc/passwd"),
        special("one.bin", tarfile.LNKTYPE, "two.bin"),
        special("one.bin", tarfile.CHRTYPE),
        special("one.bin", tarfile.FIFOTYPE),
    ],
    ids=lambda member: getattr(member, "name", member[0] if isinstance(member, tuple) else ""),
)
def test_links_devices_and_ways_out_are_refused(
    tmp_path: Path, member: tuple[str, bytes] | tarfile.TarInfo
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    archive = write_tar(folder / "a.tar.gz", ("two.bin", b"2"), member)
    with pytest.raises(DataError, match=r"a\.tar\.gz: (has no one|member .* is a link)"):
        unpack(archive, WANTED, folder)
    assert names(tmp_path) == ["folder"]


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    entry = zipfile.ZipInfo("one.bin")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr(entry, "/etc/passwd")
    with pytest.raises(DataError, match=r"member 'one\.bin' is a link or a device; nothing was"):
        unpack(tmp_path / "a.zip", WANTED, tmp_path)
    assert names(tmp_path) == []


def test_a_way_out_of_a_zip_is_refused(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "a.zip", ("../one.bin", b"1"))
    with pytest.raises(DataError, match=r"a\.zip: has no one\.bin"):
        unpack(archive, WANTED, tmp_path)


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_bomb_is_refused(tmp_path: Path, kind: str) -> None:
    members = (("one.bin", bytes(600)), ("two.bin", bytes(600)))
    archive = (
        write_tar(tmp_path / "a.tar.gz", *members)
        if kind == "tar"
        else write_zip(tmp_path / "a.zip", *members)
    )
    with pytest.raises(DataError, match=r"member 'two\.bin' has more than 400 bytes"):
        unpack(archive, WANTED, tmp_path, limit=1000)
    assert names(tmp_path) == []


def test_missing_members_are_named(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "a.tar.gz", ("in/one.bin", b"1"), ("two.bin", b"2"))
    with pytest.raises(DataError, match=r"a\.tar\.gz: has no in/two\.bin"):
        unpack(archive, WANTED, tmp_path, inside="in")
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
@pytest.mark.parametrize("damage", ["empty", "text", "cut", "flipped"])
def test_a_damaged_archive_gets_one_line(tmp_path: Path, name: str, damage: str) -> None:
    content = bytes(range(256)) * 64
    members = (("one.bin", content), ("two.bin", content[::-1]))
    write = write_zip if name == "a.zip" else write_tar
    whole = write(tmp_path / name, *members).read_bytes()
    half = len(whole) // 2
    flipped = (
        whole[:half] + bytes(255 - byte for byte in whole[half : half + 8]) + whole[half + 8 :]
    )
    damaged: dict[str, bytes] = {
        "empty": b"",
        "text": b"not found",
        "cut": whole[:half],
        "flipped": flipped,
    }
    (tmp_path / name).write_bytes(damaged[damage])
    with pytest.raises(DataError, match=rf"{name}: (damaged, or not an archive|has no)") as caught:
        unpack(tmp_path / name, WANTED, tmp_path)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == []
