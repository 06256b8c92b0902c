"""`report.html`: one page that holds everything, asks no network for anything, and opens from a file.

Invariant: text from a scenario reaches the page only through the template's escaping, or as JSON in which no
`<` is left as it is.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from simfl.reports import by_class, chart, strip, tables, timeline, world
from simfl.reports.advice import KINDS, Advice, advise
from simfl.reports.assumptions import after
from simfl.reports.folder import Run
from simfl.reports.model import different_rounds, run_report
from simfl.reports.one_round import Focus
from simfl.reports.participation import participation, steps
from simfl.runs.results import units
from simfl.runs.results.breakdown import rows
from simfl.runs.results.columns import Measure, TableName
from simfl.runs.results.statistics import Estimate
from simfl.runs.results.summary import ProtocolSummary
from simfl.trace.rows import PHASES

MAX_SPANS = 80_000  # about, in the timelines of all protocols together: 2 MB
MIN_SPANS = 1_000  # that each of them may hold
MAX_SHARES = 8  # of a critical path, that are listed
NO_VALUE = "–"
Means = Mapping[Measure, Estimate | None]


def page(run: Run, asked: tuple[int, int] | None = None, focus: Focus | None = None) -> str:
    """The page of a run; its timelines show the rounds that are asked for (from, to), or well chosen ones.
    With a focus it opens on that round."""
    protocols, noisy = run.summary.protocols, run.summary.clock != "modelled"
    report = run_report([run.summary], run.scenario.profile, run.time)
    advices = {name: advise(run.traces[name], run.rounds[name]) for name in protocols}
    budget = max(MIN_SPANS, MAX_SPANS // max(1, len(protocols)))
    timelines = {name: timeline.pack(run, name, budget, asked, focus) for name in protocols}
    packed = timelines.items()
    shown = [{"name": n, "left_out": t.left_out, "views": len(t.views), "first": t.first} for n, t in packed]
    by_name: list[tables.Part] = [(name, None, p) for name, p in protocols.items()]
    by_rate = tables.by_rate(protocols)
    template = environment().get_template("report.html")
    return template.render(
        run=run,
        decides=after(run.scenario, run.summary.assumed, run.traces),
        report=report,
        headline=across("headline", by_name, noisy),
        phase_table=across("phases", by_rate, noisy),
        losses=across("losses", by_name, noisy),
        joules=across("energy", by_name, noisy),
        different=None if run.summary.same_rounds else different_rounds(run.unit),
        noisy=noisy,
        bars=[p.mean.per_aggregate_s or 0 for p in protocols.values()],
        advices=advices,
        widest=max((a.total_ns / a.scale for a in advices.values()), default=0),
        stacks=stacks([(name, rate, tables.means("phases", part)) for name, rate, part in by_rate]),
        reasons=tables.reasons(run),
        accuracy=accuracy(protocols),
        facts=world.world_facts(run.scenario),
        strips=strip.strips(run, timelines),
        participation=participation(run, report),
        energy=energy(protocols),
        classes=by_class.table(protocols),
        timelines=[{"types": list(t.types), "views": t.views} for t in timelines.values()],
        meta={
            "time": run.time,
            "phases": PHASES,
            "kinds": KINDS,
            "protocols": shown,
            "focus": focus and vars(focus),
        },
        paths={name: parts(advice) for name, advice in advices.items()},
    )


@cache
def environment() -> Environment:
    """Return the templates' environment, in which all text is escaped."""
    made = Environment(loader=PackageLoader("simfl.reports"), autoescape=True, undefined=StrictUndefined)
    made.trim_blocks = made.lstrip_blocks = True
    made.globals |= {"phases": PHASES, "kinds": KINDS, "colours": chart.PHASE_COLOUR}
    made.globals |= {"nothing": NO_VALUE, "most_shares": MAX_SHARES}
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":")}  # of `tojson`
    made.filters |= {"capital": lambda text: text[:1].upper() + text[1:]}
    made.filters |= {"steps": steps, "outcome": strip.outcome, "duration": strip.duration}
    made.filters |= {"seconds": units.seconds, "percent": units.percent}
    return made


