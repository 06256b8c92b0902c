"""A live run's folder: rounds are saved as they finish, and a resumed run plays what is not complete.

In virtual time a run is resumed within a protocol, by going over its rounds once more. Real time does not
come again, and users report when a protocol is over; so a resumed run begins with the first protocol that is
not complete. The rounds that it had stay in the folder until that one has a round again.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simfl.errors import BadInput
from simfl.live.live_protocol import LiveStats, Played
from simfl.live.round_saver import RoundSaver
from simfl.live.server import LiveServer
from simfl.runs.assumptions import assumed
from simfl.runs.build import Experiment
from simfl.runs.folder import unfinished
from simfl.runs.folder.result import Result
from simfl.runs.folder.saved_rounds import Unfinished
from simfl.runs.folder.saving import Saver

NAME = "live.json"

FACTS = {
    "links": "`user`: shaped in user space; `none`.",
    "scheduler": "How the server's process was scheduled.",
    "processes": "Of users.",
    "listens": "Of `simfl serve`: `TLS` or `loopback`.",
    "protocols": "By entry, the figures below.",
}
"""The keys of the file; `facts` and a protocol's `LiveStats` fill it."""


class LiveRun:
    """The result so far, with the stats of each protocol, and the folder that it is saved to."""

    def __init__(
        self, study: Experiment, saver: Saver | None, resume: bool, facts: Mapping[str, Any]
    ) -> None:
        self.study, self.saver, self.facts = study, saver, dict(facts)
        self.stats: dict[str, LiveStats] = {}
        self._before: dict[str, Any] = {}
        self.result = Result(study.scenario, assumed=assumed(study))
        if saver is not None:
            s, known = study.scenario, self.result.assumed
            self.result = saver.resume(s) if resume else saver.begin(s, known)
            text = self.result.beside.get(NAME)
            self._before = {} if text is None else json.loads(text)["protocols"]
            self.put_stats()
        self.rounds: RoundSaver | None = None

    @property
    def todo(self) -> list[str]:
        """The protocols that are still to be played."""
        saver, names = self.saver, list(self.study.scenario.protocols)
        return [name for name in names if saver is None or not saver.is_done(name)]

    def follow(self, name: str, server: LiveServer) -> None:
        """Save the rounds of a protocol as they finish. A write that fails ends the run."""
        if self.saver is None:
            return
        loop, failed = asyncio.get_running_loop(), server.env.failed

        def fail(error: BaseException) -> None:
            if not failed.done():
                failed.set_exception(error)

        def on_error(error: BaseException) -> None:
            loop.call_soon_threadsafe(fail, error)

        rounds = self.rounds = RoundSaver(self.saver, name, on_error)
        trace, host = server.runtime.trace, server.side.host
        server.on_round = lambda closed: rounds.add(closed, trace, host.weights.content)

    def add(self, name: str, played: Played) -> LiveStats:
        """Take in what a protocol came to, and keep it."""
        self.result.traces[name], self.result.measured[name], self.stats[name] = played
        if self.saver is not None:
            self.put_stats()
            result = self.result
            if self.rounds is not None:
                self.rounds.close()
            self.saver.keep_whole(name, result.traces[name], result.measured[name], result.beside)
        return self.stats[name]

    def put_stats(self) -> None:
        """Put live.json beside the result's files."""
        protocols = self._before | {name: asdict(stats) for name, stats in self.stats.items()}
        self.result.beside[NAME] = json.dumps({**self.facts, "protocols": protocols}, indent=2) + "\n"

    def finish(self) -> None:
        if self.saver is not None:
            self.put_stats()
            self.saver.finish(self.result)

    def stop(self) -> None:
        """Write the files of what was finished; it can be resumed."""
        self.result.interrupted = True
        if self.saver is None:
            return
        if self.rounds is not None:
            self.rounds.close()
        saved = self.saver.own.read(self.study.scenario)
        self.result.traces, self.result.measured = saved.traces, saved.measured
        self.put_stats()
        self.saver.leave(self.result)


@contextmanager
def open_live_run(
    study: Experiment, out: Path | None, resume: bool = False, facts: Mapping[str, Any] = {}
) -> Iterator[LiveRun]:
    """Open the folder of a live run; leave there what was finished, whatever ends it.

    Args:
        study: the experiment that is played.
        out: the folder; nothing is written unless given.
        resume: go on with the unfinished live run in `out`, which must be of this scenario, code and facts.
        facts: of the run, such as how its links are made.
    """
    if resume and out is None:
        raise BadInput("resume: out must be the folder of an unfinished run")
    folder: AbstractContextManager[Unfinished | None] = nullcontext()
    if out is not None:
        folder = unfinished.open_saved(out) if resume else unfinished.claim_folder(out)
    with folder as own:
        saver = None
        if own is not None:
            own.played = ", ".join(("live", *(f"{key} {value}" for key, value in facts.items())))
            saver = Saver(own, 0)
            if resume:
                own.check(study.scenario)
        runs = LiveRun(study, saver, resume, facts)
        try:
            yield runs
        except BaseException:
            runs.stop()
            raise
        runs.finish()
