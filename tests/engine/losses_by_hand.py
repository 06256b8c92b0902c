"""Times of a round of three equal users by hand, losses included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from simfl.runs.build import build
from simfl.scenario.load import load
from tests.engine.harness import SYNC

US, MS = 1000, 1_000_000
UP, DOWN, AWAY, OVERHEAD, SLOW = 1 * US, US // 2, 10 * MS, 1 * MS, 10
D = 650
M = D + 1  # with the sum of weights; also a coded share, as U - T = 1
UPLOAD_DEADLINE, RECOVERY_DEADLINE = 5000 * MS, 2000 * MS
DELAY = 3000 * MS
"""From a loss to its notice; by then the others' uploads are there."""


def down(size_bytes: int) -> int:
    """From the server's sending to the end of a receiving step that has no work."""
    return size_bytes * DOWN + AWAY + OVERHEAD


def up(size_bytes: int) -> int:
    """From a user's sending to the message's arrival."""
    return size_bytes * UP + AWAY


@cache
def trained() -> int:
    """A user's local training."""
    trainer = build(load(SYNC)).trainer
    work = trainer.work(0)
    return SLOW * (work["softmax_mac"] * 1 + work["softmax_step"] * 100_000)


@dataclass(frozen=True)
class Hand:
    """A protocol by hand.

    opens: the server opens the upload stage; sends: the users' uploads start to leave; size: their bytes;
    fold: what the server does with a second and third upload as it comes; recovered(alive, answers): from the
    server's knowing who survived to the end of the round, when so many answers are waited for.
    """

    opens: int
    sends: int
    size: int
    fold: int
    recovered: Callable[[int, int], int]

    @property
    def arrives(self) -> int:
        return self.sends + up(self.size)

    def closes(self, users: int) -> int:
        """The server has dealt with the uploads of so many users that came together."""
        return self.arrives + users * OVERHEAD + (users - 1) * self.fold


def fedavg() -> Hand:
    # the model of 4 * 650 + 8 = 2608 B, training; an upload is 4 * 650 + 4 = 2604 B. Sum, mean, update.
    def recovered(alive: int, answers: int) -> int:
        return alive * D * 4 + D * 4 + D * 6

    return Hand(0, down(2608) + trained(), 2604, 0, recovered)


def secagg() -> Hand:
    keys = SLOW * 2 * 30_000
    share = SLOW * (
        2 * 40_000 + 9 * 2 * 3 * 2 * 7 + 9 * 2 * 2 + 2 * 1500 + 2 * 72
    )  # agree, Shamir, PRG, seal
    hold = SLOW * (2 * 1500 + 176 + 2 * 40_000)  # open, agree on pairwise seeds
    mask = SLOW * (12 * D + 3 * M * (2 + 3))  # quantise; two pairwise masks and its own
    opens = (
        down(4)  # the invitation
        + keys
        + up(64)
        + 3 * OVERHEAD
        + down(4 * 4 + 3 * 64)  # the roster, and t
        + share
        + up(2 * 88)  # two sealed pairs of shares, 2 * 36 + 16 B each
        + 3 * OVERHEAD
    )
    inbox = down(2 * 4 + 2 * 88) + hold  # it keeps the device's lane when the model arrives behind it
    assert inbox > down(2 * 4 + 2 * 88 + 2608) - OVERHEAD

    def recovered(alive: int, answers: int) -> int:
        lost = 3 - alive
        asked = down(4 * alive) + up(3 * 36) + answers * OVERHEAD if answers else 0
        secrets = 3 * (9 * 2 * 7 + 2**2 * 30) + lost * alive * 40_000  # each from t = 2 shares
        seeds = alive + lost * alive
        return asked + secrets + seeds * M * (2 + 3) + 12 * D + 6 * D

    return Hand(opens, opens + inbox + OVERHEAD + trained() + mask, 4 * M, 3 * M, recovered)


def lightsecagg() -> Hand:
    keys = SLOW * 30_000
    sealed = 2 * (4 * M + 16)
    share = SLOW * (2 * 40_000 + 2 * M + 3 * 2 * (M + 100) + 1 * M * 2 + 2 * 1500 + 2 * 4 * M)
    mask = SLOW * (12 * D + 3 * M)
    opens = down(4) + keys + up(32) + 3 * OVERHEAD + down(4 * 3 + 3 * 32) + share + up(sealed) + 3 * OVERHEAD
    model = down(2 * 4 + sealed + 2608)  # it comes right behind the inbox, and holding that is done before

    def recovered(alive: int, answers: int) -> int:
        asked = down(4 * alive) + SLOW * 5 * alive * M + up(4 * M) + answers * OVERHEAD
        decode = (2 - 1) * 2 * M * 1 + 2**2 * 100 + 3 * M  # and subtract
        return asked + decode + 12 * D + 6 * D

    return Hand(opens, opens + model + trained() + mask, 4 * M, 3 * M, recovered)


HANDS = {"fedavg": fedavg, "secagg": secagg, "lightsecagg": lightsecagg}
ANSWERS = {"fedavg": 0, "secagg": 2, "lightsecagg": 2}
"""How many of three answers the server waits for: any t, or any U."""
