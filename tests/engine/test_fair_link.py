"""Both directions of the server's link under users' links of their own, against a brute-force integrator."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.engine.environment import Environment
from simfl.engine.fair_link import FairLink
from simfl.engine.links import UserLink
from simfl.virtual_time import NS
from simfl.world.availability import FOR_EVER
from simfl.world.links import LinkState
from tests.engine.harness import Carried
from tests.sizes import examples

MBPS = 10**6
Link = tuple[int, bool]
"""A user and a direction."""
Fate = tuple[str, Fraction]
"""What became of a message: ("sent", when) or ("broke", bytes that moved)."""


@dataclass(frozen=True)
class Case:
    """Messages (link, at, bytes) in the order of sending, cuts (link, at), each link's cap and the server's
    two rates, bit/s; times in nanoseconds."""

    rates: dict[bool, int]
    caps: dict[Link, int]
    messages: list[tuple[Link, int, int]]
    cuts: list[tuple[Link, int]]


CAPS = st.sampled_from([300 * MBPS, 700 * MBPS]) | st.integers(50 * MBPS, 1500 * MBPS)
LINK = st.tuples(st.integers(0, 5), st.booleans())


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Up to 12 messages of 6 users, cut off at random."""
    server = st.integers(200 * MBPS, 3000 * MBPS)
    rates = {True: draw(server), False: draw(server)}
    messages = draw(st.lists(st.tuples(LINK, st.integers(0, 6000), st.integers(1, 800)), max_size=12))
    messages.sort(key=lambda message: message[1])
    links = {link for link, _, _ in messages}
    caps = {link: draw(CAPS) for link in sorted(links)}
    cuts = (
        draw(st.lists(st.tuples(st.sampled_from(sorted(links)), st.integers(0, 12000)), max_size=3))
        if links
        else []
    )
    return Case(rates, caps, messages, cuts)


def fair(rate: int, caps: dict[Link, int]) -> dict[Link, Fraction]:
    """Progressive filling, the slowest first."""
    rates, spare, left = {}, Fraction(rate), len(caps)
    for link in sorted(caps, key=lambda link: caps[link]):
        rates[link] = min(Fraction(caps[link]), spare / left)
        spare -= rates[link]
        left -= 1
    return rates


@dataclass
class Integrator:
    """In fractions, from event to event: at most the first message of each link moves."""

    case: Case
    now: Fraction = Fraction(0)
    queues: dict[Link, list[int]] = field(default_factory=lambda: defaultdict(list))
    moved: dict[int, Fraction] = field(default_factory=dict)
    fates: dict[int, Fate] = field(default_factory=dict)

    def run(self) -> dict[int, Fate]:
        messages, cuts = self.case.messages, self.case.cuts
        times = sorted({at for _, at, _ in messages} | {at for _, at in cuts})
        for then in times:
            self.move(Fraction(then))
            for k, (link, at, _) in enumerate(messages):
                if at == then:
                    self.queues[link].append(k)
                    self.moved[k] = Fraction(0)
            for link, at in cuts:
                if at == then:
                    for k in self.queues.pop(link, []):
                        self.fates[k] = ("broke", self.moved[k])
        self.move(None)
        return self.fates

    def move(self, then: Fraction | None) -> None:
        while any(self.queues.values()) and self.now != then:
            rates: dict[Link, Fraction] = {}
            for up in (True, False):
                busy = {
                    link: self.case.caps[link]
                    for link, queue in self.queues.items()
                    if queue and link[1] == up
                }
                rates |= fair(self.case.rates[up], busy)
            heads = {link: self.queues[link][0] for link in rates}
            ends = {
                link: self.now + (self.case.messages[k][2] - self.moved[k]) * 8 * NS / rates[link]
                for link, k in heads.items()
            }
            to = min(ends.values()) if then is None else min(then, *ends.values())
            for link, k in heads.items():
                self.moved[k] += rates[link] * (to - self.now) / (8 * NS)
                if ends[link] == to:
                    self.fates[k] = ("sent", to)
                    self.queues[link].pop(0)
            self.now = to
        self.now = self.now if then is None else then


def simulated(case: Case) -> dict[int, Fate]:
    """The same through the links themselves."""
    env, fates = Environment(), dict[int, Fate]()
    shared = {up: FairLink(env, rate) for up, rate in case.rates.items()}
    links = {
        (user, up): UserLink(
            user, up, lambda _, now, cap=cap: LinkState(cap, cap, 0.001, FOR_EVER), shared[up]
        )
        for (user, up), cap in case.caps.items()
    }

    def send(k: int, link: Link, size: int) -> None:
        def sent() -> None:
            fates[k] = ("sent", Fraction(env.now))

        def broke(moved: int) -> None:
            fates.setdefault(k, ("broke", Fraction(moved)))  # a cut downlink loses what is in the air, too

        links[link].send(Carried(size, sent, lambda: None, broke))

    for k, (link, at, size) in enumerate(case.messages):
        env.call_at(at, lambda k=k, link=link, size=size: send(k, link, size))
    for link, at in case.cuts:
        env.call_at(at, links[link].cut)
    env.run()
    return fates


