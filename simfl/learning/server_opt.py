"""The server's step, and how it discounts stale updates (LightSecAgg App. F).

The adaptive steps are FedAdam and FedYogi (Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm
2). There Delta_t is updated minus downloaded; here g is downloaded minus updated, g = -Delta_t, so m_t is
minus the paper's and is subtracted. Squares are the same. There is no bias correction.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
AdaptiveKind = Literal["fedadam", "fedyogi"]


@dataclass(frozen=True, slots=True)
class ServerRule:
    """How the server steps: eta_g, and the decays and the degree of adaptivity of an adaptive rule."""

    kind: Literal["fedavg", "fedadam", "fedyogi"]
    lr: float
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3


def apply(weights: F32, g: F64, lr: float) -> F32:
    """x^(t+1) = x^(t) - eta_g g, [1, d] (eqs. 26, 37).

    weights: x^(t) [1, d]. g: the weighted mean of the updates Delta [1, d]. lr: eta_g. Computed in
    float64 and rounded once. ValueError if the shapes differ.
    """
    if weights.shape != g.shape:
        raise ValueError(f"shapes differ: weights {weights.shape} and g {g.shape}")
    return _rounded(weights.astype(np.float64) - lr * g)


def initial_moments(d: int, tau: float) -> F64:
    """m_{-1} = 0 and v_{-1} = tau^2, the least that Algorithm 2 allows, as rows of a state [2, d].

    ValueError if d < 1, or unless tau > 0.
    """
    if d < 1:
        raise ValueError(f"d={d} must be at least 1")
    _positive(tau)
    return np.array([[0.0], [tau**2]]).repeat(d, axis=1)


def moments(state: F64, g: F64, kind: AdaptiveKind, beta1: float, beta2: float) -> F64:
    """m_t and v_t, the rows of a new state [2, d] (Algorithm 2).

    m_t = beta1 m_{t-1} + (1 - beta1) g
    v_t = beta2 v_{t-1} + (1 - beta2) g^2                        fedadam
    v_t = v_{t-1} - (1 - beta2) g^2 sign(v_{t-1} - g^2)          fedyogi

    state: m_{t-1} and v_{t-1} [2, d]. g: the weighted mean of the updates Delta [1, d]. ValueError if the
    shapes do not agree, unless 0 <= beta1, beta2 < 1, or if the kind is another.
    """
    if g.ndim != 2 or len(g) != 1 or state.shape != (2, g.shape[1]):
        raise ValueError(f"shapes differ: state {state.shape} must be [2, d] and g {g.shape} be [1, d]")
    for name, beta in ("beta1", beta1), ("beta2", beta2):
        if not 0 <= beta < 1:
            raise ValueError(f"{name}={beta} must be at least 0 and below 1")
    m, v = state
    square = g[0] ** 2
    new = np.empty_like(state)
    new[0] = beta1 * m + (1 - beta1) * g[0]
    match kind:
        case "fedadam":
            new[1] = beta2 * v + (1 - beta2) * square
        case "fedyogi":
            new[1] = v - (1 - beta2) * square * np.sign(v - square)
        case _:
            raise ValueError(f"an adaptive server is fedadam or fedyogi, not {kind}")
    return new


def adaptive(weights: F32, state: F64, lr: float, tau: float) -> F32:
    """x_{t+1} = x_t - eta m_t / (sqrt(v_t) + tau), [1, d] (Algorithm 2).

    weights: x_t [1, d]. state: m_t and v_t [2, d]. lr: eta. tau: the degree of adaptivity; the smaller, the
    closer are all coordinates' steps to each other. Computed in float64 and rounded once. ValueError if the
    shapes do not agree, or unless tau > 0.
    """
    if weights.ndim != 2 or len(weights) != 1 or state.shape != (2, weights.shape[1]):
        raise ValueError(
            f"shapes differ: state {state.shape} must be [2, d] and weights {weights.shape} [1, d]"
        )
    _positive(tau)
    step: F64 = lr * state[:1] / (np.sqrt(state[1:]) + tau)
    return _rounded(weights.astype(np.float64) - step)


def _rounded(weights: F64) -> F32:
    with np.errstate(over="ignore"):  # a model that leaves float32 fails the run when it is trained on
        return weights.astype(np.float32)


def _positive(tau: float) -> None:
    if not tau > 0:
        raise ValueError(f"tau={tau} must be above 0")
