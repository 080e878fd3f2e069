import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from invint.data import download as module
from invint.data.download import Download, File, fetch_files
from invint.errors import DataError

CONTENT = bytes(range(256)) * 1024


class Server(ThreadingHTTPServer):
    """Serves `files`; cuts the first `cuts` answers in the middle; notes every request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {"/file.bin": CONTENT}
        self.cuts, self.ranges, self.wait = 0, True, threading.Event()
        self.wait.set()
        self.requests: list[str] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, asked = self.server, self.headers.get("Range")
        server.requests.append(f"{self.path} {asked}")
        content = server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(asked[6:-1]) if asked and server.ranges else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if asked and server.ranges else 200)
        if asked and server.ranges:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        rest = content[start:]
        if server.cuts > 0:
            server.cuts -= 1
            rest = rest[: len(rest) // 2]
        self.wfile.write(rest[:1000])
        server.wait.wait(20)
        self.wfile.write(rest[1000:])

    def log_message(self, format: str, *arguments: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.wait.set()
        server.shutdown()
        thread.join()


def file_bin(server: Server, content: bytes = CONTENT) -> Download:
    md5 = hashlib.md5(content).hexdigest()
    return Download(File("file.bin", len(content), md5), (server.url("file.bin"),))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.01)


def fetch(download: Download, folder: Path) -> list[str]:
    return fetch_files((download,), folder, owner="mnist")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_a_file_comes_whole_and_progress_is_told(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    came = fetch_files(
        (file_bin(server),), tmp_path / "new", owner="mnist", watch=lambda *news: seen.append(news)
    )
    assert came == ["file.bin"]
    assert (tmp_path / "new" / "file.bin").read_bytes() == CONTENT
    assert seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    assert names(tmp_path / "new") == ["file.bin"]


def test_what_is_here_is_not_asked_for(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(b"mine")
    assert fetch(file_bin(server), tmp_path) == []
    assert server.requests == []


def test_a_download_cut_in_the_middle_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cuts = 3
    fetch(file_bin(server), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    size, have, asked = len(CONTENT), 0, []
    for _ in range(4):
        asked.append("/file.bin None" if have == 0 else f"/file.bin bytes={have}-")
        have += (size - have) // 2
    assert server.requests == asked


def test_a_later_call_resumes_where_the_last_one_broke_off(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1000])
    fetch(file_bin(server), tmp_path)
    assert server.requests == ["/file.bin bytes=1000-"]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_part_that_is_already_whole_is_used(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    fetch(file_bin(server), tmp_path)
    assert server.requests == []
    unsized = Download(File("other.bin"), (server.url("file.bin"),))
    (tmp_path / "other.bin.part").write_bytes(CONTENT)
    fetch(unsized, tmp_path)
    assert (tmp_path / "other.bin").read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT + b"more")
    fetch(file_bin(server), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_server_that_cannot_resume_is_read_from_the_start(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    fetch(file_bin(server), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_wrong_checksum_is_said_and_the_file_removed(server: Server, tmp_path: Path) -> None:
    server.files["/file.bin"] = CONTENT[::-1]
    with pytest.raises(
        DataError, match=r"expected the checksum .* gave another file, which was rem"
    ):
        fetch(file_bin(server), tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("content", [CONTENT + b"more", CONTENT[:-4]])
def test_a_wrong_size_is_said_and_the_file_removed(
    server: Server, tmp_path: Path, content: bytes
) -> None:
    server.files["/file.bin"] = content
    with pytest.raises(DataError, match=r"expected 262,144 bytes, got .* which was removed"):
        fetch(file_bin(server), tmp_path)
    assert names(tmp_path) == []


def test_not_found_says_which_file_to_put_where(server: Server, tmp_path: Path) -> None:
    server.files.clear()
    with pytest.raises(DataError) as caught:
        fetch(file_bin(server), tmp_path)
    url = server.url("file.bin")
    reason = f"{url}: 404 Not Found"
    assert str(caught.value) == f"mnist: cannot fetch file.bin ({reason}); put it in {tmp_path}"
    assert len(server.requests) == 1


def test_another_place_is_asked_when_one_fails(server: Server, tmp_path: Path) -> None:
    file = file_bin(server).file
    fetch(Download(file, (server.url("gone"), server.url("file.bin"))), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_offline_says_which_file_to_put_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE", 1000)  # no use in waiting
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_port
    download = Download(File("file.bin"), (f"http://127.0.0.1:{port}/file.bin",))
    with pytest.raises(DataError, match=r"refused\); put it in ") as caught:
        fetch(download, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_nobody_offers_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot fetch x\.mat \(no place offers it\); put it in"):
        fetch(Download(File("x.mat")), tmp_path)


def test_a_connection_that_is_always_cut_gives_up_and_keeps_the_part(
    server: Server, tmp_path: Path
) -> None:
    server.cuts, server.ranges = 100, False
    with pytest.raises(DataError, match="cut off after 131,072 of 262,144 bytes"):
        fetch(file_bin(server), tmp_path)
    assert (tmp_path / "file.bin.part").read_bytes() == CONTENT[: len(CONTENT) // 2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting is not allowed here: {error}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_said_and_the_part_kept(server: Server, small_disk: Path) -> None:
    with pytest.raises(DataError, match=r"mnist: no space left in .*; what came is kept") as caught:
        fetch(file_bin(server), small_disk)
    assert "\n" not in str(caught.value)
    part = (small_disk / "file.bin.part").read_bytes()
    assert 0 < len(part) < 65537
    assert CONTENT.startswith(part)


def test_a_folder_that_cannot_be_made_is_said(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"mnist: cannot write to .*: Not a directory"):
        fetch(file_bin(server), tmp_path / "file" / "mnist")


TWIN = """
import sys
from pathlib import Path
from invint.data.download import Download, File, fetch_files
download = Download(File("file.bin", {size}, "{md5}"), ("{url}",))
print(fetch_files((download,), Path(sys.argv[1]), owner="mnist"))
"""


@pytest.mark.slow
def test_two_processes_at_once_fetch_a_file_once(server: Server, tmp_path: Path) -> None:
    server.wait.clear()
    md5, url = hashlib.md5(CONTENT).hexdigest(), server.url("file.bin")
    script = TWIN.format(size=len(CONTENT), md5=md5, url=url)
    command = [sys.executable, "-c", script, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    twins = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    threading.Timer(5, server.wait.set).start()
    printed = sorted(twin.communicate(timeout=60)[0].strip() for twin in twins)
    assert printed == ["['file.bin']", "[]"]
    assert server.requests == ["/file.bin None"]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def packed(server: Server) -> Download:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name in ("in/one.bin", "in/two.bin"):
            tar.addfile(tarfile.TarInfo(name))
    content = stream.getvalue()
    server.files["/a.tar.gz"] = content
    file = File("a.tar.gz", len(content), hashlib.md5(content).hexdigest())
    members = (File("one.bin"), File("two.bin"))
    return Download(file, (server.url("a.tar.gz"),), members, "in")


def test_an_archive_is_unpacked_and_not_kept(server: Server, tmp_path: Path) -> None:
    download = packed(server)
    assert fetch(download, tmp_path) == ["one.bin", "two.bin"]
    assert names(tmp_path) == ["one.bin", "two.bin"]
    assert fetch(download, tmp_path) == []


def test_an_archive_that_cannot_be_fetched_can_be_brought_by_hand(
    server: Server, tmp_path: Path
) -> None:
    download = packed(server)
    server.files.clear()
    with pytest.raises(
        DataError, match=r"a\.tar\.gz .*; put it in .* and run `invint data fetch m"
    ):
        fetch(download, tmp_path)


def test_an_archive_brought_by_hand_is_unpacked_without_a_network(
    server: Server, tmp_path: Path
) -> None:
    download = packed(server)
    (tmp_path / "a.tar.gz").write_bytes(server.files["/a.tar.gz"])
    assert fetch(download, tmp_path) == ["one.bin", "two.bin"]
    assert names(tmp_path) == ["a.tar.gz", "one.bin", "two.bin"]
    assert server.requests == []


def test_a_wrong_archive_brought_by_hand_is_left_alone(server: Server, tmp_path: Path) -> None:
    download = packed(server)
    (tmp_path / "a.tar.gz").write_bytes(bytes(download.file.size or 0))
    with pytest.raises(DataError, match=r"expected the checksum .*; remove it and fetch again"):
        fetch(download, tmp_path)
    assert names(tmp_path) == ["a.tar.gz"]


def test_files_in_the_folder_of_the_archive_count_as_here(server: Server, tmp_path: Path) -> None:
    download = packed(server)
    (tmp_path / "in").mkdir()
    for name in ("one.bin", "two.bin"):
        (tmp_path / "in" / name).write_bytes(b"")
    assert fetch(download, tmp_path) == []
