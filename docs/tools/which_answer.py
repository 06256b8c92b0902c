"""The tables of docs/which_answer.md and README.md, and the page's figure, from the study that they show.

python -m docs.tools.which_answer     runs the study and writes all three
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import simfl
from docs.tools import ROOT
from simfl.cli import main
from simfl.studies.sweep.figures import read
from simfl.studies.sweep.plan import Plan, make_plan

STUDY = ROOT / "scenarios" / "studies" / "which_answer.yaml"
PAGE, README = ROOT / "docs" / "which_answer.md", ROOT / "README.md"
FIGURE = ROOT / "docs" / "which_answer.svg"

PROTOCOLS = ("secagg", "secagg_plus", "lightsecagg")

Point = tuple[str, str, int, float]
"""Profile, way of shares, the server's Mbit/s, part of the users that is lost."""
Seconds = dict[Point, dict[str, float]]

SHOWN: tuple[Point, ...] = (
    ("reference", "relayed", 1000, 0.3),
    ("lightsecagg_table4", "direct", 1000, 0.3),
)
"""The two points that README.md shows."""
COSTS = {"reference": "fast (`reference`)", "lightsecagg_table4": "the paper's (`lightsecagg_table4`)"}


def plan() -> Plan:
    return make_plan(STUDY)


def point(plan: Plan, number: int) -> Point:
    found = plan.points[number]
    server = found["network.server"]
    assert server["uplink_mbps"] == server["downlink_mbps"]
    return found["profile"], found["network.peers"], server["uplink_mbps"], found["dropout.rate"]


def perform(plan: Plan, points: Iterable[Point]) -> Seconds:
    """Run these points under all their seeds; return mean seconds per aggregate."""
    wanted, every = set(points), dict[Point, dict[str, list[float]]]()
    for cell in plan.cells:
        if (at := point(plan, cell.point)) in wanted:
            for name, rounds in simfl.run(cell.scenario).rounds.items():
                assert all(r.reason is None for r in rounds)
                seconds = rounds[-1].end / 1e9 / len(rounds)
                every.setdefault(at, {}).setdefault(name, []).append(seconds)
    return {at: {name: fmean(values) for name, values in found.items()} for at, found in every.items()}


def row(at: Point, seconds: dict[str, float]) -> str:
    """A point's line of a table."""
    profile, peers, mbps, rate = at
    fastest = min(PROTOCOLS, key=lambda name: seconds[name])
    times = {name: f"{seconds[name]:.1f}" for name in PROTOCOLS}
    shown = (f"**{text}**" if name == fastest else text for name, text in times.items())
    return f"| {COSTS[profile]} | {peers} | {mbps / 1000:g} Gbit/s | {rate:.0%} | {' | '.join(shown)} |"


def table(seconds: Seconds) -> str:
    head = f"| a mask's cost | shares | server's link | lost | {' | '.join(PROTOCOLS)} |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *(row(*item) for item in seconds.items())])


def between(page: Path) -> re.Match[str]:
    """The generated part of a page: what stands between the two comments."""
    text = page.read_text(encoding="utf-8")
    found = re.search(r"(<!-- python -m docs\.tools\.which_answer .*-->\n).*?(<!-- end -->)", text, re.S)
    assert found is not None, page
    return found


def rows(page: Path) -> dict[Point, str]:
    """The lines of a page's table, by their points."""
    profiles = {words: name for name, words in COSTS.items()}
    found = {}
    for line in between(page).group().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in profiles:
            mbps, lost = round(1000 * float(cells[2].split()[0])), float(cells[3].strip("%")) / 100
            found[profiles[cells[0]], cells[1], mbps, lost] = line
    return found


def times(page: Path) -> Seconds:
    """The numbers of a page's table."""
    cells = {
        at: line.replace("*", "").strip("|").split("|")[-len(PROTOCOLS) :] for at, line in rows(page).items()
    }
    return {at: dict(zip(PROTOCOLS, map(float, texts), strict=True)) for at, texts in cells.items()}


def write(page: Path, text: str) -> None:
    found = between(page)
    whole = found.string[: found.start()] + found.group(1) + text + "\n" + found.group(2)
    page.write_text(whole + found.string[found.end() :], encoding="utf-8")


def update() -> None:
    """Run the whole study, and write both tables and the figure."""
    study, seconds = plan(), Seconds()
    with TemporaryDirectory() as folder:
        for command in (["sweep", str(STUDY), "--out", folder], ["report", folder, "--figures"]):
            with suppress(SystemExit):  # without tables or figure, what follows fails
                main(command)
        for total in read(Path(folder) / "means.csv"):
            number = study.points.index(total.point)
            seconds.setdefault(point(study, number), {})[total.protocol] = total.mean_s
        shutil.copy(Path(folder) / "figures" / "categories.svg", FIGURE)
    write(PAGE, table(seconds))
    write(README, table({at: seconds[at] for at in SHOWN}))


if __name__ == "__main__":
    update()
