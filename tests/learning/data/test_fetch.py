"""Downloads from a local server: whole, broken off, wrong, and archives of which some files are read."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from unittest import mock

import pytest

from simfl.cli import main
from simfl.errors import BadInput, RunFailed
from simfl.learning.data import DATASETS, fetch
from simfl.learning.data.fetch import SOURCES, Remote
from simfl.learning.data.raw_images import Cifar10
from tests.learning.data.common import cifar, pixels, read

NAME = "images.gz"
CONTENT = pixels(300_000).tobytes()


@dataclass
class Site:
    """Files by path, and the requests: (path, first byte). breaks_at: sends no byte from there on."""

    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)
    breaks_at: int | None = None
    ranges: bool = True
    address: str = ""

    def remote(self, name: str, content: bytes, *members: str) -> Remote:
        self.files[f"/{name}"] = content
        return Remote(f"{self.address}/{name}", hashlib.md5(content).hexdigest(), members)


@pytest.fixture
def site() -> Iterator[Site]:
    pytest.importorskip("pooch")
    served = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = served.files.get(self.path)
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            served.asked.append((self.path, start))
            if content is None:
                self.send_error(404)
                return
            if served.ranges and start >= len(content):
                self.send_error(416)
                return
            start = start if served.ranges else 0
            self.send_response(206 if served.ranges else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start : served.breaks_at])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.address = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, daemon=True).start()
        yield served
        server.shutdown()


@pytest.fixture
def one(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A data set `small` of one file."""
    monkeypatch.setitem(SOURCES, "small", (site.remote(NAME, CONTENT),))
    return site


@pytest.mark.ci
def test_a_file_is_downloaded_once(one: Site, tmp_path: Path) -> None:
    for _ in range(2):
        assert fetch.fetch("small", tmp_path) == tmp_path / "small"
        assert [path.name for path in (tmp_path / "small").iterdir()] == [NAME]
        assert (tmp_path / "small" / NAME).read_bytes() == CONTENT
    assert one.asked == [(f"/{NAME}", 0)]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_goes_on(one: Site, tmp_path: Path, ranges: bool) -> None:
    one.breaks_at, part = 200_000, tmp_path / "small" / f"{NAME}.part"
    with pytest.raises(RunFailed, match="is kept, and the same command continues it"):
        fetch.fetch("small", tmp_path)
    assert not (tmp_path / "small" / NAME).exists()
    assert part.read_bytes() == CONTENT[: part.stat().st_size]
    size = part.stat().st_size
    assert 0 < size <= 200_000
    one.breaks_at, one.ranges = None, ranges
    fetch.fetch("small", tmp_path)
    assert one.asked == [(f"/{NAME}", 0), (f"/{NAME}", size)]
    assert (tmp_path / "small" / NAME).read_bytes() == CONTENT
    assert not part.exists()


def test_a_whole_part_needs_no_more(one: Site, tmp_path: Path) -> None:
    """A process that was killed between the last byte and the check."""
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / f"{NAME}.part").write_bytes(CONTENT)
    fetch.fetch("small", tmp_path)
    assert (tmp_path / "small" / NAME).read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused(one: Site, tmp_path: Path) -> None:
    one.files[f"/{NAME}"] = CONTENT[:-1] + b"\0"
    assert one.files[f"/{NAME}"] != CONTENT
    with pytest.raises(
        RunFailed, match=r"differs from the published file, whose md5 is [0-9a-f]{32}; it was removed"
    ):
        fetch.fetch("small", tmp_path)
    assert list((tmp_path / "small").iterdir()) == []


def test_a_file_that_was_damaged_is_fetched_again(one: Site, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / NAME).write_bytes(b"damaged")
    fetch.fetch("small", tmp_path)
    assert (tmp_path / "small" / NAME).read_bytes() == CONTENT


def test_a_file_that_is_gone_is_named(one: Site, tmp_path: Path) -> None:
    one.files.clear()
    with pytest.raises(RunFailed, match=rf"/{NAME}: 404 "):
        fetch.fetch("small", tmp_path)


