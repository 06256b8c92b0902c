"""The figure of a sweep: the time per aggregate as the cohort grows (LightSecAgg Fig. 6)."""

from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pydantic_core import from_json

from simfl.errors import BadInput
from simfl.reports.figures.style import COLUMN, WIDE, panels, protocol_line, style
from simfl.studies.sweep.tables import MEANS, read_estimate, read_table

USERS, MEASURE = "population.users", "per_aggregate_s"
MAX_ACROSS = 3  # panels beside each other
# Panel -> protocol -> (what varies along the axis, mean, half of the interval), ascending.
Series = dict[str, dict[str, list[tuple[float, float, float]]]]


class Total(NamedTuple):
    """Mean seconds per aggregate of a protocol at a point, and half of the 95 % interval (0 for one seed)."""

    point: dict[str, Any]
    protocol: str
    mean_s: float
    half_s: float


def read(path: Path) -> list[Total]:
    """The totals of a sweep's `means.csv`; a point that made no aggregate has none.

    Raises:
        BadInput: it cannot be read, or is not such a table.
    """
    with read_table(path) as rows:
        return [
            Total(
                {key: _value(text) for key, text in row.items() if key not in MEANS},
                row["protocol"],
                total.mean,
                total.half or 0.0,
            )
            for row in rows
            if row["measure"] == MEASURE and (total := read_estimate(row))
        ]


def _value(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return text


def series(totals: list[Total]) -> tuple[str, Series]:
    """The key along the axis (the users, if they vary; else the first number that does), and the lines.

    The other numbers and words that vary make the panels; lists and mappings are taken to go along with
    them, as T and D with the users, unless points would fall together. Raises BadInput if no number varies.
    """
    across = _across(totals)
    for left_out in ((dict, list), ()):
        out: Series = {}
        for point, protocol, mean, half in totals:
            rest = {k: v for k, v in point.items() if k != across and not isinstance(v, left_out)}
            lines = out.setdefault(", ".join(map(_in_words, rest, rest.values())), {})
            lines.setdefault(protocol, []).append((point[across], mean, half))
        every = [line for lines in out.values() for line in lines.values()]
        if all(len({x for x, *_ in line}) == len(line) for line in every):
            break
    for line in every:
        line.sort()
    return across, out


def _across(totals: list[Total]) -> str:
    keys = dict.fromkeys(key for total in totals for key in total.point)
    for key in sorted(keys, key=lambda key: key != USERS):
        values = [total.point[key] for total in totals]
        if all(type(value) in (int, float) for value in values) and len(set(values)) > 1:
            return key
    raise BadInput(f"nothing to draw a line over: no number varies ({', '.join(keys) or 'nothing does'})")


def _in_words(key: str, value: Any) -> str:
    known = key == "dropout.rate" and type(value) in (int, float)
    return f"{value:.0%} lost" if known else f"{key} = {value}"


@style()
def total(totals: list[Total]) -> Figure:
    """A line a protocol with its 95 % intervals over seeds, a panel for each drop-out rate."""
    across, found = series(totals)
    protocols = list(dict.fromkeys(total.protocol for total in totals))
    width, height = COLUMN if len(found) == 1 else WIDE, 0.3 + 1.8 * -(-len(found) // MAX_ACROSS)
    lines = list(enumerate(protocols))
    figure, cells = panels(len(found), width, height, MAX_ACROSS, lines, sharex=True, sharey=True)
    over_seeds = "\nmean and 95 % interval" if any(one.half_s for one in totals) else ""
    for place, (axes, (name, drawn)) in enumerate(zip(cells, found.items(), strict=True)):
        for protocol, line in drawn.items():
            x, mean, half = zip(*line, strict=True)
            how = protocol_line(protocols.index(protocol))
            axes.errorbar(x, mean, half, marker="o", markersize=2, capsize=2.5, elinewidth=0.8, **how)
        axes.set_title(name)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        if place % MAX_ACROSS == 0:
            axes.set_ylabel(f"virtual time per aggregate (s){over_seeds}")
        if place >= len(found) - MAX_ACROSS:
            axes.set_xlabel("users" if across == USERS else across)
    cells[0].set_ylim(bottom=0)  # when all is drawn: it fixes the range that the panels share
    return figure
