import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.selection.registry import SCHEMES


def test_schemes_share_one_signature() -> None:
    assert sorted(SCHEMES) == ["all", "random"]
    for scheme in SCHEMES.values():
        assert list(inspect.signature(scheme).parameters) == ["available", "history", "k", "rng"]


@pytest.mark.parametrize("name", sorted(SCHEMES))
@given(
    available=st.lists(st.integers(0, 50), unique=True),
    k=st.integers(1, 20),
    seed=st.integers(0, 2**32),
)
def test_a_selection_is_available_ascending_and_replays(
    name: str, available: list[int], k: int, seed: int
) -> None:
    first = SCHEMES[name](available, [], k, np.random.default_rng(seed))
    again = SCHEMES[name](available[::-1], [], k, np.random.default_rng(seed))
    assert first == again
    if len(available) < k:
        assert first is None
    else:
        assert first is not None
        assert first == sorted(set(first))
        assert set(first) <= set(available)
        assert all(type(user) is int for user in first)
