"""FedScale's pull request 197: its numbers beside ours, and the order of the two protocols."""

from __future__ import annotations

from typing import Any

import pytest

from papers.fedscale_197 import MORE, SOONER, cells


def seeds(rounds: float, seconds: float, spread: float = 0.0) -> list[dict[str, Any]]:
    """Three seeds around (rounds, seconds) to the target, each of ten rounds of 50 s."""
    return [
        {
            "targets": {"accuracy": {"reached": {"rounds": rounds * k, "after_s": seconds * k}}},
            "rounds": [{"end_s": 50.0 * number} for number in range(1, 11)],
        }
        for k in (1 - spread, 1, 1 + spread)
    ]


def judged(plain: list[dict[str, Any]], buffered: list[dict[str, Any]]) -> dict[str, object]:
    found = cells({"fedavg": plain, "fedbuff": buffered})
    return {cell.label: cell.ours for cell in found if cell.compare == "order"}


def test_printed_numbers_stand_beside_ours() -> None:
    found = {c.label: (c.paper, c.ours) for c in cells({"fedavg": seeds(40, 8e3), "fedbuff": seeds(80, 4e3)})}
    assert found["synchronous: seconds to it"] == (27_618, 8_000)
    assert found["FedBuff: rounds to it"] == (180, 80)
    assert found["FedBuff: a round"] == (pytest.approx(105.07, abs=0.01), 50)
    assert found["seconds to it, synchronous / FedBuff"] == (pytest.approx(1.46, abs=0.01), 2)
    assert found["rounds to it, synchronous / FedBuff"] == (pytest.approx(0.556, abs=0.001), 0.5)


@pytest.mark.parametrize(
    ("rounds", "seconds", "spread", "words"),
    [
        (80, 4e3, 0.0, [MORE, SOONER]),
        (30, 9e3, 0.0, ["otherwise", "otherwise"]),
        (41, 7.9e3, 0.5, ["undecided", "undecided"]),
    ],
)
def test_the_order_is_that_of_the_interval(
    rounds: float, seconds: float, spread: float, words: list[str]
) -> None:
    """40 synchronous rounds of 8,000 s, without a spread."""
    assert [*judged(seeds(40, 8e3), seeds(rounds, seconds, spread)).values()] == words


def test_a_target_that_is_missed_is_no_number() -> None:
    missed = seeds(80, 4e3)
    missed[1]["targets"]["accuracy"]["reached"] = None
    assert judged(seeds(40, 8e3), missed) == {"FedBuff: target": "2 of 3 seeds"}
