"""Folders of every kind, made once; the commands that read each of them, and what they come to."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simfl.cli import main
from simfl.cli.common import print_lines
from simfl.config.digests import of_file
from simfl.config.yaml_tree import dump
from simfl.errors import BadInput
from simfl.live.live_protocol import prepared
from simfl.live.live_run import open_live_run
from simfl.live.run_live import run_live, scheduler
from simfl.runs.folder.unfinished import NAME
from simfl.runs.simulation import Progress, run
from simfl.scenario.load import load
from simfl.trace import rows as trace
from tests.engine.harness import FILES, SIX, SYNC
from tests.live.test_run_live import SMALL
from tests.studies.sweep.small import BASE

RUN: dict[str, Any] = {
    **SYNC,
    "population": {**SYNC["population"], "users": 6},
    "privacy": SIX["privacy"],
    "learning": {
        **SYNC["learning"],
        "server": "fedadam",
        "dataset": {"kind": "synthetic", "train": 60, "test": 20},
    },
    "protocols": ["fedavg", "secagg"],
    "record_updates": True,
    "rounds": 3,
}
"""Models, moments and recorded updates: each file that an unfinished run may have."""

LIVE = {"protocols": ["fedavg", "secagg"]}
PAGES = ("report.html", "trace.perfetto.json")
RESULTS = (*FILES, "updates-fedavg.npz", "updates-secagg.npz")
CELL = ("cells/*/summary.json", "cells/*/breakdown.csv")
TABLES = ("SHA256SUMS", "sweep.csv", "means.csv", "failures.csv", *CELL)


@dataclass(frozen=True)
class Outcome:
    """What a command came to."""

    code: int
    out: str
    err: str
    files: Mapping[str, str]
    """Digests of the files that it writes, by path in the folder."""

    def same(self, other: Outcome) -> bool:
        """Return True for the same outcome; the folder's size, which a run prints, is not compared."""
        texts = [re.sub(r"[\d.]+ MB; ", "", outcome.out) for outcome in (self, other)]
        return texts[0] == texts[1] and (self.code, self.files) == (other.code, other.files)


@dataclass(frozen=True)
class Command:
    """A command that reads a folder."""

    name: str
    perform: Callable[[Path], None]
    written: tuple[str, ...] = ()
    """Patterns of the files in the folder that it writes anew."""

    def outcome(self, folder: Path) -> Outcome:
        """Perform it on a folder. An error that a user may not see is raised as it is."""
        out, err, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                self.perform(folder)
            except BadInput as error:
                print_lines(str(error), error=True)
                code = 2
            except SystemExit as end:
                code = int(end.code or 0)
        files = {path: digest for path, digest in tree(folder).items() if self._writes(path)}
        return Outcome(code, out.getvalue(), err.getvalue(), files)

    def _writes(self, path: str) -> bool:
        depth = path.count("/")
        return any(Path(path).match(p) and depth == p.count("/") for p in self.written)


@dataclass(frozen=True)
class Kind:
    """A kind of folder: one of it, another like it under another seed, and the commands that read it."""

    name: str
    folder: Path
    other: Path
    commands: tuple[Command, ...]


