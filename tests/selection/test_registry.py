"""What all schemes share."""

from __future__ import annotations

import inspect
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.selection.history import Participation
from simfl.selection.registry import SCHEMES, Select

N = 48
BOUND: dict[str, Select] = SCHEMES | {
    "bernoulli": partial(SCHEMES["bernoulli"], probability=0.4),
    "multi_round": partial(SCHEMES["multi_round"], T=2, fair=True),
    "multi_round, uniform": partial(SCHEMES["multi_round"], T=2, fair=False),
}


def past(seed: int) -> Participation:
    rng = np.random.default_rng(seed)
    history = Participation(N)
    for _ in range(4):
        history.append(rng.choice(N, 6, replace=False))
    return history


def test_schemes_share_one_signature() -> None:
    assert sorted(SCHEMES) == [
        "all", "bernoulli", "multi_round", "partition", "random", "weighted_random",
    ]  # fmt: skip
    for scheme in SCHEMES.values():
        parameters = inspect.signature(scheme).parameters.values()
        common = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert common == ["available", "history", "k", "rng"]
        assert all(p.kind is p.KEYWORD_ONLY for p in parameters if p.name not in common)


@pytest.mark.parametrize("name", sorted(BOUND))
@given(
    away=st.lists(st.integers(0, N - 1), unique=True, max_size=20) | st.just(list(range(N - 2))),
    k=st.sampled_from([2, 4, 8, 12]),
    seed=st.integers(0, 2**32),
)
def test_a_selection_is_available_ascending_and_replays(
    name: str, away: list[int], k: int, seed: int
) -> None:
    available, history = sorted(set(range(N)) - set(away)), past(seed % 7)
    first = BOUND[name](available, history, k, np.random.default_rng(seed))
    assert first == BOUND[name](available[::-1], history, k, np.random.default_rng(seed))
    assert first == BOUND[name](np.array(available), history, k, np.random.default_rng(seed))
    assert len(history) == 4
    if first is None:
        # Half of the users are away at most, or all but two: only the schemes by batch, and luck, may skip.
        assert len(available) < k or name in ("partition", "bernoulli") or name.startswith("multi_round")
    else:
        assert first == sorted(set(first))
        assert set(first) <= set(available)
        assert all(type(user) is int for user in first)
        assert name in ("all", "bernoulli") or len(first) == k


@pytest.mark.parametrize("name", sorted(BOUND.keys() - {"all", "bernoulli"}))
def test_needs_k(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name.split(',')[0]} selection needs k"):
        BOUND[name](range(N), Participation(N), None, np.random.default_rng(0))
