import numpy as np
import pytest

from simfl.learning.server_opt import apply, constant, polynomial


def test_the_step_goes_against_g() -> None:
    weights = np.array([[1, 2, -3]], np.float32)
    g = np.array([[0.5, -1, 0]])
    after = apply(weights, g, 0.5)
    assert after.dtype == np.float32
    np.testing.assert_array_equal(after, np.array([[0.75, 2.5, -3]], np.float32))
    np.testing.assert_array_equal(weights, np.array([[1, 2, -3]], np.float32))


def test_the_step_is_rounded_once() -> None:
    # In float32, g would lose its last bit and 1 - 2^-25 round to 1.
    after = apply(np.ones((1, 1), np.float32), np.array([[2.0**-25 + 2.0**-50]]), 1.0)
    assert after[0, 0] == 1 - 2.0**-24


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"weights \(1, 3\) and g \(1, 1\)"):
        apply(np.zeros((1, 3), np.float32), np.zeros((1, 1)), 1.0)


def test_staleness() -> None:
    assert [constant(tau) for tau in (0, 1, 9)] == [1.0, 1.0, 1.0]
    assert [polynomial(tau, 1.0) for tau in (0, 1, 3)] == [1.0, 0.5, 0.25]
    assert polynomial(3, 0.5) == 0.5
    with pytest.raises(ValueError, match="tau=-1 must not be negative"):
        polynomial(-1, 1.0)