@settings(max_examples=examples(300), deadline=None)
@given(cases())
def test_users_links_share_the_servers_two_links_max_min_fairly(case: Case) -> None:
    got, expected = simulated(case), Integrator(case).run()
    near = 1 + len(case.messages)  # nanoseconds: each end is rounded once, and shifts those after it
    assert got.keys() == expected.keys()
    for k, (what, value) in got.items():
        link, _, size = case.messages[k]
        should, exact = expected[k]
        if what == should == "sent":
            assert abs(value - exact) <= near
        elif what == should:
            assert abs(value - exact) <= 1 + Fraction(near * case.caps[link], 8 * NS)
        else:  # it was sent as it was cut
            sent = value if what == "sent" else exact
            assert any(abs(sent - at) <= near for of, at in case.cuts if of == link)
            assert size - (exact if what == "sent" else value) <= 1 + Fraction(near * case.caps[link], 8 * NS)


@given(cases())
def test_a_link_moves_one_message_at_a_time_at_its_cap_or_slower(case: Case) -> None:
    fates = simulated(case)
    for link, cap in case.caps.items():
        before = Fraction(0)
        for k, (of, at, size) in enumerate(case.messages):
            if of == link and fates[k][0] == "sent":
                assert fates[k][1] >= max(before, at) + Fraction(8 * NS * size, cap) - Fraction(1, 2)
                before = fates[k][1]


@given(st.lists(st.tuples(CAPS, st.integers(1, NS)), min_size=1, max_size=12), st.integers(MBPS, 10**10))
def test_moved_bytes_follow_the_fair_share_at_any_time(flows: list[tuple[int, int]], rate: int) -> None:
    """Stopped one by one, at one instant after another: what each has moved tells the shares."""
    env = Environment()
    link = FairLink(env, rate)
    live = {(k, True): cap for k, (cap, _) in enumerate(flows)}
    began = {key: link.start(10**12, cap, lambda: None) for key, cap in live.items()}
    moved, now = dict.fromkeys(live, Fraction(0)), 0
    for (key, flow), (_, pause) in zip(began.items(), flows, strict=True):
        for other, share in fair(rate, live).items():
            moved[other] += share * pause / (8 * NS)
        now += pause
        got: list[int] = []
        env.call_at(now, lambda flow=flow, got=got: got.append(link.stop(flow)))
        while not got:
            env.step()
        assert 0 <= moved[key] - got[0] < 1.001  # whole bytes
        del live[key]


# --- simultaneous -------------------------------------------------------------------------------
def test_equal_caps_at_the_edge_of_the_rate_change_over_and_back() -> None:
    """Three of 100 Mbit/s fit into 300, the fourth slows all of them down to 75, and leaves again."""
    env, ends = Environment(), dict[str, int]()
    link = FairLink(env, 300 * MBPS)

    def start(name: str, size: int) -> None:
        link.start(size, 100 * MBPS, lambda: ends.__setitem__(name, env.now))

    for name in ("a", "b", "c"):
        start(name, 12_500)  # 1 ms alone
    env.call_at(400_000, lambda: start("d", 1875))  # 0.2 ms at 75
    env.run()
    assert ends == {"d": 600_000, "a": 1_050_000, "b": 1_050_000, "c": 1_050_000}


def test_others_share_the_rate_that_a_slow_user_leaves() -> None:
    """100 shared by 10, 40 and 200: at 10, 40, 50; when 10 has left 40, 60; alone 100."""
    env, ends = Environment(), dict[int, int]()
    link = FairLink(env, 100 * MBPS)
    for cap, size in ((10, 1250), (40, 10_000), (200, 13_750)):  # 1 ms; 2 ms; 6250 + 7500 B in 2 ms
        link.start(size, cap * MBPS, lambda cap=cap: ends.__setitem__(cap, env.now))
    env.run()
    assert ends == {10: 1_000_000, 40: 2_000_000, 200: 2_000_000}


def test_a_transfer_stopped_at_its_end_moved_its_size() -> None:
    """7 B at 100 Gbit/s take 0.56 ns, rounded to 1: time for 12 B."""
    env, moved = Environment(), list[int]()
    link = FairLink(env, 100_000 * MBPS)
    env.call_at(1, lambda: moved.append(link.stop(flow)))
    flow = link.start(7, 100_000 * MBPS, lambda: None)
    env.run()
    assert moved == [7]


# --- speed --------------------------------------------------------------------------------------
def lines_run(work: Callable[[], object]) -> int:
    """How many lines of Python are run: a cost that no other process disturbs."""
    count = 0

    def seen(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return seen

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def transfers(concurrent: int, caps: int, ends: int) -> Callable[[], None]:
    """So many ends in the steady state: each starts another transfer, half of the caps are out of reach."""
    env, ended = Environment(), 0
    link = FairLink(env, concurrent * 50 * MBPS)

    def start(k: int) -> None:
        def done() -> None:
            nonlocal ended
            ended += 1
            start(k + concurrent)

        link.start(5000 + 7919 * k % 10_007, 100 * MBPS * (2 * (k % caps) + 1) // caps, done)

    for k in range(concurrent):
        start(k)

    def work() -> None:
        while ended < ends:
            env.step()

    return work


@pytest.mark.ci
@pytest.mark.parametrize("caps", [1, 3, 2000])
def test_an_event_costs_no_more_among_many_transfers(caps: int) -> None:
    few, many = (lines_run(transfers(n, min(n, caps), 1000)) for n in (50, 2000))
    assert many < 1.5 * few
