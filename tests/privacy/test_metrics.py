"""F(t) and C(t) by their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from simfl.privacy.metrics import cardinalities, fairness_gaps
from simfl.selection.history import Participation


@given(arrays(np.int8, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.integers(0, 1)))
def test_section_6_to_the_letter(P: np.ndarray[tuple[int, int], np.dtype[np.int8]]) -> None:
    J, N = P.shape
    F = [[sum(int(P[s, i]) for s in range(t + 1)) / (t + 1) for i in range(N)] for t in range(J)]
    assert fairness_gaps(P).tolist() == pytest.approx([max(row) - min(row) for row in F])
    sizes = [int((row != 0).sum()) for row in P]
    assert cardinalities(P).tolist() == pytest.approx([sum(sizes[: t + 1]) / (t + 1) for t in range(J)])


def test_skipped_rounds_count() -> None:
    history = Participation(3)
    for members in ([0, 1], [], [0, 2], []):
        history.append(members)
    assert cardinalities(history.matrix()).tolist() == [2, 1, 4 / 3, 1]
    assert fairness_gaps(history.matrix()).tolist() == [1, 0.5, 1 / 3, 0.25]
    assert fairness_gaps(Participation(3).matrix()).shape == (0,)
    assert cardinalities(Participation(3).matrix()).shape == (0,)
