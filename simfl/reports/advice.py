"""The first thing to speed up, in a sentence, from the critical path.

Invariant: if a share of the critical path took no time and nothing else changed, the rest of that path would
still stand; so its share is the most that can be saved, and usually less is, as another path then binds.
"""

from dataclasses import dataclass

from simfl.runs.results import metrics
from simfl.runs.results.metrics import Path, Round
from simfl.runs.results.units import percent, seconds
from simfl.trace.rows import SERVER, Trace

NAMED_PART = 0.5  # of the users' largest share: a user who holds as much is named
KINDS = ("compute", "network", "wait")


@dataclass(frozen=True)
class Share:
    """Nanoseconds of the critical path of one phase, kind, and either the server or all users, each of whose
    own parts `by` has, the largest first."""

    phase: str
    server: bool
    kind: str
    ns: int
    by: tuple[tuple[int, int], ...]

    @property
    def what(self) -> str:
        """Words such as "users' compute in offline"."""
        if self.kind == "network":
            return f"users' links in {self.phase}"
        party = "the server's" if self.server else "users'"
        return f"{party} {'compute' if self.kind == 'compute' else 'waiting'} in {self.phase}"

    @property
    def _user(self) -> str:
        user, ns = self.by[0]
        if self.server or ns < NAMED_PART * self.ns:
            return ""
        return f" ({'all of it' if ns == self.ns else percent(ns, self.ns)} user {user}'s)"


@dataclass(frozen=True)
class Advice:
    """The critical path of a run: `total_ns` for so many aggregates, the largest share first."""

    shares: tuple[Share, ...]
    total_ns: int
    aggregates: int

    @property
    def scale(self) -> int:
        """Parts that times are told of: aggregates, or the run where it made none."""
        return self.aggregates or 1

    @property
    def of(self) -> str:
        return "per aggregate" if self.aggregates else "in all, for no aggregate"

    @property
    def sentence(self) -> str:
        """The largest share and the most that its end would save; goes on after the protocol's name."""
        if not self.shares:
            return "no finished round, so nothing to speed up yet."
        first = self.shares[0]
        free = "ending it would" if first.kind == "wait" else "making it free would"
        saved, whole = seconds(first.ns / self.scale), seconds(self.total_ns / self.scale)
        largest = f"{percent(first.ns, self.total_ns)} of the time is {first.what}{first._user}"
        return f"{largest}; {free} save at most {saved} of {whole} {self.of}."


def advise(trace: Trace, rounds: list[Round]) -> Advice:
    """Sum up the critical path of a run (`metrics.run_path`), failed and skipped rounds included."""
    path = metrics.run_path(trace, rounds)
    return Advice(shares(path), sum(path.values()), sum(r.reason is None for r in rounds))


def shares(path: Path) -> tuple[Share, ...]:
    """A path's shares, all users together, the largest first."""
    parties: dict[tuple[str, bool, str], dict[int, int]] = {}
    for (phase, party, kind), ns in path.items():
        parties.setdefault((phase, party == SERVER, kind), {})[party] = ns
    found = [
        Share(*key, sum(parts.values()), tuple(sorted(parts.items(), key=lambda part: (-part[1], part[0]))))
        for key, parts in parties.items()
    ]
    return tuple(sorted(found, key=lambda s: (-s.ns, s.phase, s.server, s.kind)))
