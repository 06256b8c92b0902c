"""TurboAgg's abstract (So, Guler, Avestimehr 2021, arXiv 2002.04156) beside counted and simulated rounds.

Only the abstract was read. Nothing of ours is fitted to it.
"""

from __future__ import annotations

from math import log2

from papers.counted import Round, count, count_without
from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from papers.exponents import SLACK, exponent, n_log
from papers.measures import operations
from simfl.crypto.field import Q
from simfl.protocols.machine import Params
from simfl.protocols.turboagg import groups_of
from simfl.runs.simulation import run as simulate
from simfl.scenario.load import load

COUNTED = (32, 64, 128, 256)
"""Users of counted rounds, in groups of about log2 N."""
TIMED = (50, 100, 200)
"""Users of timed rounds."""
PROTOCOLS = ("secagg", "turboagg")


def counted(N: int) -> Round:
    """A round of N users in N / log2 N groups, without losses."""
    params, settings = Params(d=9_999, q=Q, N=N), {"groups": int(N // log2(N))}
    return count("turboagg", params, N, 0, seed=1, settings=settings)


def elements_sent(r: Round) -> float:
    """Elements of all messages, up and down."""
    return sum(n for way in (r.up, r.down) for n in way.values()) / 4


def all_operations(r: Round) -> float:
    """Operations on elements of all parties."""
    return sum(operations(work) for work in r.work.values())


def outcome(more: int) -> str:
    """Return the outcome of a round of 64 users in 8 groups, if half of each group and `more` are lost."""
    params = Params(d=999, q=Q, N=64, D=60)
    groups = groups_of(range(params.N), 8, params)
    lost = [user for group in groups for user in group[: len(group) // 2]]
    try:
        count_without([*lost, *groups[0][4 : 4 + more]], "turboagg", params, 64, 1, {"groups": 8})
    except ValueError:
        return "no sum"
    return "the sum"


def seconds(place: Place) -> dict[str, list[float]]:
    """Seconds of a round of each protocol, for each number of users, on links of 100 Mbit/s."""
    seconds: dict[str, list[float]] = {name: [] for name in PROTOCOLS}
    for users in TIMED:
        changes = {
            "rounds": 1, "payload": "shadow", "population.users": users, "dropout": {"rate": 0.1},
            "privacy": {"T": users // 5, "D": users // 5}, "protocols": list(PROTOCOLS),
            "network.users": {"uplink_mbps": 100, "downlink_mbps": 100, "latency_s": 0.02},
            "learning.dataset": {"kind": "synthetic", "shape": [1], "classes": 2},
            "learning.model": {"d": 99_999, "macs": 1}, "learning.batch_size": 1,
            "deadlines": dict.fromkeys(("advertise", "shares", "upload", "recovery"), 3000),
        }  # fmt: skip
        result = simulate(load(place.root / "scenarios" / "committee.yaml", changes))
        for name, protocol in result.summary["protocols"].items():
            seconds[name].append(protocol["rounds"][0]["end_s"])
    return seconds


def run(place: Place) -> Evidence:
    """Growth of all costs, losses that the ring bears, and seconds beside SecAgg's."""
    rounds, limit = [counted(N) for N in COUNTED], exponent(COUNTED, [n_log(N) for N in COUNTED])
    cells = []
    for words, of in (("elements sent", elements_sent), ("operations", all_operations)):
        counts = [of(r) for r in rounds]
        remark = f"counted at N = {COUNTED[0]} .. {COUNTED[-1]}: " + ", ".join(f"{n:.4g}" for n in counts)
        label = f"{words} of all parties, O(N log N): exponent of N"
        cells.append(Cell(label, limit, exponent(COUNTED, counts), "exponent", "at most", SLACK, remark))
    cells.append(
        Cell("half of each group is lost", "the sum", outcome(0), compare="order", basis="by construction")
    )
    cells.append(Cell("one more user of a group is lost", None, outcome(1), compare="none"))
    times = seconds(place)
    growth = exponent(TIMED, times["turboagg"])
    remark = "read as N^1; seconds at N = 50, 100, 200: " + ", ".join(f"{s:.3g}" for s in times["turboagg"])
    cells.append(
        Cell("seconds, almost linear: exponent of N", 1.0, growth, "exponent", "at most", SLACK, remark)
    )
    ratio = times["secagg"][-1] / times["turboagg"][-1]
    cells.append(Cell("SecAgg's seconds over TurboAgg's, N = 200", 40.0, ratio, "times", remark="up to"))
    lines = tuple(Line(name, tuple(map(float, TIMED)), tuple(of)) for name, of in times.items())
    chart = Chart("A round, d = 100,000", "users N", "virtual time, s", lines, log_x=10, log_y=10)
    return Evidence(tuple(cells), (chart,))


ENTRY = Entry(
    name="turboagg_abstract",
    paper="TurboAgg",
    where="abstract",
    title="Overhead of O(N log N), half of the users lost, and up to 40 times SecAgg's speed at N = 200",
    on="counted shadow rounds with N / log2 N groups; shadow rounds of d = 100,000 on links of 100 Mbit/s,"
    " T = D = N / 5, a tenth of the users lost, groups by our rule",
    how="All messages and all operations on elements are summed, and the slope of a line through the"
    " logarithms is compared with that of N log N; 0.02 is allowed. The speed-up is shown beside the printed"
    " one without a bound, as worlds differ.",
    run=run,
    disagreement="Our users multiply a group's shares by a matrix to code them, where a fast interpolation"
    " has fewer operations than the square of a group. Seconds: in each hop of the ring, a user downloads"
    " shares and partial sums of the group before, four vectors for each of its users, and the hops follow"
    " one another; SecAgg's server expands masks on eight cores by compiled code. The paper's baseline, links"
    " and groups were not at hand.",
)
