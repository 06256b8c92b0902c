import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from simfl.learning.server_opt import Averaging, FedAdam, FedYogi, ServerRule
from tests.sizes import examples

FEW = settings(max_examples=examples(30))
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
AdaptiveKind = str
KINDS = ["fedadam", "fedyogi"]


def made(kind: str = "fedadam", **values: float) -> FedAdam | FedYogi:
    return {"fedadam": FedAdam, "fedyogi": FedYogi}[kind](**values)  # type: ignore[return-value]


def apply(weights: F32, g: F64, lr: float) -> F32:
    return Averaging().apply(weights, g, lr)


def initial_moments(d: int, tau: float) -> F64:
    return made(tau=tau).first(d)


def moments(state: F64, g: F64, kind: str, beta1: float, beta2: float) -> F64:
    return made(kind, beta1=beta1, beta2=beta2).remember(state, g)


def adaptive(weights: F32, state: F64, lr: float, tau: float) -> F32:
    return made(tau=tau).apply(weights, state, lr)


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
    with pytest.raises(ValueError, match=r"weights \(1, 3\) and the step \(1, 1\)"):
        apply(np.zeros((1, 3), np.float32), np.zeros((1, 1)), 1.0)


def test_moments_by_hand() -> None:
    # All numbers are exact in binary; v is above, below and at g^2.
    state, g = np.array([[1.0, 0, 2], [8, 1, 4]]), np.array([[2.0, -4, 2]])
    m = [1.25, -1.0, 2.0]
    assert moments(state, g, "fedadam", 0.75, 0.5).tolist() == [m, [6.0, 8.5, 4.0]]
    assert moments(state, g, "fedyogi", 0.75, 0.5).tolist() == [m, [6.0, 9.0, 4.0]]
    assert state.tolist() == [[1.0, 0, 2], [8, 1, 4]]


def test_yogi_forgets_slowly() -> None:
    """v changes by (1 - beta2) g^2 at most, whatever it is."""
    state, g = np.array([[0.0], [100.0]]), np.array([[1.0]])
    assert moments(state, g, "fedyogi", 0.0, 0.5)[1, 0] == 99.5
    assert moments(state, g, "fedadam", 0.0, 0.5)[1, 0] == 50.5


def test_the_adaptive_step_by_hand() -> None:
    weights, state = np.array([[1, 2, 3]], np.float32), np.array([[1.0, -2, 0], [4, 0.25, 9]])
    after = adaptive(weights, state, 0.5, 0.5)
    assert after.dtype == np.float32
    assert after.tolist() == [[np.float32(1 - 0.5 / 2.5), 3.0, 3.0]]
    assert weights.tolist() == [[1, 2, 3]]


def test_the_adaptive_step_is_rounded_once() -> None:
    # 2^-25 + 2^-50 of m: in float32 it would lose its last bit and 1 - 2^-25 round to 1.
    after = adaptive(np.ones((1, 1), np.float32), np.array([[2.0**-25 + 2.0**-50], [0.25]]), 1.0, 0.5)
    assert after[0, 0] == 1 - 2.0**-24


class Published:
    """Algorithm 2 of Reddi et al. 2021 for one coordinate, in Python floats, with the paper's own Delta."""

    def __init__(
        self, x: float, kind: AdaptiveKind, lr: float, beta1: float, beta2: float, tau: float
    ) -> None:
        self.x, self.m, self.v = x, 0.0, tau * tau
        self.kind, self.lr, self.beta1, self.beta2, self.tau = kind, lr, beta1, beta2, tau

    def step(self, delta: float) -> None:
        self.m = self.beta1 * self.m + (1 - self.beta1) * delta
        square = delta * delta
        if self.kind == "fedadam":
            self.v = self.beta2 * self.v + (1 - self.beta2) * square
        elif self.v > square:
            self.v -= (1 - self.beta2) * square
        elif self.v < square:
            self.v += (1 - self.beta2) * square
        self.x += self.lr * self.m / (math.sqrt(self.v) + self.tau)


values = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))
betas = st.floats(0, 0.999)


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(
    deltas=st.lists(st.lists(values, min_size=2, max_size=2), min_size=1, max_size=10),
    lr=st.floats(1e-3, 1),
    beta1=betas,
    beta2=betas,
    tau=st.floats(1e-3, 1),
)
def test_many_steps_are_algorithm_2(
    kind: AdaptiveKind, deltas: list[list[float]], lr: float, beta1: float, beta2: float, tau: float
) -> None:
    oracles = [Published(0.0, kind, lr, beta1, beta2, tau) for _ in range(2)]
    weights, state = np.zeros((1, 2), np.float32), initial_moments(2, tau)
    for delta in deltas:
        state = moments(state, -np.array([delta]), kind, beta1, beta2)
        weights = adaptive(weights, state, lr, tau)
        for oracle, x in zip(oracles, delta, strict=True):
            oracle.step(x)
            oracle.x = float(np.float32(oracle.x))
    np.testing.assert_allclose(state[0], [-oracle.m for oracle in oracles], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state[1], [oracle.v for oracle in oracles], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(weights[0], [oracle.x for oracle in oracles], rtol=1e-5, atol=1e-5)


@FEW
@given(st.lists(values, min_size=1, max_size=8), st.floats(1e-3, 1))
def test_without_memory_adam_steps_by_the_sign(g: list[float], tau: float) -> None:
    """beta1 = beta2 = 0: each coordinate's step is lr g / (|g| + tau), nearly lr sign(g) for a small tau."""
    update = np.array([g])
    state = moments(initial_moments(len(g), tau), update, "fedadam", 0.0, 0.0)
    after = adaptive(np.zeros((1, len(g)), np.float32), state, 0.25, tau)
    np.testing.assert_allclose(after, -0.25 * update / (np.abs(update) + tau), rtol=1e-6)
    assert (np.abs(after) <= 0.25).all()


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(
    g=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=8),
    beta1=betas,
    beta2=betas,
    n=st.integers(1, 4),
)
def test_states_stay_finite(kind: AdaptiveKind, g: list[float], beta1: float, beta2: float, n: int) -> None:
    update, state = np.array([g]), initial_moments(len(g), 1e-3)
    weights = np.ones((1, len(g)), np.float32)
    for _ in range(n):
        state = moments(state, update, kind, beta1, beta2)
        weights = adaptive(weights, state, 0.1, 1e-3)
    assert state.shape == (2, len(g))
    assert weights.shape == (1, len(g))
    assert weights.dtype == np.float32
    assert (state[1] >= 0).all()
    assert np.isfinite(state).all()
    assert np.isfinite(weights).all()


def test_the_first_state() -> None:
    state = initial_moments(3, 0.5)
    assert state.dtype == np.float64
    assert state.tolist() == [[0.0] * 3, [0.25] * 3]


def test_a_rule_with_memory_needs_remember() -> None:
    with pytest.raises(TypeError, match="server rule Forgetful has rows=1: give `remember`"):

        class Forgetful(ServerRule):
            rows = 1

            def step(self, state: F64, lr: float) -> F64:
                return lr * state
