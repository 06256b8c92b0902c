"""Links: a user's own, as its model changes it, times the factors of outages, in whole bits a second."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import RunFailed
from simfl.random_streams import Streams
from simfl.world.link_models import Changes, LinkModel, LinkParams, LinkStates, Markov, Steady
from simfl.world.links import MAX_BPS, Links, LinkState, server_link, user_links
from simfl.world.outages import Outage, Outages
from simfl.world.timelines import FOR_EVER
from tests.sizes import examples

NS = 10**9
STREAMS = Streams(1)
OWN = LinkParams(8.0, 16.0, 0.04)
MARKOV = Markov.model_validate(
    {"levels": [{"factor": 1.0, "dwell_s": {"exponential": 9.0}}, {"factor": 0.3, "dwell_s": 2.0}]}
)


class Half(LinkStates):
    """Half the rates after three seconds."""

    def states(self, user: int, rng: np.random.Generator) -> Iterator[tuple[float, float, float]]:
        yield 3.0, 1.0, 1.0
        yield math.inf, 0.5, 0.25


class Says(LinkModel):
    """A model that returns any link."""

    link: Any
    until: int

    def changes(self, users: int, streams: Streams, purpose: str = "link", key: str = "") -> Changes:
        return lambda user, now, own: (self.link, self.until)


def links(model: LinkModel, *outages: dict[str, Any], own: LinkParams = OWN, users: int = 10) -> Links:
    listed = Outages([Outage.model_validate(outage) for outage in outages], STREAMS)
    return user_links(lambda user: own, {"": (model, "network.users.varies")}, listed, STREAMS, users)


def test_steady_links_share_one_state() -> None:
    at = links(Steady())
    assert at(3, 0) == LinkState(8_000_000, 16_000_000, 0.04, FOR_EVER)
    assert at(3, 0) is at(4, 10**15)


def test_rates_are_products_until_the_first_change() -> None:
    at = links(Half(), {"of": "all", "factor": 0.1, "from_s": 2.0, "to_s": 5.0})
    assert [at(0, now * NS) for now in (0, 2, 3, 5)] == [
        (8_000_000, 16_000_000, 0.04, 2 * NS),
        (800_000, 1_600_000, 0.04, 3 * NS),
        (400_000, 400_000, 0.04, 5 * NS),
        (4_000_000, 4_000_000, 0.04, FOR_EVER),
    ]


def test_a_class_has_its_own_model() -> None:
    models: dict[str, tuple[LinkModel, str]] = {"steady": (Steady(), ""), "half": (Half(), "")}
    own = {0: OWN, 1: LinkParams(2.0, 2.0, 0.5)}
    at = user_links(
        own.__getitem__, models, Outages((), STREAMS), STREAMS, 2, lambda u: ("steady", "half")[u]
    )
    assert at(0, 4 * NS) == (8_000_000, 16_000_000, 0.04, FOR_EVER)
    assert at(1, 4 * NS) == (1_000_000, 500_000, 0.5, FOR_EVER)


@settings(max_examples=examples(100), deadline=None)
@given(st.floats(0, 1e9))
def test_a_rate_is_rounded_once_and_stops_only_at_zero(mbps: float) -> None:
    bps = links(Steady(), own=LinkParams(mbps, 0.0, 0.0))(0, 0).up_bps
    assert (bps == 0) == (mbps == 0)
    assert bps <= MAX_BPS
    assert abs(bps - mbps * 1e6) <= 1 or bps == MAX_BPS < mbps * 1e6


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 300 * NS)), min_size=1, max_size=10))
def test_a_state_does_not_depend_on_earlier_queries(questions: list[tuple[int, int]]) -> None:
    cells = {"of": {"cells": 3}, "every_s": {"exponential": 20.0}, "lasts_s": 4.0}
    at = links(MARKOV, cells)
    for user, now in questions:
        state = at(user, now)
        assert state == links(MARKOV, cells, users=500)(user, now)
        assert at(user, (now + min(state.until, 10**13)) // 2) == state


@pytest.mark.parametrize(
    ("link", "until"),
    [
        (LinkParams(-1.0, 1.0, 0.0), 9), (LinkParams(1.0, math.nan, 0.0), 9),
        (LinkParams(1.0, 1.0, math.inf), 9),
        (LinkParams(1.0, 1.0, -1.0), 9), (LinkParams(1.0, 1.0, 0.0), 5), (LinkParams(1.0, 1.0, 0.0), 0),
    ],
)  # fmt: skip
def test_a_model_with_invalid_links_is_named(link: LinkParams, until: int) -> None:
    with pytest.raises(RunFailed, match=r"^link model Says, user 4: a link of .* none may be below 0"):
        links(Says(link=link, until=until))(4, 5)


def test_the_servers_link_changes_too() -> None:
    at = server_link(LinkParams(1000.0, 500.0, 0.0), Half(), STREAMS)
    assert at(0) == (1_000_000_000, 500_000_000, 3 * NS)
    assert at(3 * NS) == (500_000_000, 125_000_000, FOR_EVER)
    assert server_link(OWN, Steady(), STREAMS)(0) == (8_000_000, 16_000_000, FOR_EVER)