def tree(folder: Path) -> dict[str, str]:
    """Return the digest of each regular file in a folder, by path; locks and links left out."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(folder)): of_file(path) for path in files if path.name != ".lock"}


def called(*before: object, after: tuple[object, ...] = ()) -> Callable[[Path], None]:
    """Return a call of the command line with the folder between arguments."""
    return lambda folder: main([*map(str, before), str(folder), *map(str, after)])


def kinds(home: Path) -> list[Kind]:
    """Make the folders."""
    report = Command("report", called("report"), PAGES)
    resume = Command("run --resume", called("run", "--no-progress", "--resume"), RESULTS)
    finished = _both(home / "finished", _finished)
    unfinished = _both(home / "unfinished", _interrupted)
    killed = _both(home / "killed", _killed)
    repeats = _both(home / "repeats", _repeats)
    sweeps = _both(home / "sweep", _swept)
    live = _both(home / "live", _live)
    live_half = _both(home / "live-half", _live_half)
    twice = _file(home / "repeats.yaml", clock="measured")
    again = Command("run --repeat", called("run", twice, "--repeat", 2, "--no-progress", "--resume"))
    resume_live = Command("live --resume", _live_resumed, ("live.json",))
    privacy = Command("privacy", called("privacy"))

    def compare(other: Path) -> Command:
        return Command("compare", called("compare", after=(other,)))

    def recorded(folder: Path) -> None:
        run({**RUN, "clock": f"recorded:{folder}"}, out=folder.parent / "replayed")
        print(tree(folder.parent / "replayed"))
        shutil.rmtree(folder.parent / "replayed")

    def sweep(folder: Path) -> None:
        main(["sweep", str(home / "sweep" / "5.yaml"), "--jobs", "1", "--out", str(folder)])

    return [
        Kind("run finished", *finished, (report, compare(finished[1]), privacy)),
        Kind("recorded clock", *finished, (Command("run --clock recorded", recorded),)),
        Kind("run interrupted", *unfinished, (report, resume, compare(finished[1]))),
        Kind("run killed", *killed, (report, resume)),
        Kind("repeats", *repeats, (report, compare(repeats[1]), again)),
        Kind("live", *live, (report, compare(live[1]))),
        Kind("live interrupted", *live_half, (report, resume_live)),
        Kind("sweep", *sweeps, (compare(sweeps[1]), Command("sweep", sweep, TABLES))),
    ]


def _both(home: Path, make: Callable[[Path, int], None]) -> tuple[Path, Path]:
    home.mkdir(parents=True)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for seed in (5, 6):
            make(home / str(seed), seed)
    return home / "5", home / "6"


def _finished(folder: Path, seed: int) -> None:
    run({**RUN, "seed": seed}, out=folder)


def _interrupted(folder: Path, seed: int) -> None:
    def watch(progress: Progress) -> None:
        if progress.protocol == "secagg" and progress.rounds_done == 2:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        run({**RUN, "seed": seed}, out=folder, watch=watch, save_every_s=0)


def _killed(folder: Path, seed: int) -> None:
    _interrupted(folder, seed)
    for path in folder.iterdir():
        if path.name != NAME:
            path.unlink()


def _file(path: Path, **changes: Any) -> Path:
    path.write_text(dump({**RUN, "record_updates": False, **changes}))
    return path


def _repeats(folder: Path, seed: int) -> None:
    file = _file(folder.parents[1] / "repeats.yaml", clock="measured")
    with contextlib.suppress(SystemExit):
        main(["run", str(file), "--repeat", "2", "--no-progress", "--out", str(folder)])


def _swept(folder: Path, seed: int) -> None:
    file = folder.parent / f"{seed}.yaml"
    file.write_text(dump({"base": {**BASE, "seed": seed}, "grid": {"dropout.rate": [0.0, 0.2]}, "seeds": 1}))
    with contextlib.suppress(SystemExit):
        main(["sweep", str(file), "--jobs", "1", "--out", str(folder)])


def _study(seed: int) -> Any:
    return prepared(load(SMALL, {**LIVE, "seed": seed}))


def _live(folder: Path, seed: int) -> None:
    run_live(_study(seed), folder, "none", 1)


def _live_half(folder: Path, seed: int) -> None:
    def interrupt(name: str, *_: Any) -> None:
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        run_live(_study(seed), folder, "none", 1, interrupt)


class _StoppedError(Exception):
    """The end of a live run that is opened and not played."""


def _live_resumed(folder: Path) -> None:
    """Open a live run to resume it, print what it has, and leave it as it was interrupted."""
    facts = {"links": "none", "scheduler": scheduler(), "processes": 1}
    with contextlib.suppress(_StoppedError), open_live_run(_study(5), folder, True, facts) as runs:
        print("".join(trace.lines(runs.result.traces)), runs.result.measured, runs.result.beside)
        raise _StoppedError


@contextmanager
def copied(folder: Path) -> Iterator[Path]:
    """Yield a copy of a folder, always at the same place beside it, links as links."""
    place = folder.parent / "copy"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place, symlinks=True)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(folder.parent / "replayed", ignore_errors=True)
        os.chdir(folder.parent)