def test_the_command(one: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["data", "fetch", "small", "--root", str(tmp_path)])
    assert done.value.code in (0, None)
    assert f"{one.address}/{NAME}" in capsys.readouterr().out
    assert (tmp_path / "small" / NAME).read_bytes() == CONTENT
    one.files.clear()
    (tmp_path / "small" / NAME).unlink()
    with pytest.raises(SystemExit) as failed:
        main(["data", "fetch", "small", "--root", str(tmp_path)])
    assert failed.value.code == 1
    assert f"/{NAME}: 404 " in "".join(capsys.readouterr().err.split("\n"))


def archive(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as packed:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def test_cifar_is_unpacked_and_read(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, members = Cifar10.inner[0], SOURCES["cifar10"][0].members
    assert len(members) == 6
    files = {name: cifar(pixels(1, 32, 32, 3, seed=k), [k]) for k, name in enumerate(members)}
    other = {f"{inner}/readme.html": b"<html>", "../outside": b"x", f"{inner}/batches.meta": b"pickled"}
    remote = site.remote("cifar-10-binary.tar.gz", archive(other | files), *members)
    monkeypatch.setitem(SOURCES, "cifar10", (remote,))
    for _ in range(2):
        fetch.fetch("cifar10", tmp_path)
        kept = {path.relative_to(tmp_path / "cifar10").as_posix() for path in tmp_path.rglob("*.*")}
        assert kept == set(members)
    assert len(site.asked) == 1
    assert read("cifar10", tmp_path).y_train.tolist() == [0, 1, 2, 3, 4]
    assert not (tmp_path / "outside").exists()


@pytest.mark.ci
@pytest.mark.parametrize("folder", ["", "att_faces/"])
def test_faces_are_unzipped_and_read(
    folder: str, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source,) = SOURCES["att_faces"]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        packed.writestr(f"{folder}README", b"text")
        for name in source.members:
            person = int(name.split("/")[0].removeprefix("s"))
            packed.writestr(folder + name, b"P5\n92 112\n255\n" + bytes([person]) * (112 * 92))
    remote = site.remote(source.name, stream.getvalue(), *source.members)
    monkeypatch.setitem(SOURCES, "att_faces", (remote,))
    for _ in range(2):
        fetch.fetch("att_faces", tmp_path)
    assert len(site.asked) == 1
    assert not list(tmp_path.rglob("README"))
    split = read("att_faces", tmp_path)
    assert split.x_train.shape == (320, 1, 112, 92)
    assert (split.x_train[:, 0, 0, 0] == split.y_train + 1).all()


def test_an_archive_lacks_a_file(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = site.remote("a.tar.gz", archive({"a/x.bin": b"1"}), "a/x.bin", "a/y.bin")
    monkeypatch.setitem(SOURCES, "small", (remote,))
    with pytest.raises(RunFailed, match=r"a\.tar\.gz: it lacks a/y\.bin"):
        fetch.fetch("small", tmp_path)
    assert list(tmp_path.rglob("*.bin")) == []


def test_the_files_are_those_that_are_read() -> None:
    assert set(SOURCES) <= set(DATASETS)
    for name in ("mnist", "fashion_mnist"):
        assert [remote.name for remote in SOURCES[name]] == [
            f"{side}-{kind}-ubyte.gz" for side in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
        ]
    assert SOURCES["cifar100"][0].members == ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin")
    sums = [remote.md5 for remotes in SOURCES.values() for remote in remotes]
    assert len(set(sums)) == len(sums) == 12
    assert all(len(bytes.fromhex(md5)) == 16 for md5 in sums)


def test_a_set_without_addresses_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no address of data set 'cifar'; did you mean"):
        fetch.fetch("cifar", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_pooch_the_extra_is_named(tmp_path: Path) -> None:
    with mock.patch.dict("sys.modules", {"pooch": None}), pytest.raises(BadInput, match=r"simfl\[data\]"):
        fetch.fetch("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []
