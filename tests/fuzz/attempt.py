"""One mutant: loaded and built as it stands, and run made small. What comes of it is a report.

A finding is anything but a scenario, a refusal that can be read, or a run that keeps the laws. Its `key` is
the same for mutants with the same fault: where it happened and what it was.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType

import simfl
from simfl.errors import BadInput, RunFailed
from simfl.learning.models import MODELS
from simfl.learning.models.rules import blank
from simfl.runs.build import build, make_clocks
from simfl.scenario.load import load, parse_override, resolved_yaml
from simfl.scenario.schema import Scenario
from tests.fuzz import invariants
from tests.fuzz.batteries import watched
from tests.fuzz.mutants import FILES, Mutant
from tests.fuzz.small import small

CPU_S = 20.0
"""For loading and building, and again for a run: of the processor, since a machine may be busy."""
WALL_S = 60.0
"""The same, for what waits instead."""
PATIENCE = float(os.environ.get("FUZZ_PATIENCE", "1"))
"""A factor on all bounds of time, for a slow machine: `FUZZ_PATIENCE=3 make fuzz`."""
ROOM_BYTES = 6 * 10**9
"""What a process may ask for while it looks at a mutant."""
SLACK_BYTES = 400_000_000
"""Beyond a scenario's own limit: what the interpreter and torch, once it is needed, take themselves."""
LONGEST_LINE, LONGEST_TEXT = 1_000, 20_000
"""Characters of a message."""

SOURCE = Path(simfl.__file__).parent


class TimeUp(BaseException):
    """A mutant takes too long; not an Exception, so that nothing on the way holds it back."""


@dataclass(frozen=True)
class Report:
    """What came of an attempt, and what was found.

    Attributes:
        stage: how far a mutant got (load, build, run), or how another attempt ended.
        good: the mutant is a scenario.
        ran: it was run.
        refusal: the message that refused it.
        key: the kind of a finding; empty if nothing was found.
        detail: the finding in words.
        seconds: on the machine's clock.
        peak_bytes: of memory, beyond that of before.
        what: the input in words, where it is no mutant.
    """

    stage: str
    good: bool = False
    ran: bool = False
    refusal: str = ""
    key: str = ""
    detail: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0
    what: str = ""

    @property
    def short(self) -> str:
        """The finding in a few words, for progress."""
        return f"{self.key} ({self.detail.splitlines()[-1][:120] if self.detail else ''})"


class _Progress:
    """How far an attempt is."""

    stage = "load"
    limit_bytes: float = 2e9  # until the scenario says its own
    good = False
    ran = False


@cache
def warm() -> None:
    """Import what takes seconds, once: a mutant is not to blame for it."""
    blank(MODELS["logistic"](), (4,), 2)


def attempt(mutant: Mutant, run: bool = True, cpu_s: float = CPU_S) -> Report:
    """Load and build a mutant; run it if it is good and `run` says so."""
    warm()
    at, begun = _Progress(), time.monotonic()
    before = _peak_bytes(reset=True)
    refusal, key, detail = "", "", ""
    with tempfile.TemporaryDirectory(prefix="simfl-fuzz-") as name:
        try:
            _attempt(mutant, run, cpu_s, at, Path(name))
        except (BadInput, RunFailed) as error:
            refusal = f"{type(error).__name__}: {error}"
            key, detail = _unreadable(error, at.stage)
        except invariants.Broken as broken:
            key, detail = f"{at.stage}: {broken.rule}", str(broken)
        except (Exception, TimeUp) as error:
            if not isinstance(error, MemoryError) or at.limit_bytes < ROOM_BYTES:
                key, detail = fault(error, at.stage)
    peak = max(0, _peak_bytes() - before)
    if not key and peak > at.limit_bytes + SLACK_BYTES:
        key = f"{at.stage}: memory"
        detail = f"{peak / 1e9:.2f} GB more at its peak, memory_limit_gb={at.limit_bytes / 1e9:g}"
    return Report(at.stage, at.good, at.ran, refusal, key, detail, time.monotonic() - begun, peak)


def _attempt(mutant: Mutant, run: bool, cpu_s: float, at: _Progress, folder: Path) -> None:
    file = folder / "mutant.yaml"
    file.write_bytes(mutant.data)
    for path in FILES:
        shutil.copy(path, folder)
    with timer(cpu_s):
        scenario = load(file, dict(parse_override(text) for text in mutant.sets))
        assert type(scenario) is Scenario
        at.stage, at.limit_bytes = "build", scenario.memory_limit_gb * 1e9
        make_clocks(build(scenario))
        resolved = folder / "resolved.yaml"
        resolved.write_text(resolved_yaml(scenario), encoding="utf-8")
        if load(resolved) != scenario:
            raise invariants.Broken("resolved", "what it resolves to is read back as another scenario")
    at.good = True
    if run:
        at.stage = "run"
        with timer(cpu_s), watched() as batteries:
            result = simfl.run(small(scenario))
            at.ran = True
            result.write(folder / "out")
        batteries.check(result)
        invariants.check(result, folder / "out")


@contextmanager
def timer(seconds: float, wall_s: float | None = None) -> Iterator[None]:
    """Raise TimeUp after so many CPU seconds, or `wall_s` (`WALL_S`); again until it gets through."""
    seconds *= PATIENCE
    longest_s = PATIENCE * (WALL_S if wall_s is None else wall_s)

    def up(number: int, frame: FrameType | None) -> None:
        raise TimeUp(f"longer than {seconds:g} CPU seconds or {longest_s:g} s")

    limits = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, longest_s))
    old = [signal.signal(number, up) for _, number, _ in limits]
    try:
        for which, _, limit in limits:
            signal.setitimer(which, limit, 2.0)
        yield
    finally:
        for (which, number, _), handler in zip(limits, old, strict=True):
            signal.setitimer(which, 0)
            signal.signal(number, handler)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """MemoryError beyond `ROOM_BYTES` more than there is now, instead of a machine without memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = pages * resource.getpagesize() + ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (bound if hard < 0 else min(bound, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _peak_bytes(reset: bool = False) -> int:
    """The most that the process has held resident since the last reset, where Linux tells."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    except (OSError, IndexError):
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _unreadable(error: BadInput | RunFailed, stage: str) -> tuple[str, str]:
    """A message that nobody can read is a finding, and so is a run that fails before it begins."""
    text = str(error)
    if stage != "run" and isinstance(error, RunFailed):
        return f"{stage}: without a place", text
    longest = max(map(len, text.splitlines()), default=0)
    if not text.strip():
        return f"{stage}: empty message", "a refusal without a word"
    if longest > LONGEST_LINE or len(text) > LONGEST_TEXT:
        return f"{stage}: long message", f"{len(text)} characters, a line of {longest}: {text[:200]}..."
    return "", ""


def fault(error: BaseException, stage: str) -> tuple[str, str]:
    """Return the key and the detail of an error that no user should see."""
    return _place(error, stage), _last_lines(error)


def _place(error: BaseException, stage: str) -> str:
    """The kind of an error and simfl's innermost function; what takes too long may be anywhere by then."""
    key = f"{stage}: {type(error).__name__}"
    if not isinstance(error, TimeUp):
        while error.__cause__ is not None:  # SimPy raises what a process raised anew, from what it was
            error = error.__cause__
        for file, function in reversed(list(_frames(error.__traceback__))):
            if SOURCE in Path(file).parents:
                return f"{key} {Path(file).relative_to(SOURCE).as_posix()}:{function}"
    return key


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, str]]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_frame.f_code.co_name
        trace = trace.tb_next


def _last_lines(error: BaseException, most: int = 7) -> str:
    """The end of a traceback, the files by their places in the project."""
    text = "".join(traceback.format_exception(error)).replace(f"{SOURCE.parent}/", "")
    lines = [line for line in text.splitlines() if line.strip(" ^~")]
    return "\n".join(line[:200] for line in lines[-most:])
