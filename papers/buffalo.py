"""Buffalo's printed totals of a whole training beside one counted aggregation, times the rounds.

The figures are printed in the notebook of its public code (flsim/src/estimation.ipynb of rtaiello/buffalo);
the paper was not read. Nothing of ours is fitted to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from papers.counted import Round, count_aggregation
from papers.entry import Cell, Entry, Evidence, Place
from simfl.crypto.field import Q
from simfl.protocols.machine import Params
from simfl.world import profiles


@dataclass(frozen=True)
class Training:
    """One of the three trainings of the notebook."""

    name: str
    K: int
    """Updates of a buffer."""
    rounds: int
    """Aggregations."""
    d: int
    """Numbers of an update: its bytes at 8 bits each."""
    gigabytes: float
    """Bytes printed, in 10^9: of clients, and both ways of assistants."""
    minutes: float
    """Time of computation printed: of clients, assistants and server, one after the other."""

    @property
    def coefficients(self) -> int:
        """Coefficients that hold an update in the public code: 58 - log2 K bits, 8 + log2 K a number."""
        bits = log2(self.K)
        return ceil(self.d / int((58 - bits) // (8 + bits)))


TRAININGS = (
    Training("REPLACE-BG", 16, 1_659, 260_000, 14.521054464, 169.04480857610702),
    Training("CelebA", 128, 411, 31_000, 9.830541312, 347.64872247219085),
    Training("Sent140", 256, 387, 1_000_000, 389.616095232, 822.7216954350472),
)
CALLS = ("begin", "submit", "survivors", "recover", "upload", "signature", "answer")
"""Calls of an aggregation; keys for channels, and those of the setup, are left out as in the notebook."""


def counted(training: Training, d: int, users: int) -> Round:
    """One aggregation, in which all these users are assistants."""
    params = Params(d=d, q=Q, N=users, K=training.K, U=66 * users // 100 + 1, T=users // 3, D=users // 4)
    return count_aggregation("buffalo", params, seed=1)


def bytes_of(r: Round, phase: str) -> int:
    """Bytes of a phase, both ways."""
    return sum(n for way in (r.up, r.down) for (_, of), n in way.items() if of == phase)


def cells_of(training: Training) -> list[Cell]:
    """Totals of a training: with our packing, and with the coefficients of the public code."""
    name, rounds, cells = training.name, training.rounds, list[Cell]()
    packed = "as many coefficients as the public code"
    for words, d in (("all", training.d), (packed, training.coefficients)):
        r = counted(training, d, training.K)
        upload, recovery = (rounds * bytes_of(r, phase) / 1e9 for phase in ("upload", "recovery"))
        remark = f"uploads {upload:.4g}, assistants {recovery:.4g}; d = {d:,}"
        ours = upload + recovery
        cells.append(Cell(f"{name}, {words}", training.gigabytes, ours, "GB", bound=0.15, remark=remark))
    seconds, rates = rounds * _seconds(r), "times on the core of the profile `reference`"
    cells.append(Cell(f"{name}, work, {packed}", training.minutes, seconds / 60, "min", remark=rates))
    return cells


def _seconds(r: Round) -> float:
    rates = profiles.load("reference").seconds
    calls = (work for (_, call), work in r.calls.items() if call in CALLS)
    return sum(rates[kind] * n for work in calls for kind, n in work.items())


def run(place: Place) -> Evidence:
    """The three trainings, and the first one with all of its 180 users as assistants."""
    cells, first = [cell for training in TRAININGS for cell in cells_of(training)], TRAININGS[0]
    r = counted(first, first.coefficients, 180)
    total = first.rounds * sum(bytes_of(r, phase) for phase in ("upload", "recovery")) / 1e9
    cells.append(Cell(f"{first.name}, the same, 180 assistants", first.gigabytes, total, "GB", "none"))
    return Evidence(tuple(cells))


ENTRY = Entry(
    name="buffalo_totals",
    paper="Buffalo",
    where="notebook of its public code",
    title="Bytes and minutes of secure aggregation in three trainings",
    on="one counted shadow aggregation, times the rounds; the K users of the buffer are the assistants",
    how="The notebook prints rounds times the sum of what K clients send and what assistants send and"
    " receive, and the like of computing times. Ours is the same sum, all K users being asked as assistants;"
    " setup is left out on both sides. Bytes may differ by 15 %; minutes are not judged, as machines differ.",
    run=run,
    disagreement="Our coefficient holds one number, of the field's 32 bits and the sum's; the public code"
    " packs three or four of 8 bits, and the second cell of a training has as many coefficients. Our ring-LWE"
    " key takes 12 to 16 ciphertexts of 512 bytes. The code has 128 to 137 of them, and counts 256 bytes for"
    " each, as its factors of n have 512 bits. A share has 608 to 712 bytes here, limb by limb, and 258 as"
    " the code counts it: CelebA's updates are short, so shares weigh most there. What is left of Sent140's"
    " printed total is not explained by the code. Who assists decides much: with all users of a training,"
    " each update has a share for each of them.",
)
