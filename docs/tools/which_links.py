"""The tables and the figure of docs/which_links.md, from the study that they show.

python -m docs.tools.which_links     runs the study, which takes two minutes, and writes them
"""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import fmean as mean
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

import simfl
from docs.tools import ROOT
from simfl.reports.chart import PHASE_COLOUR
from simfl.reports.figures.catalogue import save
from simfl.reports.figures.style import INK, WIDE, legend, pale, panels, style
from simfl.runs.results.statistics import estimate
from simfl.scenario.schema import Scenario
from simfl.scenario.user_classes import classes_of
from simfl.studies.sweep.plan import Plan, make_plan
from simfl.trace.rows import PHASES, SERVER
from simfl.virtual_time import NS

STUDY = ROOT / "scenarios" / "studies" / "which_links.yaml"
PAGE, FIGURE = ROOT / "docs" / "which_links.md", ROOT / "docs" / "which_links.svg"

PROTOCOLS = ("secagg", "secagg_plus", "ccesa", "lightsecagg")
SHOWN = ("secagg_plus", "lightsecagg")
"""The two that are the fastest anywhere, and that the longer tables show."""
COSTS = {"lightsecagg_table4": "the paper's", "reference": "fast"}
LINKS = {"4g": "4G for all", "all_6": "6 Mbit/s for all", "below_3": "like FedScale's"}
"""The first class of each kind of links, and its name on the page."""
SLOWEST = "below_3"

BASE = "nothing"
CHANGES = {
    BASE: (),
    "the offline phase comes first": ("overlap",),
    "server's link 1 Gbit/s": ("network.server",),
    "server's link 1 Gbit/s, direct shares": ("network.server", "network.peers"),
    "devices differ": (),
    "30% lost": ("dropout.rate",),
    "D = 20": ("privacy.D",),
    "T = 40": ("privacy.T",),
    "N = 200, T = 20, D = 100": ("population.users", "privacy", "learning.dataset.train"),
    "20 samples each": ("learning.dataset.train",),
    "d = 7,850": ("learning.model", "learning.dataset.classes"),
    "d = 1,909,884": ("learning.model", "learning.dataset.shape"),
    "80% are enough": ("deadlines",),
    "80% are enough, the offline phase first": ("deadlines", "overlap"),
    "60% are enough": ("deadlines",),
    "100 of 400 selected, 80 are enough": (
        "population.users",
        "learning.dataset.train",
        "deadlines.upload",
        "selection",
    ),
}
"""The cells of a cost in their order: in words, and by the keys that they set beside profile and slowdown."""

Point = tuple[str, str, str]
"""The cost of a mask, the change, and the links, each in the page's words."""


class Run(NamedTuple):
    """A protocol's run. updates: those in its aggregate, by class of user; path: its critical path in ns, by
    phase, class of user or server, and kind."""

    seconds: float
    updates: Counter[str]
    path: Counter[tuple[str, str, str]]

    def share(self, *, phase: str = "", who: str = "", kind: str = "") -> float:
        """Return the seconds of the path of a phase, a class or a kind."""
        return sum(
            ns / NS
            for key, ns in self.path.items()
            if all(wanted in ("", own) for wanted, own in zip((phase, who, kind), key, strict=True))
        )


Runs = dict[str, list[Run]]
"""Of each protocol, a run under each seed."""


def plan() -> Plan:
    return make_plan(STUDY)


def point(plan: Plan, number: int) -> Point:
    found, links = plan.points[number], list(LINKS)
    change = list(CHANGES)[number // len(links) % len(CHANGES)]
    first = next(iter(found["population.classes"]))
    assert first == links[number % len(links)]
    cost = next(words for name, words in COSTS.items() if found["profile"].startswith(name))
    return cost, change, LINKS[first]


def perform(plan: Plan, points: Iterable[Point]) -> dict[Point, Runs]:
    """Run these points under all their seeds."""
    wanted, every = set(points), dict[Point, Runs]()
    for cell in plan.cells:
        if (at := point(plan, cell.point)) in wanted:
            runs = every.setdefault(at, {})
            for name, run in perform_one(cell.scenario).items():
                runs.setdefault(name, []).append(run)
    return every


def perform_one(scenario: Scenario) -> dict[str, Run]:
    """Return the run of each protocol that completes a scenario's one round."""
    found = dict[str, Run]()
    classes = classes_of(scenario)
    for name, (only,) in simfl.run(scenario).rounds.items():
        if only.reason is not None:
            continue
        path = Counter[tuple[str, str, str]]()
        for (phase, party, kind), ns in only.critical.items():
            path[phase, "server" if party == SERVER else classes.of(party), kind] += ns
        updates = Counter(classes.of(user) for user, _, _ in only.members)
        found[name] = Run(only.end / NS, updates, path)
    gc.collect()  # a run leaves some 50 MB of cycles behind, and Python comes round to them late
    return found


def fastest(runs: Runs) -> str:
    """Return the fastest protocol that fails under no seed, or "" where its lead is not significant.

    All protocols of a seed have the same users, links and losses, so the seconds that one is ahead of
    another are compared seed by seed, and their 95 % interval must not reach zero.
    """
    seeds = max(map(len, runs.values()))
    whole = {name for name, own in runs.items() if len(own) == seeds}
    best = min(whole, key=lambda name: mean(run.seconds for run in runs[name]))
    for name in whole - {best}:
        ahead = [other.seconds - own.seconds for own, other in zip(runs[best], runs[name], strict=True)]
        found = estimate(ahead)
        if found.mean <= (found.half or 0):
            return ""
    return best


def seconds(runs: Runs, name: str, digits: int = 1) -> str:
    """Return the mean seconds of a protocol, in bold if it is the fastest."""
    text = f"{mean(run.seconds for run in runs[name]):.{digits}f}"
    return f"**{text}**" if name == fastest(runs) else text


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines).replace("| --- ", "|---")


