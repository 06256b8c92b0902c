import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.random_streams import Entropy, OsEntropy, Streams, ZeroEntropy, derive

ROOT = bytes(range(32))
names = st.lists(st.text() | st.integers(), max_size=4)


def test_derivation_is_golden() -> None:
    # Whoever changes these changes every run that anybody ever made.
    assert derive(0).hex() == "9047059c8c4e1e2bd8edb18d9bdaed0468cfe23e3925a05d0ce46bb320183ab3"
    assert (
        derive(7, "train", 3, 0).hex() == "7c582902c59a6f8c80f30d4b331b9d36893449d21a2ba8bd839acaf3364fc68a"
    )
    assert Streams(7).rng("world").integers(0, 1000, 6).tolist() == [356, 579, 9, 949, 211, 558]
    assert (
        Entropy(ROOT, 3, 0)("mask").hex()
        == "198d8d02f332a1a136083172f458e23fdcaa883a173d1a6c8ab358fe836201ad"
    )


@given(names, names)
def test_different_names_are_different_streams(a: list[str | int], b: list[str | int]) -> None:
    same = [(type(x), x) for x in a] == [(type(x), x) for x in b]
    assert (derive(1, *a) == derive(1, *b)) == same


def test_names_are_unambiguous() -> None:
    assert (
        len({derive(1, *n) for n in [("a", "b"), ("ab",), ("a,b",), ('a", "b',), (1,), ("1",), (-1,)]}) == 7
    )
    assert derive(1, np.int64(5)) == derive(1, 5)
    with pytest.raises(TypeError):
        derive(1, 1.0)


@pytest.mark.parametrize("seed", [-1, 2**256])
def test_seed_out_of_range(seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed={seed} must be"):
        derive(seed, "a")


def test_seeds_differ() -> None:
    assert derive(1, "a") != derive(2, "a")


def test_a_draw_never_shifts_another() -> None:
    streams = Streams(3)
    alone = streams.rng("arrivals").random(4)
    other = streams.rng("losses")
    other.random(100)
    again = streams.rng("arrivals")
    first = again.random(2)
    other.random()
    np.testing.assert_array_equal(np.concatenate([first, again.random(2)]), alone)
    assert streams.bytes("arrivals") == derive(3, "arrivals")


def test_spawned_generators_replay() -> None:
    a, b = (Streams(3).rng("x").spawn(1)[0].random() for _ in range(2))
    assert a == b


def test_entropy_yields_each_name_once() -> None:
    entropy = Entropy(ROOT, "secagg", 3, 0)
    ahead = entropy.peek("mask")
    drawn = entropy("mask")
    assert len(drawn) == 32
    assert drawn == ahead == entropy.peek("mask")
    assert entropy("key") != drawn
    with pytest.raises(ValueError, match=r"'mask' was drawn before .*\('secagg', 3, 0\)"):
        entropy("mask")


def test_entropy_of_a_shadow_holds_the_same_law() -> None:
    e = ZeroEntropy(3, 0)
    assert e("mask") == e.peek("mask") == e("seed") == bytes(32)
    with pytest.raises(ValueError, match=r"'mask' was drawn before.*\(3, 0\)"):
        e("mask")


def test_entropy_depends_on_scope_and_root() -> None:
    draws = {Entropy(ROOT, *scope)("a") for scope in [(), (0,), (1,), (0, 1), (1, 0)]}
    draws.add(Entropy(bytes(32), 0)("a"))
    assert len(draws) == 6
    with pytest.raises(ValueError, match="must have 32 bytes, not 31"):
        Entropy(ROOT[1:])


def test_os_entropy() -> None:
    entropy, other = OsEntropy(3, 0), OsEntropy(3, 0)
    with pytest.raises(ValueError, match=r"'mask' was not drawn yet .*\(3, 0\)"):
        entropy.peek("mask")
    drawn = entropy("mask")
    assert len(drawn) == 32
    assert entropy.peek("mask") == drawn
    assert drawn != other("mask")
    with pytest.raises(ValueError, match="'mask' was drawn before"):
        entropy("mask")


# --- uniform draws ------------------------------------------------------------------------------
def test_uniform_draws_are_golden_and_do_not_depend_on_the_order() -> None:
    draws = Streams(7).uniforms("availability", "user")
    forward = {(user, place): draws(user, place) for user in range(3) for place in range(20)}
    fresh = Streams(7).uniforms("availability", "user")
    assert {key: fresh(*key) for key in reversed(forward)} == {key: forward[key] for key in reversed(forward)}
    assert [next(fresh.since(1, place)) for place in range(20)] == [forward[1, place] for place in range(20)]
    assert len(set(forward.values())) == 60
    assert draws(1, 9) == 0.019963081089113044


def test_uniform_draws_are_uniform_and_neither_0_nor_1() -> None:
    draws = Streams(1).uniforms("x")
    for seen in ([draws(0, place) for place in range(8000)], [draws(user, 3) for user in range(8000)]):
        counts = np.histogram(seen, bins=16, range=(0, 1))[0]
        assert abs(counts - 500).max() < 5 * np.sqrt(500)
        assert abs(np.corrcoef(seen[1:], seen[:-1])[0, 1]) < 5 / np.sqrt(8000)
    draws._block = (0,) * 7 + (2**64 - 1,)
    draws._last = (0, 0)
    assert 0 < draws(0, 0) < 1e-15
    assert 1 - 1e-15 < draws(0, 7) < 1
