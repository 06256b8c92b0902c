"""The columns of all tables (terminal, page, LaTeX, sweeps), each once: how it is read, written and shown.

A new column is a line of `COLUMNS`, and a field of the summary where none holds it yet.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from simfl.runs.results.energy import EnergySummary
from simfl.runs.results.round_summary import RoundSummary, mean
from simfl.runs.results.statistics import Estimate, estimate
from simfl.runs.results.summary import ParticipationSummary, ProtocolSummary
from simfl.runs.results.targets import Reached
from simfl.trace.rows import PHASES, SOURCES

Place = Literal[
    "time", "rates", "path", "run", "seeds", "headline", "phases", "losses", "energy", "latex", "sweep", "csv"
]
How = Literal["mean", "range", "sum", "share", "count", "flag"]
Of = Literal[
    "", "buffered", "partial", "participation", "over_selected", "accuracy_target", "loss_target", "energy"
]
Values = Sequence[float]
Read = Callable[[ProtocolSummary], Values]

SOURCE_HEADINGS = ("Cores", "Bytes sent", "Bytes received", "Radio active", "Radio tail", "Radio idle")

Measure = tuple[str, str]  # a key, and the phase if it is of one


@dataclass(frozen=True, eq=False)
class Column:
    """A figure of a protocol's rounds, or with `phase` of one phase of them.

    how: the mean, range or sum of the values; of those that are true or false "3 of 4", of which a sweep
    takes the share, or with `count` the number; of a `flag`, which is one of them, yes or no. Where it has
    no heading a column is not shown.
    """

    key: str
    how: How
    read: Read
    phase: str = ""
    time: str = ""  # the heading in the terminal's table of the time per aggregate,
    rates: str = ""  # of completed rounds,
    path: str = ""  # of the critical path,
    run: str = ""  # of the run as a whole,
    seeds: str = ""  # and of who took part
    headline: str = ""  # the headings in the page's tables
    phases: str = ""
    losses: str = ""
    energy: str = ""
    latex: str = ""
    sweep: str = ""
    csv: bool = False  # there are rows of it in `sweep.csv` and `means.csv`, under its key
    digits: int = 3
    scale: float = 1  # a value is divided by it where it is written
    unit: str = ""  # LaTeX writes it above columns of one unit, with the run's for {unit}
    of: Of = ""  # tables of protocols without it leave the column out
    rare: bool = False  # the terminal leaves it out where there is nothing to tell
    fault: bool = False  # something went wrong, unless it is zero, or all is true
    whole: bool = False  # it is of the run, not only of the rounds that a row of the table covers
    absent: str = ""  # the text of no value where that is a finding: then a mean over seeds needs them all

    @property
    def measure(self) -> Measure:
        return self.key, self.phase

    def number(self, protocol: ProtocolSummary) -> float | None:
        """Return what a sweep takes the mean of over seeds; None of no values."""
        values = self.read(protocol)
        return sum(values) if self.how in ("sum", "count") else mean(values)

    def estimate(self, protocol: ProtocolSummary) -> Estimate | None:
        """Return the mean over rounds with its interval; None of no values."""
        values = self.read(protocol)
        return estimate(values) if values else None

    @property
    def has_interval(self) -> bool:
        """True for times and energies, whose measured means are shown with an interval."""
        return self.how == "mean" and self.key.endswith(("_s", "_j"))

    def text(self, protocol: ProtocolSummary, none: str = "-", to: str = " - ", spread: bool = False) -> str:
        """Return what a table shows; `none` of no values, `to` between the ends of a range.

        spread: times and energies have noise, and are shown with the 95 % interval of their mean.
        """
        values = self.read(protocol)
        if spread and values and self.has_interval:
            return estimate(values).text(self.digits, self.scale)
        if self.how == "sum":
            return str(sum(values))
        if self.how == "count" or (self.how == "share" and values):
            return f"{sum(values)} of {len(values)}"
        if self.how == "range" and values:
            return _interval(values, to)
        if self.how == "flag" and values:
            return "yes" if all(values) else "no"
        average = mean(values)
        return self.absent or none if average is None else f"{average / self.scale:.{self.digits}f}"

    def over_runs(self, protocols: Sequence[ProtocolSummary], spread: bool) -> str:
        """Return what a table shows of one run, or of several the mean over runs with its interval."""
        alike = self.how in ("sum", "count", "range") and len({tuple(self.read(p)) for p in protocols}) == 1
        if len(protocols) == 1 or alike:
            return self.text(protocols[0], spread=spread)
        if self.how == "range":
            return self.over_seeds(protocols)
        numbers = [number for p in protocols if (number := self.number(p)) is not None]
        if self.how == "flag":
            return f"{sum(numbers):.0f} of {len(protocols)}"
        if self.absent and 0 < len(numbers) < len(protocols):
            return f"{len(numbers)} of {len(protocols)} runs"
        known = f" ({len(numbers)} of {len(protocols)})" if len(numbers) < len(protocols) else ""
        return estimate(numbers).text(self.digits, self.scale) + known if numbers else self.absent or "-"

    def over_seeds(self, protocols: Iterable[ProtocolSummary]) -> str:
        """Return what a table shows of a protocol's runs: a range of all, or mean ± standard deviation."""
        listed = list(protocols)
        if self.how == "range":
            values = [value for p in listed for value in self.read(p)]
            return _interval(values, " - ") if values else "-"
        numbers = [number for p in listed if (number := self.number(p)) is not None]
        spread = f"±{stdev(numbers):.{self.digits}f}" if len(numbers) > 1 else ""
        return f"{fmean(numbers):.{self.digits}f}{spread}" if numbers else "-"

    def tells(self, protocol: ProtocolSummary) -> bool:
        """Return True for anything to tell: a sum or a rare mean that is not zero, or any value of others."""
        values = self.read(protocol)
        if self.how == "sum" or (self.rare and self.how == "mean"):
            return any(values)
        return bool(values or self.absent)

    def wrong(self, protocol: ProtocolSummary) -> bool:
        values = self.read(protocol)
        return self.fault and (any(values) if self.how == "sum" else not all(values))


