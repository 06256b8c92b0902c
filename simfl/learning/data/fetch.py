"""Published files, downloaded and checked: addresses and checksums of those who publish them.

A file takes its place only when it is whole and its checksum is the published one. The part that has
arrived lies in NAME.part until then, so that a broken download goes on. Of an archive, only the files that
are read are kept.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from simfl.errors import BadInput, RunFailed, did_you_mean, need
from simfl.learning.data.raw_images import FACES, Cifar10, Cifar100

_LISTED = 5  # names in a message
_NOTHING_BEYOND = 416  # HTTP's answer where a range starts at the end of a file or later


@dataclass(frozen=True)
class Remote:
    """A published file."""

    url: str
    md5: str
    """Checksum, hexadecimal."""
    members: tuple[str, ...] = ()
    """Files of an archive that are read."""

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


def _idx(site: str, *md5: str) -> tuple[Remote, ...]:
    names = [f"{s}-{k}-ubyte.gz" for s in ("train", "t10k") for k in ("images-idx3", "labels-idx1")]
    return tuple(Remote(f"{site}/{name}", sum_) for name, sum_ in zip(names, md5, strict=True))


def _cifar(kind: type[Cifar10], archive: str, md5: str) -> tuple[Remote, ...]:
    members = tuple(f"{kind.inner[0]}/{name}" for name in (*kind.train, kind.test))
    return (Remote(f"https://www.cs.toronto.edu/~kriz/{archive}", md5, members),)


SOURCES = {
    # torchvision/datasets/mnist.py: `mirrors` and `resources` of MNIST and of FashionMNIST.
    "mnist": _idx(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    "fashion_mnist": _idx(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    # The authors' page, www.cs.toronto.edu/~kriz/cifar.html: the tables of "binary version" with md5sum.
    "cifar10": _cifar(Cifar10, "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
    "cifar100": _cifar(Cifar100, "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
    # bob.bio.face, bob/bio/face/database/atnt.py: the copy of the Idiap Research Institute.
    "att_faces": (
        Remote(
            "http://www.idiap.ch/software/bob/data/bob/att_faces.zip",
            "6efb25cb0d40755e9492b9c012e3348d",
            FACES,
        ),
    ),
}
"""Data set -> its files."""


def fetch(name: str, root: Path, watch: Callable[[str], None] = lambda file: None) -> Path:
    """Download a data set to the folder of its name in `root`, which is returned; what is there is kept.

    watch: called with each file's address before it is downloaded or checked.

    Raises:
        BadInput: there are no addresses for it, or pooch is not installed.
        RunFailed: a file cannot be had, or is not what was published.
    """
    if name not in SOURCES:
        raise BadInput(f"no address of data set {name!r}{did_you_mean(name, list(SOURCES))}")
    need("simfl data fetch", "pooch", "data")
    folder = root.expanduser() / name
    folder.mkdir(parents=True, exist_ok=True)
    for remote in SOURCES[name]:
        watch(remote.url)
        if remote.members and all((folder / member).is_file() for member in remote.members):
            continue
        file = _retrieved(remote, folder)
        if remote.members:
            _unpack(file, remote.members)
            file.unlink()
    return folder


def _retrieved(remote: Remote, folder: Path) -> Path:
    import pooch

    pooch.get_logger().setLevel("WARNING")
    part = folder / f"{remote.name}.part"
    going_on = _GoingOn(part)
    try:
        return Path(pooch.retrieve(remote.url, f"md5:{remote.md5}", remote.name, folder, downloader=going_on))
    except ValueError:  # pooch has removed it
        raise RunFailed(f"{remote.url}: not what was published, md5 {remote.md5}; nothing is kept") from None
    except OSError as error:  # which requests' errors are
        kept = f"; {part} is kept, and the same command goes on" if part.exists() else ""
        raise RunFailed(f"{remote.url}: {error}{kept}") from None


class _GoingOn:
    """A downloader for pooch that appends to a file what an earlier one did not get."""

    def __init__(self, part: Path) -> None:
        self.part = part

    def __call__(self, url: str, output_file: str, pooch: object, check_only: bool = False) -> None:
        from pooch import HTTPDownloader

        with self.part.open("ab") as file:

            def begin(response: Any, *_: object, **__: object) -> None:
                if response.status_code == 200:  # the whole file: the server knows no ranges
                    file.truncate(0)

            # Bytes as they lie on the server: ranges are of those.
            headers = {"Range": f"bytes={file.tell()}-", "Accept-Encoding": "identity"}
            download = HTTPDownloader(chunk_size=1 << 16, headers=headers, hooks={"response": begin})
            try:
                download(url, file, None)
            except OSError as error:
                if getattr(getattr(error, "response", None), "status_code", None) != _NOTHING_BEYOND:
                    raise  # else all is there, and the checksum decides
        os.replace(self.part, output_file)


def _unpack(archive: Path, members: tuple[str, ...]) -> None:
    """Write these members beside the archive; nothing else of it, and no name of its own choice."""
    for name, source in _opened(archive, members):
        target = archive.parent / name
        target.parent.mkdir(exist_ok=True)
        part = target.with_name(f"{target.name}.part")
        with part.open("wb") as file:
            shutil.copyfileobj(source, file)
        os.replace(part, target)


def _opened(archive: Path, members: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Each member's name and its content, of a zip file or a tar file."""
    files: dict[str, Any]
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            files = {info.filename: info for info in zipped.infolist()}
            yield from ((name, zipped.open(info)) for name, info in _found(files, archive, members))
    else:
        with tarfile.open(archive) as packed:
            files = {info.name: info for info in packed if info.isfile()}
            yield from ((name, packed.extractfile(info)) for name, info in _found(files, archive, members))


def _found(files: dict[str, Any], archive: Path, members: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Each member with its file, which may lie in a folder of the archive's own."""
    known = {"/".join(PurePosixPath(name).parts[-2:]): info for name, info in files.items()}
    if absent := [name for name in members if name not in known]:
        raise RunFailed(f"{archive}: no {', '.join(absent[:_LISTED])} in it")
    return [(name, known[name]) for name in members]
