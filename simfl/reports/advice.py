"""The first thing to speed up, in a sentence, from the critical path.

If a share of the critical path took no time, the rest of that path would still be needed. So its share is the
most that can be saved. Usually less is saved, as another path becomes the longest
(`test_a_cheaper_share_saves_no_more_than_stated`).
"""

from collections.abc import Collection
from dataclasses import dataclass

from simfl.reports.assumptions import server_bound
from simfl.reports.folder import Run
from simfl.runs.results import metrics
from simfl.runs.results.metrics import Path, Round
from simfl.runs.results.units import percent, seconds
from simfl.trace.rows import SERVER, Trace

NAMED_PART = 0.5
"""A user with at least this part of all users' largest share is named."""
KINDS = ("compute", "network", "wait")
"""Kinds of time on a critical path."""


@dataclass(frozen=True)
class Share:
    """A part of the critical path: of one phase and one kind, of the server or of all users."""

    phase: str
    """The phase."""
    server: bool
    """True of the server's part, False of all users' together."""
    kind: str
    """compute, network or wait."""
    ns: int
    """[ns] Its length."""
    by: tuple[tuple[int, int], ...]
    """Pairs of a party and its nanoseconds, the largest first."""
    on_server_link: bool = False
    """True of a network part that fills the server's link, for which its users' transfers wait."""

    @property
    def what(self) -> str:
        """The share in words, such as "users' compute in offline"."""
        if self.on_server_link:
            return f"the server's full link in {self.phase}"
        if self.kind == "network":
            return f"users' links in {self.phase}"
        # A link is a user's in both directions, so "network" has no server's part.
        party = "the server's" if self.server else "users'"
        return f"{party} {'compute' if self.kind == 'compute' else 'waiting'} in {self.phase}"

    @property
    def _user(self) -> str:
        user, ns = self.by[0]
        # With many users of like speed, naming the slowest one would suggest to fix that user alone.
        if self.server or self.on_server_link or ns < NAMED_PART * self.ns:
            return ""
        return f" ({'all of it' if ns == self.ns else percent(ns, self.ns)} user {user}'s)"


@dataclass(frozen=True)
class Advice:
    """The critical path of a run."""

    shares: tuple[Share, ...]
    """Its parts, the largest first."""
    total_ns: int
    """[ns] Its length."""
    aggregates: int
    """Aggregates of the run."""

    @property
    def scale(self) -> int:
        """Divisor of times: the number of aggregates, or 1 if the run made none."""
        return self.aggregates or 1

    @property
    def of(self) -> str:
        """Words for the unit of the times."""
        return "per aggregate" if self.aggregates else "in all, for no aggregate"

    @property
    def sentence(self) -> str:
        """The largest share, and the most that its end would save; it follows the protocol's name."""
        if not self.shares:
            return "no finished round, so nothing to speed up yet."
        first = self.shares[0]
        # A wait is not made cheaper: its deadline is shortened, or its cause ends.
        free = "ending it would" if first.kind == "wait" else "making it free would"
        saved, total = seconds(first.ns / self.scale), seconds(self.total_ns / self.scale)
        largest = f"{percent(first.ns, self.total_ns)} of the time is {first.what}{first._user}"
        return f"{largest}; {free} save at most {saved} of {total} {self.of}."


def advice_of(run: Run, name: str) -> Advice:
    """Return the advice on a protocol of a run."""
    trace = run.traces[name]
    return advise(trace, run.rounds[name], server_bound(run.scenario, run.summary.assumed, trace))


def advise(trace: Trace, rounds: list[Round], full: Collection[str] = ()) -> Advice:
    """Return the advice on a run from its `metrics.run_path`, failed and skipped rounds included.

    Args:
        trace: The rows.
        rounds: The rounds of the trace.
        full: Phases that fill the server's link (`server_bound`).
    """
    # The path of the whole run and not of its rounds, as buffered aggregations overlap.
    path = metrics.run_path(trace, rounds)
    return Advice(shares(path, full), sum(path.values()), sum(r.reason is None for r in rounds))


def shares(path: Path, full: Collection[str] = ()) -> tuple[Share, ...]:
    """Return a path's shares, all users together, the largest first; `full` as for `advise`."""
    parties: dict[tuple[str, bool, str], dict[int, int]] = {}
    for (phase, party, kind), ns in path.items():
        parties.setdefault((phase, party == SERVER, kind), {})[party] = ns
    unsorted = [
        Share(
            *(phase, server, kind, sum(parts.values())),
            tuple(sorted(parts.items(), key=lambda part: (-part[1], part[0]))),
            on_server_link=kind == "network" and phase in full,
        )
        for (phase, server, kind), parts in parties.items()
    ]
    # Ties are broken by name, so that a run has one sentence under any order of its dictionary.
    return tuple(sorted(unsorted, key=lambda s: (-s.ns, s.phase, s.server, s.kind)))