def _interval(values: Values, to: str) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}{to}{high}"


def _each(get: Callable[[RoundSummary], float | None]) -> Read:
    return lambda p: [value for r in p.rounds if (value := get(r)) is not None]


def _done(get: Callable[[RoundSummary], float]) -> Read:
    return lambda p: [get(r) for r in p.completed]


def _cycle(get: Callable[[RoundSummary], float]) -> Read:
    """Of each aggregate, with the failed and skipped rounds before it: so the mean is the run's."""
    return lambda p: [sum(map(get, cycle)) for cycle in p.cycles]


def _critical(k: str) -> Read:
    in_rounds = _cycle(lambda r: r.critical_s[k])
    of_run = _once(lambda p: p.mean.critical_s[k])
    # aggregations of a buffer overlap: their paths, cut at their starts, are not that of the run
    return lambda p: of_run(p) if p.buffered else in_rounds(p)


def _joules(get: Callable[[EnergySummary], float]) -> Callable[[RoundSummary], float]:
    return lambda r: 0 if r.energy is None else get(r.energy)


def _of_source(source: str) -> Callable[[RoundSummary], float]:
    return _joules(lambda e: e.sources.get(source, 0.0))


def _per_user(get: Callable[[RoundSummary], float]) -> Read:
    def read(p: ProtocolSummary) -> Values:
        invited = sum(r.selected for r in p.rounds)
        return [sum(map(get, p.rounds)) / invited] if invited else []

    return read


def _once(get: Callable[[ProtocolSummary], float | None]) -> Read:
    return lambda p: () if (value := get(p)) is None else (value,)


def _last(get: Callable[[ParticipationSummary], float | None]) -> Read:
    return _once(lambda p: None if p.participation is None else get(p.participation))


def _weak_bounds(p: ProtocolSummary) -> Values:
    """Both ends of the interval that T lies in, which are one where its search was not ended early."""
    return () if p.participation is None else p.participation.T_weak[-1] or ()


def _of_phase(k: str) -> tuple[Column, ...]:
    return (
        Column("span_s", "mean", _done(lambda r: r.span_s[k]), k, unit="Seconds per completed {unit}",
               rates=k, phases="Span, s", latex=k.capitalize(), sweep=k, csv=True),
        Column("critical_s", "mean", _critical(k), k,
               path=f"critical: {k}", phases="On the critical path, s", csv=True),
        Column("dropped", "sum", _each(lambda r: r.dropped[k]), k, losses="Users missed in"),
        Column("phase_energy_j", "mean", _cycle(_joules(lambda e: e.users[k])), k, of="energy",
               energy="Joules of users in", csv=True),
    )  # fmt: skip


