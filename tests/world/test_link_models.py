"""Link models: each against its expected rates, and the invariants of all of them.

A count of n coins of probability p lies within five of its standard deviations but for once in 1.7 million.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from simfl.errors import ScenarioError
from simfl.random_streams import Streams
from simfl.world import link_models
from simfl.world.link_models import (
    LINKS,
    Daily,
    LinkModel,
    LinkParams,
    LinkStates,
    Mahimahi,
    Markov,
    Steady,
    Steps,
)
from simfl.world.mahimahi import PACKET_BITS
from simfl.world.timelines import FOR_EVER
from tests.sizes import examples

NS, MS = 10**9, 10**6
OWN = LinkParams(8.0, 16.0, 0.04)
Of = Callable[..., LinkModel]


class Lift(LinkStates):
    """Out of reach, again and again."""

    def states(self, user: int, rng: np.random.Generator) -> Iterator[tuple[float, float, float]]:
        while True:
            yield rng.uniform(5, 50), 1.0, 1.0
            yield 4.0, 0.0, 0.5


def markov(*levels: tuple[float, Any, Any]) -> Markov:
    return Markov.model_validate({"levels": [{"factor": f, "dwell_s": s, "to": to} for f, s, to in levels]})


def daily(**values: float) -> Daily:
    return Daily.model_validate({"low": 0.2, "peak_s": 0.0, "slot_s": 900.0, **values})


def recorded(folder: Path, up: str, down: str, **more: Any) -> Mahimahi:
    for name, packets in (("up", up), ("down", down)):
        (folder / name).write_text("\n".join(packets.split()) + "\n")
    files = {f"{name}_file": str(folder / name) for name in ("up", "down")}
    return Mahimahi.model_validate({**files, **more})


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LinkModel]:
    """One model of each kind, and a stranger's."""
    folder = tmp_path_factory.mktemp("links")
    rows = [f"{user},{at},{(user + at) % 7},{at % 5},60" for user in range(5) for at in range(1, 60, 9)]
    (folder / "rates.csv").write_text("\n".join(["user,from_s,up_mbps,down_mbps,period_s", *rows]))
    return {
        "steady": Steady(),
        "steps": Steps(file=str(folder / "rates.csv"), assign="draw"),
        "mahimahi": recorded(folder, "0 5 5 7 30", "1 2 40", window_s=0.004, offset="drawn"),
        "markov": markov(
            (1.0, {"exponential": 20.0}, None), (0.1, 5.0, None), (0.0, {"exponential": 2.0}, None)
        ),
        "daily": daily(spread_s=3600.0, slot_s=60.0),
        "theirs": Lift(),
    }


KINDS = ["steady", "steps", "mahimahi", "markov", "daily", "theirs"]
by_kind = pytest.mark.parametrize("kind", KINDS)


def test_every_kind_is_held_to_the_laws() -> None:
    assert {*KINDS} == {*LINKS, "theirs"}


QUESTIONS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 200 * NS)), min_size=1, max_size=12)


@by_kind
@settings(max_examples=examples(100), deadline=None)
@given(questions=QUESTIONS)
def test_a_link_is_a_function_of_user_and_time(
    models: dict[str, LinkModel], kind: str, questions: list[tuple[int, int]]
) -> None:
    """Not of the questions before, of their order, or of the number of users."""
    model = models[kind]
    at = model.changes(10, Streams(3))
    for user, now in questions:
        assert at(user, now, OWN) == model.changes(1000, Streams(3))(user, now, OWN)


@by_kind
@settings(max_examples=examples(100), deadline=None)
@given(user=st.integers(0, 9), now=st.integers(0, 200 * NS), part=st.floats(0, 1, exclude_max=True))
def test_a_link_stays_until_its_stated_end(
    models: dict[str, LinkModel], kind: str, user: int, now: int, part: float
) -> None:
    at = models[kind].changes(10, Streams(3))
    link, until = at(user, now, OWN)
    assert until > now
    later = now + int(part * (min(until, 10**13) - now))
    assert at(user, later, OWN) == (link, until)


@by_kind
def test_the_server_and_another_seed_draw_otherwise(models: dict[str, LinkModel], kind: str) -> None:
    def seen(*of: Any) -> list[tuple[LinkParams, int]]:
        at = models[kind].changes(10, *of)
        return [at(user, now, OWN) for user in range(10) for now in range(0, 600 * NS, 20 * NS + 7)]

    usual = seen(Streams(3))
    assert usual == seen(Streams(3), "link")
    assert (usual == seen(Streams(4))) == (kind == "steady")
    assert (usual == seen(Streams(3), "server link")) == (kind in ("steady", "steps"))


# --- steps --------------------------------------------------------------------------------------
def test_steps_take_the_place_of_a_links_own_rates(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,from_s,up_mbps,down_mbps,latency_s\n4,1,0.5,2,.25\n7,0,3,4,.5\n")
    at = Steps(file=str(tmp_path / "a.csv")).changes(3, Streams(1))
    assert at(0, 0, OWN) == at(2, 0, OWN) == (OWN, NS)
    assert at(0, NS, OWN) == (LinkParams(0.5, 2.0, 0.25), FOR_EVER)
    assert at(1, 0, OWN) == (LinkParams(3.0, 4.0, 0.5), FOR_EVER)
    (tmp_path / "a.csv").write_text("from_s,up_mbps,down_mbps\n1,0.5,2\n")
    at = Steps(file=str(tmp_path / "a.csv")).changes(3, Streams(1))
    assert [at(user, NS, OWN) for user in range(3)] == [(LinkParams(0.5, 2.0, 0.04), FOR_EVER)] * 3


# --- mahimahi -----------------------------------------------------------------------------------
def carried(at: link_models.Changes, user: int, begin: int, end: int) -> tuple[float, float]:
    """Bits that the link can carry up and down in a time."""
    up = down = 0.0
    while begin < end:
        link, until = at(user, begin, OWN)
        up += link.up_mbps * (min(until, end) - begin) / 1000
        down += link.down_mbps * (min(until, end) - begin) / 1000
        begin = until
    return up, down


TRACE = st.lists(st.integers(0, 60), min_size=1, max_size=20).map(sorted).filter(lambda times: times[-1] > 0)


@settings(max_examples=examples(200), deadline=None)
@given(TRACE, TRACE, st.integers(1, 70), st.integers(0, 500), st.sampled_from(["none", "drawn"]))
def test_a_recording_carries_its_packets_in_a_period(
    tmp_path_factory: pytest.TempPathFactory,
    up: list[int],
    down: list[int],
    window_ms: int,
    begin_ms: int,
    offset: str,
) -> None:
    texts = (" ".join(map(str, times)) for times in (up, down))
    spec = recorded(tmp_path_factory.mktemp("m"), *texts, window_s=window_ms / 1000, offset=offset)
    at = spec.changes(5, Streams(2))
    for direction, times in enumerate((up, down)):
        bits = carried(at, 3, begin_ms * MS, (begin_ms + times[-1]) * MS)[direction]
        assert bits == pytest.approx(len(times) * PACKET_BITS)


def test_a_recordings_windows_are_counted_by_hand(tmp_path: Path) -> None:
    """4 ms windows of a period of 10: two packets, none, one in the two ms that are left."""
    at = recorded(tmp_path, "1 4 10", "10", window_s=0.004).changes(1, Streams(1))
    mbit = PACKET_BITS / 1e6
    seen = [(at(0, ms * MS, OWN)[0].up_mbps, at(0, ms * MS, OWN)[0].down_mbps) for ms in range(0, 24, 4)]
    first, second, third = 2 * mbit / 0.004, 0.0, mbit / 0.002
    assert [up for up, _ in seen] == pytest.approx([first, second, third, first, second, first])
    assert [down for _, down in seen] == pytest.approx([0, 0, third, 0, 0, 0])
    assert at(0, 0, OWN)[0].latency_s == OWN.latency_s


def test_users_begin_anywhere_in_a_recording(tmp_path: Path) -> None:
    spec = recorded(tmp_path, "500 1000", "1000", window_s=0.5, offset="drawn")
    at = spec.changes(2000, Streams(1))
    begun = [at(user, 0, OWN)[1] / (0.5 * NS) for user in range(2000)]
    assert np.histogram(begun, 4, (0, 1))[0] == pytest.approx([500] * 4, abs=5 * math.sqrt(2000 * 3 / 16))


def test_a_recording_of_too_many_windows_is_refused(tmp_path: Path) -> None:
    spec = recorded(tmp_path, "1", "3 2000000001", window_s=0.2)
    with pytest.raises(
        ScenarioError, match=r"down:2: \S+\.down_file: 2000000001 ms are more than 10000000 windows"
    ):
        spec.changes(1, Streams(1), "link", "network.users.varies")


# --- markov -------------------------------------------------------------------------------------
RING = (
    (1.0, {"exponential": 1.0}, [0, 1, 0]),
    (0.5, {"exponential": 2.0}, [0, 0, 9]),
    (0.0, {"exponential": 3.0}, [1, 0, 0]),
)


def near(count: int, n: int, p: float) -> bool:
    return abs(count - n * p) <= 5 * math.sqrt(n * p * (1 - p))


@pytest.mark.ci
@pytest.mark.parametrize("now_s", [0, 1, 60])
def test_levels_have_their_share_of_time(now_s: int) -> None:
    """Around a ring: in proportion to the times at its levels, from the start on."""
    at = markov(*RING).changes(3000, Streams(1))
    factors = [at(user, now_s * NS, OWN)[0].up_mbps / OWN.up_mbps for user in range(3000)]
    for factor, share in ((1.0, 1 / 6), (0.5, 1 / 3), (0.0, 1 / 2)):
        assert near(factors.count(factor), 3000, share)


@pytest.mark.ci
@pytest.mark.parametrize("now_s", [0, 1, 2, 4])
def test_fixed_levels_have_their_share_of_time(now_s: int) -> None:
    """Two levels of 3 s and 1 s: three of four users have the first one at any time."""
    at = markov((1.0, 3.0, None), (0.5, {"kind": "uniform", "low": 0.5, "high": 1.5}, None))
    changes = at.changes(3000, Streams(1))
    full = sum(changes(user, now_s * NS, OWN)[0] == OWN for user in range(3000))
    assert near(full, 3000, 0.75)


def test_shares_are_those_of_the_transitions() -> None:
    """pi = (1/2, 1/3, 1/6) solves pi P = pi of these weights, by hand."""
    seconds = ((1.0, 1.0, [0, 2, 1]), (0.5, 1.0, [1, 0, 0]), (0.1, 3.0, [1, 0, 0]))
    assert markov(*seconds).shares() == pytest.approx(np.array([3, 2, 3]) / 8)
    even = markov(*((factor, 1.0, None) for factor in (1.0, 0.5, 0.0)))
    assert even.shares() == pytest.approx([1 / 3] * 3)
    apart = markov((1.0, 1.0, [1, 0, 0]), (0.5, 1.0, [0, 1, 0]), (0.1, 1.0, [0.5, 0.5, 0]))
    assert apart.shares() == pytest.approx([1 / 2, 1 / 2, 0])


def test_a_walk_takes_only_its_transitions() -> None:
    at = markov(*RING).changes(1, Streams(1))
    now, seen = 0, []
    while len(seen) < 50:
        link, now = at(0, now, OWN)
        seen.append(link.down_mbps / OWN.down_mbps)
    after = {1.0: 0.5, 0.5: 0.0, 0.0: 1.0}
    assert all(after[first] == second for first, second in pairwise(seen))


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ([(1.0, 1.0, None)], "must be at least 2 levels, not 1"),
        ([(1.0, 1.0, [1.0]), (0.0, 1.0, None)], r"levels\.0\.to must have 2 weights, one a level, not 1"),
        ([(1.0, 1.0, None), (0.0, 1.0, [0.0, 0.0])], r"levels\.1\.to must have a weight above 0"),
        ([(1.0, {"kind": "pareto", "least": 1.0, "alpha": 0.5}, None)] * 2,
         r"levels\.0\.dwell_s must have a mean"),
        ([(-1.0, 1.0, None)] * 2, "greater than or equal to 0"),
    ],
)  # fmt: skip
def test_a_mistake_in_levels_is_refused(levels: list[Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        markov(*levels)


# --- daily --------------------------------------------------------------------------------------
def test_rates_follow_the_cosine_of_the_day() -> None:
    at = daily(low=0.25, high=2.0, peak_s=7200.0, slot_s=1800.0).changes(1, Streams(1))
    for slot in range(60):
        factor = 1.125 + 0.875 * math.cos(2 * math.pi * (slot * 0.5 - 2) / 24)
        link, until = at(0, slot * 1800 * NS + 17, OWN)
        assert link == pytest.approx((8 * factor, 16 * factor, 0.04))
        assert until == (slot + 1) * 1800 * NS


def test_flat_day_lasts_for_ever() -> None:
    """A factor of 0.5 at all times of day has no slots at whose ends a link changes."""
    at = daily(low=0.5, high=0.5, peak_s=7200.0, slot_s=1800.0).changes(1, Streams(1))
    assert at(0, 17, OWN) == ((4, 8, 0.04), FOR_EVER)


def test_time_zones_of_links_are_normal() -> None:
    """E cos(2 pi Z / P) = exp(-(2 pi s / P)^2 / 2), the characteristic function of a normal Z."""
    at = daily(low=0.0, spread_s=14_400.0).changes(4000, Streams(1))
    mean = np.mean([at(user, 0, OWN)[0].up_mbps / OWN.up_mbps for user in range(4000)])
    damped = math.exp(-((2 * math.pi * 14_400 / 86_400) ** 2) / 2)
    assert mean == pytest.approx((1 + damped) / 2, abs=5 * 0.5 / math.sqrt(4000))


def test_a_day_without_a_curve_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"low=2 must not be above high=1"):
        daily(low=2.0)
    with pytest.raises(ValidationError, match=r"slot_s=50000 must not be above half of period_s=86400"):
        daily(slot_s=50_000.0)