def of_base(found: Mapping[Point, Runs]) -> str:
    """The table of all protocols at the base."""
    head = ("a mask's cost", "users' links", *PROTOCOLS)
    return table(
        head,
        (
            (cost, links, *(seconds(runs, name) for name in PROTOCOLS))
            for (cost, words, links), runs in found.items()
            if words == BASE
        ),
    )


def change(found: Mapping[Point, Runs], cost: str, words: str) -> list[str]:
    """A row of the table of changes: under each kind of links the times of SecAgg+ and LightSecAgg."""
    cells = [cost, words]
    for links in LINKS.values():
        runs = found[cost, words, links]
        assert fastest(runs) in ("", *SHOWN)
        small = min(run.seconds for own in runs.values() for run in own) < 10
        cells.append(" / ".join(seconds(runs, name, 2 if small else 1) for name in SHOWN))
    return cells


def of_changes(found: Mapping[Point, Runs]) -> str:
    """The table of all points, SecAgg+ before LightSecAgg."""
    head = ("a mask's cost", "what is changed", *LINKS.values())
    return table(head, (change(found, cost, words) for cost in COSTS.values() for words in CHANGES))


def of_paths(found: Mapping[Point, Runs]) -> str:
    """The table of critical paths at the base: seconds by phase, on the network, and of the slowest users."""
    head = ("a mask's cost", "users' links", "", *PHASES, "in all", "network", "the quarter below 3 Mbit/s")
    rows = []
    for (cost, words, links), runs in found.items():
        for name in SHOWN if words == BASE else ():
            own = runs[name]
            means = [
                *(mean(run.share(phase=phase) for run in own) for phase in PHASES),
                mean(run.seconds for run in own),
                mean(run.share(kind="network") for run in own),
            ]
            slowest = mean(run.share(who=SLOWEST) for run in own)
            last = f"{slowest:.1f}" if links == LINKS[SLOWEST] else ""
            rows.append((cost, links, name, *(f"{mean:.1f}" for mean in means), last))
    return table(head, rows)


TABLES = {"base": of_base, "changes": of_changes, "paths": of_paths}


def between(name: str) -> re.Match[str]:
    """A generated table of the page: what stands between its two comments."""
    text = PAGE.read_text(encoding="utf-8")
    pattern = (
        rf"(<!-- python -m docs\.tools\.which_links writes this table: {name} -->\n)(.*?)\n(<!-- end -->)"
    )
    found = re.search(pattern, text, re.S)
    assert found is not None, name
    return found


def shown(name: str) -> list[list[str]]:
    """The rows of a table of the page."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in between(name)[2].splitlines()[2:]
    ]


@style()
def figure(found: Mapping[Point, Runs]) -> Figure:
    """A panel for each cost, a bar for each protocol and kind of links, by phase; pale: not network."""
    drawn, cells = panels(len(COSTS), WIDE, 2.0, len(COSTS), grid="x", sharey=True)
    bars = [(links, name) for links in LINKS.values() for name in SHOWN]
    places = [k + 0.4 * (k // len(SHOWN)) for k in range(len(bars))]
    for axes, cost in zip(cells, COSTS.values(), strict=True):
        for place, (links, name) in zip(places, bars, strict=True):
            _bar(axes, place, found[cost, BASE, links][name])
        axes.set_xlim(0, 1.15 * axes.dataLim.x1)
        axes.set_title(f"a mask's cost: {cost}")
        axes.set_xlabel("critical path, s of virtual time per aggregate")
    cells[0].set_yticks(places, [f"{links}: {name}" for links, name in bars])
    cells[0].invert_yaxis()
    legend(drawn, Patch(facecolor=pale(INK), label="pale: not on the network"))
    return drawn


def _bar(axes: Axes, place: float, runs: list[Run]) -> None:
    left = 0.0
    for phase in PHASES:
        whole = mean(run.share(phase=phase) for run in runs)
        network = mean(run.share(phase=phase, kind="network") for run in runs)
        for width, colour in ((network, PHASE_COLOUR[phase]), (whole - network, pale(PHASE_COLOUR[phase]))):
            axes.barh(place, width, left=left, height=0.8, color=colour)
            left += width
    axes.text(left, place, f" {left:.1f}", va="center")


def update() -> None:
    """Run the whole study, and write the tables and the figure."""
    study = plan()
    found = perform(study, [point(study, number) for number in range(len(study.points))])
    for name, make in TABLES.items():
        old = between(name)
        text = f"{old[1]}{make(found)}\n{old[3]}"
        PAGE.write_text(old.string[: old.start()] + text + old.string[old.end() :], encoding="utf-8")
    save(FIGURE.parent, {FIGURE.stem: figure(found)}, ["svg"])


if __name__ == "__main__":
    update()
