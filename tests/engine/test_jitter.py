"""Jitter: each message's latency is `latency_s` and a draw, and a user's messages still keep their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.engine.environment import Environment
from simfl.engine.links import UserLink
from simfl.random_streams import Streams
from simfl.runs.build import build, make_world
from simfl.scenario.load import load
from simfl.trace.rows import SERVER, End, Ignored, Sent, Step, Trace
from simfl.virtual_time import NS
from tests.engine.harness import (
    ASYNC,
    SESSIONS,
    SYNC,
    SYNC_PROTOCOLS,
    Carried,
    lines,
    of,
    run,
    script,
    uniform,
)

MS = 1_000_000
LATENCY_S = 0.02
JITTER = {"network.users.jitter_s": {"exponential": 0.03}}


def jittered(env: Environment, draws_s: Iterable[float], up: bool, latency_s: float = LATENCY_S) -> UserLink:
    """A link of 8 Mbit/s, a byte a microsecond, whose first messages have these draws, later ones none."""

    def jitter(user: int, up: bool) -> Iterator[float]:
        return chain(draws_s, repeat(0.0))

    return uniform(env, 8, 8, latency_s, 1000, jitter=jitter).link(0, up)


@dataclass
class Log:
    """When the last bit of each message left (the last time, if it was sent again), when it arrived."""

    env: Environment
    sent: dict[int, int] = field(default_factory=dict)
    arrived: dict[int, int] = field(default_factory=dict)
    broke: list[tuple[int, int]] = field(default_factory=list)

    def transfer(self, k: int, size_bytes: int) -> Carried:
        def note(book: dict[int, int]) -> Callable[[], None]:
            return lambda: book.__setitem__(k, self.env.now)

        def there() -> None:
            assert k not in self.arrived
            self.arrived[k] = self.env.now

        return Carried(size_bytes, note(self.sent), there, lambda moved: self.broke.append((k, moved)))


def total(draw_s: float) -> int:
    """A latency, rounded once."""
    return round((LATENCY_S + draw_s) * NS)


def in_order(log: Log, draws_s: list[float]) -> list[tuple[int, int]]:
    """By the law, from when they left: (message, arrival)."""
    expected, last = [], 0
    for k, sent in log.sent.items():
        last = max(last, sent + total(draws_s[k]))
        expected.append((k, last))
    return expected


# --- one link -----------------------------------------------------------------------------------
DRAWS = st.floats(0, 0.1) | st.sampled_from([0.0, 0.001, 0.002])
MESSAGES = st.lists(st.tuples(st.integers(0, 50 * MS), st.integers(1, 5000), DRAWS), min_size=1, max_size=8)


@given(MESSAGES, st.booleans(), st.lists(st.integers(0, 200 * MS), max_size=3))
def test_messages_arrive_a_latency_later_and_in_order(
    plan: list[tuple[int, int, float]], up: bool, looks: list[int]
) -> None:
    plan.sort(key=lambda message: message[0])
    draws_s = [draw for _, _, draw in plan]
    env = Environment()
    log, link, settling = Log(env), jittered(env, draws_s, up), dict[int, int]()
    for k, (at, size, _) in enumerate(plan):
        env.at(at, lambda k=k, size=size: link.send(log.transfer(k, size)))
    for at in looks:
        env.at(at, lambda: settling.__setitem__(env.now, link.settling_ns))
    env.run()

    free_at = 0
    for k, (at, size, _) in enumerate(plan):
        free_at = max(at, free_at) + 1000 * size  # jitter does not hold up the next one
        assert log.sent[k] == free_at
    assert list(log.arrived.items()) == in_order(log, draws_s)
    for at in settling.keys() - {*log.sent.values(), *log.arrived.values()}:
        flying = [arrival for k, arrival in log.arrived.items() if log.sent[k] < at < arrival]
        assert settling[at] == max([total(0), *(arrival - at for arrival in flying[-1:])])


@pytest.mark.parametrize(("draw_s", "arrival"), [(0.3e-9, 1001), (0.05e-9, 1000)])
def test_a_latency_and_its_draw_are_rounded_once(draw_s: float, arrival: int) -> None:
    env = Environment()
    log, link = Log(env), jittered(env, [draw_s], up=True, latency_s=0.4e-9)  # each alone rounds to nothing
    link.send(log.transfer(0, 1))
    env.run()
    assert log.arrived == {0: arrival}


# --- links that break ---------------------------------------------------------------------------
def test_a_paused_downlink_sends_again_with_the_same_draw() -> None:
    env = Environment()
    log, link = Log(env), jittered(env, [0.0, 0.060, 0.005], up=False)
    for k in range(3):
        link.send(log.transfer(k, 1000))  # the last bits leave at 1, 2 and 3 ms
    env.at(2 * MS + 250_000, link.pause)  # 0 and 1 are in the air, a quarter of 2 has moved
    env.at(10 * MS, link.resume)
    env.run()
    assert log.broke == [(2, 250), (0, 1000), (1, 1000)]
    assert log.sent == {0: 11 * MS, 1: 12 * MS, 2: 13 * MS}
    # 0 does not wait for when 1 would have been there, at 82 ms; 2 waits for 1
    assert log.arrived == {0: 31 * MS, 1: (12 + 80) * MS, 2: (12 + 80) * MS}


def test_messages_that_left_a_cut_uplink_arrive() -> None:
    env = Environment()
    log, link = Log(env), jittered(env, [0.030, 0.0], up=True)
    settling: list[int] = []
    for k in range(2):
        link.send(log.transfer(k, 1000))
    env.at(1 * MS + 500_000, link.cut)
    env.at(1 * MS + 500_000, lambda: settling.append(link.settling_ns))
    env.at(45 * MS, lambda: settling.append(link.settling_ns))  # 6 ms to go, but no less than a latency
    env.at(52 * MS, lambda: settling.append(link.settling_ns))  # the connection ends as late as a message
    env.run()
    assert log.arrived == {0: 51 * MS}
    assert log.broke == [(1, 500)]
    assert settling == [49 * MS + 500_000, 20 * MS, 20 * MS]


def test_messages_in_the_air_of_a_cut_downlink_are_gone() -> None:
    env = Environment()
    log, link = Log(env), jittered(env, [0.060, 0.0], up=False)
    link.send(log.transfer(0, 1000))
    env.at(2 * MS, link.cut)  # it would be there at 81 ms
    env.at(3 * MS, lambda: link.send(log.transfer(1, 1000)))
    env.run()
    assert log.broke == [(0, 1000)]
    assert log.arrived == {1: (4 + 20) * MS}


@given(
    MESSAGES,
    st.booleans(),
    st.lists(st.integers(0, 150 * MS), max_size=6, unique=True).map(sorted),
)
def test_links_that_are_paused_keep_their_order_and_lose_nothing(
    plan: list[tuple[int, int, float]], up: bool, turns: list[int]
) -> None:
    plan.sort(key=lambda message: message[0])
    draws_s = [draw for _, _, draw in plan]
    env = Environment()
    log, link = Log(env), jittered(env, draws_s, up)
    for k, (at, size, _) in enumerate(plan):
        env.at(at, lambda k=k, size=size: link.send(log.transfer(k, size)))
    away = list(zip(turns[::2], [*turns[1::2], 200 * MS], strict=False))
    for leaves, returns in away:
        env.at(leaves, link.pause)
        env.at(returns, link.resume)
    env.run()
    assert list(log.arrived) == list(range(len(plan)))
    assert list(log.arrived.items()) == in_order(log, draws_s)
    for leaves, returns in away:
        assert not any(leaves < sent < returns for sent in log.sent.values())
        if not up:
            assert not any(leaves < at < returns for at in log.arrived.values())


# --- a scenario ---------------------------------------------------------------------------------
def replay(trace: Trace, user: int, up: bool) -> list[tuple[int, int]]:
    """(arrival in the trace, arrival by the law) of a user's messages one way, whose links are its own."""
    rate, rng = (1000, "up") if up else (500, "down")
    draws = Streams(SYNC["seed"]).rng("jitter", user, rng)
    ends = (user, SERVER) if up else (SERVER, user)
    out, free_at, last = [], 0, 0
    for m in sorted((m for m in of(trace, Sent) if (m.sender, m.to) == ends), key=lambda m: m.sent):
        free_at = max(m.sent, free_at) + m.size * rate
        last = max(last, free_at + round((0.01 + draws.exponential(0.03)) * NS))
        out.append((m.arrived, last))
    return out


