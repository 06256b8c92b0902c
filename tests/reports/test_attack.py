"""What the attack came to, as text: against a page written by hand."""

from __future__ import annotations

import numpy as np

from simfl.privacy.attack import Attack
from simfl.reports.attack import lines


def found(errors: list[float], alone: tuple[int, ...], groups: tuple[tuple[int, ...], ...]) -> Attack:
    return Attack(3, 9, 7, 2, np.array(errors), alone, groups)


def test_errors_are_counted_in_bins_and_isolated_users_named() -> None:
    page = list(lines("secagg", found([0.0005, 0.02, 0.04, 2.0, np.nan], (1,), ((2, 3),))))
    assert page[0] == "secagg: rounds 3 to 9, 7 aggregates over 4 of 5 users, rank 2"
    assert "mean 0.5151, median 0.03, least 0.0005, most 2" in page[2]
    counts = {line.split("..")[0].strip(): line.split()[3] for line in page[3:11]}
    assert counts["0"] == counts["1"] == "1"
    assert counts["0.01"] == "2"
    assert counts["0.1"] == "0"
    assert page[5].count("█") == 40  # the fullest bin
    assert page[11] == "  isolated by their participation alone: 1 user (1)"
    assert page[12] == "  sums that can be isolated: 1 group of 2 users"
    assert max(map(len, page)) <= 80


def test_nobody_isolated() -> None:
    page = list(lines("x", found([0.5], (), ((0, 1), (2, 3, 4)))))
    assert page[-2] == "  nobody can be isolated by participation alone"
    assert page[-1] == "  sums that can be isolated: 2 groups of 2 to 3 users"


def test_many_isolated_users_are_not_all_listed() -> None:
    (line,) = [line for line in lines("x", found([0.5], tuple(range(40)), ())) if "isolated" in line]
    assert line.endswith("40 users (0, 1, 2, 3, 4, 5 and 34 more)")
