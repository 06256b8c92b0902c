import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from simfl.reports.label_histogram import MAX_CELLS, MAX_USERS, label_histogram

I64 = NDArray[np.int64]

some = arrays(
    np.int64,
    st.tuples(st.integers(1, 30), st.integers(1, 120)),
    elements=st.integers(0, 10**9),
    fill=st.just(0),
)


def test_a_few_users_by_number() -> None:
    counts = np.array([[8, 4, 0], [1, 100, 0], [0, 0, 0]])
    assert label_histogram(counts) == [
        "user  samples  labels",
        "   0       12       2  █▄·",
        "   1      101       2  ▁█·",
        "   2        0       0  ···",
        "Bars: one label a cell, full for the user's most frequent, · for none.",
        "Samples a user: min 0, median 12, max 101.",
        "Labels a user: min 0, median 2, max 2, of 3.",
    ]


def test_many_users_evenly_by_size() -> None:
    sizes = np.random.default_rng(0).permutation(45)
    lines = label_histogram(sizes[:, None])
    shown = [line.split() for line in lines[1 : MAX_USERS + 1]]
    assert [int(row[1]) for row in shown] == [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44]
    assert all(sizes[int(row[0])] == int(row[1]) for row in shown)
    assert lines[MAX_USERS + 1] == "12 of 45 users, evenly from the fewest samples to the most."
    assert "Samples a user: min 0, median 22, max 44." in lines


def test_many_labels_share_cells() -> None:
    """100 labels in 40 cells at most: 33 of three and one of one. A cell is a mean: none is favoured."""
    counts = np.ones((1, 100), np.int64)
    counts[0, 3:6] = 0
    lines = label_histogram(counts)
    assert lines[1].split()[-1] == "█·" + "█" * 32
    assert lines[2].startswith("Bars: 3 labels a cell,")
    assert "Labels a user: min 97, median 97, max 97, of 100." in lines


def test_a_narrow_terminal_has_fewer_cells_and_all_labels() -> None:
    counts = np.zeros((1, 40), np.int64)
    counts[0, -1] = 5
    lines = label_histogram(counts, 32)
    assert lines[1] == "   0        5       1  ·······█"
    assert lines[2].startswith("Bars: 5 labels a cell,")


@given(some, st.integers(1, 100))
def test_no_line_is_too_long(counts: I64, width: int) -> None:
    lines = label_histogram(counts, width)
    assert all(1 <= len(line) <= width and "\n" not in line for line in lines)
    assert len(lines) >= 1 + min(len(counts), MAX_USERS) + 3


@given(some)
def test_rows_match_the_counts(counts: I64) -> None:
    lines = label_histogram(counts)
    for line in lines[1 : 1 + min(len(counts), MAX_USERS)]:
        user, samples, labels, bar = line.split()
        mine = counts[int(user)]
        assert int(samples) == mine.sum()
        assert int(labels) == np.count_nonzero(mine)
        each = next(k for k in range(1, 121) if -(-len(mine) // k) <= MAX_CELLS)
        groups = [mine[start : start + each] for start in range(0, len(mine), each)]
        assert [cell != "·" for cell in bar] == [group.any() for group in groups]
        assert ("█" in bar) == mine.any()


def test_errors_name_the_values() -> None:
    for counts in np.zeros((0, 3), np.int64), np.zeros((3, 0), np.int64), np.zeros(3, np.int64):
        with pytest.raises(ValueError, match=r"must be \[users, classes\]"):
            label_histogram(counts)
    with pytest.raises(ValueError, match="-2 samples: counts must not be negative"):
        label_histogram(np.array([[1, -2]]))
    with pytest.raises(ValueError, match="width=0 must be at least 1"):
        label_histogram(np.ones((1, 1), np.int64), 0)
