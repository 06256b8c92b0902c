"""Damaged folders of runs as cases: the damages of `damage`, each with a bound of time."""

from __future__ import annotations

import os
import tempfile
import time
from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz.attempt import Report, TimeUp, fault, timer
from tests.fuzz.damage import judged
from tests.fuzz.folders import Kind, Outcome, copied, kinds

CPU_S, WALL_S = 20.0, 50.0


@cache
def _kinds() -> list[Kind]:
    """Make a folder of each kind, once a process."""
    return kinds(Path(tempfile.mkdtemp(prefix="simfl-folders-")))


@cache
def _expected(kind: int, command: int) -> Outcome:
    """Return what a command comes to where nothing is damaged."""
    with copied(_kinds()[kind].folder) as folder:
        return _kinds()[kind].commands[command].outcome(folder)


def attempt(seed: int, number: int) -> Report:
    """Damage a copy of a folder, read it with a command, and compare."""
    rng, before = Random(f"{seed} {number}"), Path.cwd()
    kind = number % len(_kinds())
    command = rng.randrange(len(_kinds()[kind].commands))
    expected, begun = _expected(kind, command), time.monotonic()
    stage, key, what = "", "", ""
    try:
        with timer(CPU_S, WALL_S):
            stage, what = judged(_kinds()[kind], _kinds()[kind].commands[command], expected, rng)
        key = f"folder: {stage.lower()}" if stage.isupper() else ""
    except (Exception, TimeUp) as error:
        key, what = fault(error, "folder")
    finally:
        os.chdir(before)
    return Report(stage, key=key, detail=what, what=what, seconds=time.monotonic() - begun)
