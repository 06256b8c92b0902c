"""Calls beside SimPy's events: one order, however many are done at a time."""

from __future__ import annotations

import time
from functools import partial

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from simpy.core import EmptySchedule

from simfl.engine.environment import Environment

AGENDA = st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=30)
"""(when, whether as a call and not as an event of SimPy's)."""


def arranged(env: simpy.Environment, agenda: list[tuple[int, bool]]) -> list[tuple[float, int]]:
    """The list in which (time, number) of what is on the agenda will stand."""
    done: list[tuple[float, int]] = []

    def note(number: int, event: object = None) -> None:
        done.append((env.now, number))

    for number, (when, call) in enumerate(agenda):
        if call and isinstance(env, Environment):
            env.call_at(when, partial(note, number))
        else:
            timeout = env.timeout(when)
            assert timeout.callbacks is not None
            timeout.callbacks.append(partial(note, number))
    return done


@given(AGENDA, st.integers(1, 7))
def test_so_many_at_a_time_keep_the_order_of_simpy_alone(agenda: list[tuple[int, bool]], most: int) -> None:
    plain, env = simpy.Environment(), Environment()
    expected, done = arranged(plain, agenda), arranged(env, agenda)
    plain.run()
    while env.peek() < float("inf"):
        before = len(done)
        env.run_slice(most)
        assert 0 < len(done) - before <= most
    assert done == expected
    with pytest.raises(EmptySchedule):
        env.step()


@given(AGENDA, st.integers(0, 6))
def test_nothing_after_a_time_is_done(agenda: list[tuple[int, bool]], until: int) -> None:
    env = Environment()
    done = arranged(env, agenda)
    env.run_slice(100, until)
    assert len(done) == sum(when <= until for when, _ in agenda)


def test_an_event_can_end_a_slice() -> None:
    env, done = Environment(), list[int]()

    def stop() -> None:
        done.append(2)
        env.ends_slice = True

    for when, then in ((1, partial(done.append, 1)), (2, stop), (2, partial(done.append, 3))):
        env.call_at(when, then)
    env.run_slice(10)
    assert done == [1, 2]
    env.run_slice(10)
    assert done == [1, 2, 3]


def test_steps_that_are_due_stop_after_an_event() -> None:
    env, done = Environment(), list[int]()
    for when in range(3):
        env.call_at(when, partial(done.append, when))
    assert env.run_slice(10, due_s=time.monotonic())
    assert done == [0]
    assert env.run_slice(10, until=1)
    assert done == [0, 1]
    assert not env.run_slice(10, until=1)
    assert env.run_slice(10, due_s=time.monotonic() + 1000)
    assert done == [0, 1, 2]
    assert not env.run_slice(10)