@pytest.mark.parametrize("name", SYNC_PROTOCOLS)
def test_the_kth_message_has_one_draw_under_all_protocols(name: str) -> None:
    (trace,) = run({**JITTER, "protocols": [name], "rounds": 2}).traces.values()
    for user in range(3):
        for up in (True, False):
            pairs = replay(trace, user, up)
            assert len(pairs) >= 2
            assert [got for got, _ in pairs] == [expected for _, expected in pairs]


def test_draws_do_not_depend_on_the_order_of_links() -> None:
    def arrivals(order: Iterable[tuple[int, bool]]) -> dict[tuple[int, bool], list[int]]:
        env = Environment()
        scenario = load(SYNC, JITTER)
        study = build(scenario)
        network = make_world(scenario, study.streams, study.trainer, study.people).network(env)
        seen: dict[tuple[int, bool], list[int]] = {}
        for key in order:
            seen[key] = []
            for _ in range(3):
                network.link(*key).send(
                    Carried(1, lambda: None, lambda key=key: seen[key].append(env.now), lambda moved: None)
                )
        env.run()
        return seen

    keys = [(user, up) for user in range(3) for up in (True, False)]
    one, other = arrivals(keys), arrivals(reversed(keys))
    assert one == other
    assert len({tuple(times) for times in one.values()}) == len(keys)  # and each has its own


@pytest.mark.parametrize("protocol", SYNC_PROTOCOLS)
def test_a_loss_is_noticed_after_the_last_message_arrives(protocol: str) -> None:
    lost = script((0, 0, "upload", "after_send"))
    changes = {"protocols": [protocol], "dropout": lost, "detect": {"disconnect": 0.0}}
    (trace,) = run({**changes, "network.users.jitter_s": {"fixed": 0.3}}).traces.values()
    (upload,) = of(trace, Sent, sender=0, kind="upload")
    (gone,) = of(trace, Step, call="gone")
    assert gone.ready == upload.arrived == upload.sent + upload.size * 1000 + 310 * MS
    assert not of(trace, Ignored)


@pytest.mark.ci(but=["rounds"])
@pytest.mark.parametrize("base", [SYNC, ASYNC], ids=["rounds", "buffers"])
def test_rounds_and_buffers_are_exact_and_replay_under_jitter(base: dict[str, Any]) -> None:
    changes = {**JITTER, "rounds": 3, "population.availability": SESSIONS}
    result = run(changes, base=base)
    for protocol in result.summary["protocols"].values():
        assert all(entry["aggregate_exact"] for entry in protocol["rounds"])
    assert lines(result) == lines(run(changes, base=base))


def test_jitter_only_ever_delays() -> None:
    (calm,), (shaken,) = (of(run(c).traces["fedavg"], End) for c in ({}, JITTER))
    assert shaken.at > calm.at