def _per_hour(p: ProtocolSummary) -> float | None:
    """Return the updates in aggregates for an hour of virtual time, failed rounds' time included."""
    end_s = p.rounds[-1].end_s if p.rounds else 0
    return 3600 * sum(r.survivors for r in p.completed) / end_s if end_s else None


def _to_target(what: str, of: Of) -> tuple[Column, ...]:
    """Return the columns of what a run took until its model reached a target of the scenario."""

    def is_reached(p: ProtocolSummary) -> Values:
        return () if (t := getattr(p, of)) is None else (t.reached is not None,)

    def until(get: Callable[[Reached], float]) -> Read:
        return lambda p: () if (t := getattr(p, of)) is None or t.reached is None else (get(t.reached),)

    both: dict[str, Any] = {"of": of, "whole": True, "csv": True}
    mean: dict[str, Any] = {"how": "mean", "absent": "not reached", **both}
    seconds, rounds, moved, kept = f"s to {what}", f"rounds to {what}", f"MB to {what}", f"{what} kept"
    return (
        Column(f"{what}_reached", "flag", is_reached, **both),
        Column(f"{what}_after_s", read=until(lambda r: r.after_s), **mean,
               run=seconds, headline=f"To {what}: s", latex=seconds),
        Column(f"{what}_after_rounds", read=until(lambda r: r.rounds), **mean, digits=0,
               run=rounds, headline="rounds", latex=rounds),
        Column(f"{what}_after_bytes", read=until(lambda r: r.bytes_up + r.bytes_down), **mean, scale=1e6,
               run=moved, headline="MB", latex=moved),
        Column(f"{what}_kept", "flag", until(lambda r: r.kept), **both, run=kept, headline="kept"),
    )  # fmt: skip