def parts(advice: Advice) -> list[tuple[str, str, str, float, float]]:
    """A critical path as a bar, in order: (phase, kind, text, nanoseconds before, nanoseconds)."""
    amounts: Counter[tuple[str, str]] = Counter()
    for share in advice.shares:
        amounts[share.phase, share.kind] += share.ns
    out, before = [], 0.0
    for phase, kind in sorted(amounts, key=lambda key: (PHASES.index(key[0]), KINDS.index(key[1]))):
        ns = amounts[phase, kind] / advice.scale
        out.append((phase, kind, f"{phase}, {kind}: {units.seconds(ns)}", before, ns))
        before += ns
    return out


def across(place: TableName, entries: Sequence[tables.Part], noisy: bool) -> dict[str, Any]:
    """Return a table with a line an entry.

    Args:
        place: Which figures.
        entries: Name, drop-out rate and summary of each.
        noisy: Times have intervals.
    """
    columns = rows(place, [[p] for _, _, p in entries], noisy)
    groups = [(group, list(below)) for group, below in groupby(columns, lambda row: row.group)]
    return {"names": [(name, rate) for name, rate, _ in entries], "rows": columns, "groups": groups}


def stacks(
    rows: Sequence[tuple[str, str | None, Means]],
    key: str = "span_s",
    end: str = "total_s",
    unit: str = "s",
) -> list[dict[str, Any]]:
    """Phases' means on top of each other, and where the round ends, in percent of the longest.

    rows: a name, a drop-out rate and means each. key, end: the measure of phases, and that of the whole, in
    this unit.
    """
    means = [{measure: e.mean if e else 0.0 for measure, e in found.items()} for _, _, found in rows]
    heights = [sum(mean[key, phase] for phase in PHASES) for mean in means]
    scale = 100 / (max([*(mean[end, ""] for mean in means), *heights], default=0) or 1)
    out = []
    for (name, rate, found), mean in zip(rows, means, strict=True):
        spans = ((phase, found[key, phase]) for phase in PHASES)
        texts = ((phase, f"{phase}: {span.text() if span else 0} {unit}") for phase, span in spans)
        parts = chart.stacked((phase, text, scale * mean[key, phase]) for phase, text in texts)
        total, ends = found[end, ""], round(scale * mean[end, ""], 3)
        told = f"{total.mean:.3f} {unit}" if total else "no completed round"
        out.append({"name": name, "rate": rate, "total": told, "parts": parts, "end": ends})
    return out


def energy(protocols: Mapping[str, ProtocolSummary]) -> list[dict[str, Any]]:
    """The joules of users as stacks of phases, of the protocols whose energy is counted."""
    listed = [(name, None, tables.means("energy", p)) for name, p in protocols.items() if p.energy]
    return stacks(listed, "phase_energy_j", "energy_j", "J")


def accuracy(protocols: Mapping[str, ProtocolSummary]) -> dict[str, Any] | None:
    """Lines over virtual time: points in percent of the chart, from its left and from its top."""
    evaluated = tables.evaluated(protocols).items()
    series = {name: [(r.end_s, value) for r, value in known] for name, known in evaluated}
    points = [point for values in series.values() for point in values]
    if not points:
        return None
    times, accuracies = zip(*points, strict=True)
    targets = {name: p.accuracy_target for name, p in protocols.items()}
    wanted = next((target.value for target in targets.values() if target), None)
    seen = [*accuracies, *([] if wanted is None else [wanted])]
    across, up = chart.axis(0.0, max(times)), chart.axis(min(seen), max(seen))
    lines = []
    for place, (name, values) in enumerate(series.items()):
        colour, dashes = chart.line(place)
        drawn = [(round(across.at(at), 3), round(100 - up.at(value), 3)) for at, value in values]
        last = f"{values[-1][1]:.4f}" if values else NO_VALUE
        line = {"name": name, "colour": colour, "dashes": dashes, "points": drawn}
        reached = target.reached if (target := targets[name]) else None
        ring = reached and (round(across.at(reached.after_s), 3), round(100 - up.at(reached.measured), 3))
        lines.append({**line, "values": values, "last": last, "ring": ring})
    return {"lines": lines, "across": across, "up": up, "target": wanted}
