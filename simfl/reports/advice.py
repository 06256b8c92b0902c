"""What to speed up first, in a sentence, from the critical path.

Law: if a share of the critical path took no time and nothing else changed, the rest of that path would
still stand; so its share is the most that can be saved, and usually less is, as another path then binds.
"""

from __future__ import annotations

from dataclasses import dataclass

from simfl.reports.units import percent, seconds
from simfl.results import metrics
from simfl.results.metrics import Path, Round
from simfl.results.trace import SERVER, Trace, unit

HALF = 0.5
"""A user is named who holds at least this part of the users' largest share."""

KINDS = ("compute", "network", "wait")


@dataclass(frozen=True)
class Share:
    """Nanoseconds of the critical path of one phase, kind, and either the server or all users.

    `by` has the users' own parts, the largest first.
    """

    phase: str
    server: bool
    kind: str
    ns: int
    by: tuple[tuple[int, int], ...]

    @property
    def what(self) -> str:
        """In words, such as "users' compute in offline"."""
        return {
            "compute": f"{'the server' if self.server else 'users'}'{'s' if self.server else ''} compute",
            "network": "users' links",
            "wait": f"{'the server' if self.server else 'users'}'{'s' if self.server else ''} waiting",
        }[self.kind] + f" in {self.phase}"


@dataclass(frozen=True)
class Advice:
    """The critical path of a protocol's rounds: `total_ns` of `rounds` rounds, the largest share first."""

    shares: tuple[Share, ...]
    total_ns: int
    rounds: int
    aborted: bool
    buffered: bool

    @property
    def sentence(self) -> str:
        """What to speed up first and what it would save at most; goes on after the protocol's name."""
        if not self.shares:
            return "no finished round, so nothing to speed up yet."
        first = self.shares[0]
        what = first.what + _named(first)
        saved, whole = first.ns / self.rounds, self.total_ns / self.rounds
        of = unit(self.buffered)
        which = f"an aborted {of}" if self.aborted else f"a{'n' * self.buffered} {of}"
        free = "ending it would" if first.kind == "wait" else "making it free would"
        return (
            f"{percent(first.ns, self.total_ns)} of {which} is {what}; {free} save at most "
            f"{seconds(saved)} of {seconds(whole)} per {of}."
        )


def advise(trace: Trace, rounds: list[Round]) -> Advice:
    """Where the time of a protocol's completed rounds went; of its aborted ones if none was completed.

    For buffered runs the path of the run as a whole (`metrics.run_path`).
    """
    buffered = trace.buffered
    done = [r for r in rounds if r.reason is None]
    chosen = rounds if buffered else done or rounds
    path = metrics.run_path(trace, chosen)
    return Advice(shares(path), sum(path.values()), len(chosen), bool(rounds) and not done, buffered)


def shares(path: Path) -> tuple[Share, ...]:
    """A path's shares, all users together, the largest first."""
    users: dict[tuple[str, bool, str], dict[int, int]] = {}
    for (phase, party, kind), ns in path.items():
        parties = users.setdefault((phase, party == SERVER, kind), {})
        parties[party] = parties.get(party, 0) + ns
    found = [
        Share(*key, sum(parties.values()), tuple(sorted(parties.items(), key=lambda p: (-p[1], p[0]))))
        for key, parties in users.items()
    ]
    return tuple(sorted(found, key=lambda s: (-s.ns, s.phase, s.server, s.kind)))


def _named(share: Share) -> str:
    """The user who holds most of a share, if one does."""
    user, ns = share.by[0]
    if share.server or ns < HALF * share.ns:
        return ""
    return f" (all of it user {user}'s)" if ns == share.ns else f" ({percent(ns, share.ns)} user {user}'s)"