COLUMNS: tuple[Column, ...] = (
    Column("per_aggregate_s", "mean", _cycle(lambda r: r.total_s),
           unit="Seconds of {time} time", time="per aggregate",
           headline="Seconds per aggregate", phases="Per aggregate, s", latex="Per aggregate",
           sweep="aggregate", csv=True),
    Column("failed_s", "mean", _cycle(lambda r: 0 if r.completed else r.total_s),
           unit="Seconds of {time} time", rare=True,
           time="  in failed rounds", headline="Of it in failed rounds", phases="In failed rounds, s",
           latex="Failed", csv=True),
    *(column for columns in zip(*map(_of_phase, PHASES), strict=True) for column in columns),
    Column("total_s", "mean", _done(lambda r: r.total_s), unit="Seconds per completed {unit}",
           rates="total", phases="Total, s", latex="Total", csv=True),
    Column("survivors", "range", _done(lambda r: r.survivors),
           rates="survivors", headline="Updates", csv=True),
    # all users together, failed rounds too
    Column("bytes_up", "mean", _cycle(lambda r: r.bytes_up), scale=1e6, unit="MB per aggregate",
           run="MB up/aggregate", headline="MB up", latex="Up", csv=True),
    Column("bytes_down", "mean", _cycle(lambda r: r.bytes_down), scale=1e6, unit="MB per aggregate",
           run="MB down/aggregate", headline="MB down", latex="Down", csv=True),
    # of a user who was invited, each time
    Column("user_bytes_up", "mean", _per_user(lambda r: r.bytes_up), scale=1e3, digits=1,
           run="kB up/user", csv=True),
    Column("user_bytes_down", "mean", _per_user(lambda r: r.bytes_down), scale=1e3, digits=1,
           run="kB down/user", csv=True),
    # of all users together, and of a user who was invited, each time
    Column("energy_j", "mean", _cycle(_joules(lambda e: e.users_j)), of="energy",
           run="J/aggregate", headline="Joules of users", energy="Joules of users", latex="Joules",
           csv=True),
    *(Column(f"{source}_energy_j", "mean", _cycle(_of_source(source)), of="energy", rare=True, energy=heading)
      for source, heading in zip(SOURCES, SOURCE_HEADINGS, strict=True)),
    Column("user_energy_j", "mean", _per_user(_joules(lambda e: e.users_j)), of="energy",
           run="J/user", energy="A user", csv=True),
    Column("server_energy_j", "mean", _cycle(_joules(lambda e: e.server_j)), of="energy", rare=True,
           run="server J/aggregate", energy="Of the server", csv=True),
    Column("rounds", "sum", _each(lambda r: 1), csv=True),
    Column("completed", "count", _each(lambda r: r.completed), fault=True,
           run="completed", headline="Completed", csv=True),
    Column("exact", "share", _each(lambda r: r.aggregate_exact), fault=True,
           run="aggregates exact", headline="Exact", sweep="exact", csv=True),
    Column("clipped", "sum", _each(lambda r: r.clipped), fault=True, rare=True,
           run="values clipped", losses="Values clipped"),
    Column("wrapped", "sum", _each(lambda r: r.wrapped), fault=True, rare=True,
           run="values wrapped", losses="Wrapped"),
    Column("partial", "sum", _each(lambda r: r.partial), of="partial", run="updates cut short", csv=True),
    Column("steps_share", "mean", _done(lambda r: r.steps_share), digits=2, of="partial",
           run="share of steps done", csv=True),
    Column("updates_clipped", "sum", _each(lambda r: r.updates_clipped), rare=True, run="updates clipped"),
    Column("reliable", "share", _each(lambda r: r.reliable), rare=True, run="reliable"),
    Column("private", "share", _each(lambda r: r.private), rare=True, run="private"),
    Column("aborted", "sum", _each(lambda r: not r.completed), fault=True, losses="Aborted"),
    Column("refused", "sum", _each(lambda r: sum(r.refused.values())), fault=True, rare=True,
           run="messages refused", losses="Refused"),
    Column("ignored", "sum", _each(lambda r: sum(r.ignored.values())), losses="Ignored"),
    Column("users_lost", "sum", _each(lambda r: r.lost), run="users lost", headline="Users lost", csv=True),
    Column("surplus", "sum", _each(lambda r: r.surplus), of="over_selected",
           run="users surplus", losses="Surplus", csv=True),
    Column("staleness", "mean", _once(lambda p: p.mean_staleness), digits=2, of="buffered",
           run="mean staleness", headline="Staleness", csv=True),
    Column("discarded_stale", "sum", _each(lambda r: r.discarded_stale), of="buffered",
           run="discarded as stale", losses="Stale", csv=True),
    Column("accuracy", "mean", _once(lambda p: p.final_accuracy), digits=4, whole=True,
           run="test accuracy", headline="Accuracy", latex="Final accuracy", sweep="accuracy", csv=True),
    # with three digits there is room for the spread over seeds
    Column("accuracy_over_seeds", "mean", _once(lambda p: p.final_accuracy), seeds="accuracy"),
    Column("T_weak", "mean", _last(lambda s: s.T_weak[-1][0] if s.T_weak[-1] else None),
           of="participation", csv=True),
    Column("T_weak_bounds", "range", _weak_bounds, of="participation", seeds="T weak"),
    Column("T_strong", "range", _last(lambda s: s.T_strong[-1]), of="participation",
           seeds="T strong", csv=True),
    Column("F", "mean", _last(lambda s: s.F[-1]), digits=2, of="participation", seeds="F", csv=True),
    Column("C", "mean", _last(lambda s: s.C[-1]), digits=2, of="participation", seeds="C", csv=True),
    Column("skipped", "sum", _each(lambda r: not r.selected), digits=0, seeds="skipped"),
    *_to_target("accuracy", "accuracy_target"),
    *_to_target("loss", "loss_target"),
    Column("updates_per_hour", "mean", _once(_per_hour), digits=1, csv=True),
)  # fmt: skip

_SWEPT = ("per_aggregate_s", "failed_s", "total_s", "span_s", "critical_s", "accuracy", "exact", "rounds",
          "completed", "survivors", "users_lost")  # fmt: skip
ORDER: dict[Place, tuple[str, ...]] = {
    "headline": (
        "per_aggregate_s",
        "failed_s",
        "completed",
        "survivors",
        "users_lost",
        "bytes_up",
        "bytes_down",
        "exact",
        "staleness",
    ),
    "energy": ("energy_j", "phase_energy_j"),
    "losses": ("dropped", "aborted", "refused", "ignored", "discarded_stale", "clipped", "wrapped"),
    "latex": ("per_aggregate_s", "failed_s"),
    "sweep": _SWEPT,
    "csv": _SWEPT,
}
"""Keys with which a place begins; the others follow in the order of `COLUMNS`."""


def at(place: Place, protocols: Iterable[ProtocolSummary] = ()) -> list[Column]:
    """Return the columns that are shown at a place of these protocols."""
    listed, first = list(protocols), ORDER.get(place, ())
    shown = [c for c in COLUMNS if getattr(c, place) and (not c.of or any(getattr(p, c.of) for p in listed))]
    return sorted(shown, key=lambda c: first.index(c.key) if c.key in first else len(first))
