"""Lives against SimPy's own processes: the same order of events in random programs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from simfl.engine.environment import Environment
from simfl.engine.life import Life

EVENTS, PROCESSES = 3, 5
COUNT = st.integers(0, PROCESSES - 1)
STEP = st.one_of(
    st.tuples(st.just("nap"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["await", "succeed"]), st.integers(0, EVENTS - 1)),
    st.tuples(st.sampled_from(["join", "interrupt", "either", "spawn"]), COUNT),
    st.tuples(st.sampled_from(["acquire", "release"]), st.just(0)),
    st.tuples(st.just("fail"), st.just(0)),
)
PROGRAMS = st.lists(st.lists(STEP, max_size=8), min_size=1, max_size=PROCESSES)
"""What each process does, step by step; `spawn` starts one that waits to be started."""

Log = list[tuple[float, int, int, str]]


class World:
    """A random program on an environment; `begin` makes its processes, and `nap` its timeouts."""

    def __init__(
        self,
        env: simpy.Environment,
        begin: Callable[[Generator[Any, Any, Any]], simpy.Process],
        nap: Callable[[int], Any],
        programs: list[list[tuple[str, int]]],
    ) -> None:
        self.env, self.begin, self.nap, self.programs = env, begin, nap, programs
        self.events = [env.event() for _ in range(EVENTS)]
        self.core = simpy.Resource(env, 1)
        self.log: Log = []
        self.processes: list[simpy.Process] = []
        for number in range(-(-len(programs) // 2)):  # the others wait to be spawned
            self.processes.append(begin(self.life(number)))

    def life(self, number: int) -> Generator[Any, Any, str]:
        for index, (step, argument) in enumerate(self.programs[number]):
            try:
                result = yield from self.step(number, step, argument)
            except simpy.Interrupt as interrupt:
                result = f"interrupted by {interrupt.cause}"
            except ValueError as error:
                result = f"{error}"
            self.log.append((self.env.now, number, index, str(result)))
        return f"end of {number}"

    def step(self, number: int, step: str, argument: int) -> Generator[Any, Any, Any]:
        other = self.processes[argument] if argument < len(self.processes) else None
        match step:
            case "nap":
                yield self.nap(argument)
            case "await":
                return (yield self.events[argument])
            case "succeed":
                event = self.events[argument]
                self.events[argument] = self.env.event()
                event.succeed(number)
            case "join" if other is not None and other is not self.env.active_process:
                return (yield other)
            case "either" if other is not None and other is not self.env.active_process:
                yield other | self.env.timeout(2)
            case "interrupt" if other is not None and other is not self.env.active_process and other.is_alive:
                other.interrupt(number)
            case "spawn" if len(self.processes) < len(self.programs):
                self.processes.append(self.begin(self.life(len(self.processes))))
            case "acquire":
                with self.core.request() as request:
                    yield request
                    yield self.nap(1)
            case "fail":
                child = self.begin(self.failing())
                yield child
        return ""

    def failing(self) -> Generator[Any, Any, None]:
        yield self.nap(1)
        raise ValueError("failed")


def run(world: World, steps: Callable[[], bool]) -> Log:
    try:
        while steps():
            pass
    except BaseException as error:  # of a process that fails while its only reader was interrupted
        world.log.append((world.env.now, -1, -1, repr(error)))
    return world.log


def by_simpy(programs: list[list[tuple[str, int]]]) -> Log:
    env = simpy.Environment()
    world = World(env, env.process, env.timeout, programs)

    def steps() -> bool:
        if env.peek() == float("inf"):
            return False
        env.step()
        return True

    return run(world, steps)


def by_lives(programs: list[list[tuple[str, int]]]) -> Log:
    env = Environment()

    def begin(waits: Generator[Any, Any, Any]) -> Life:
        life = Life(env, waits)
        life.callbacks.append(lambda event: None)  # as if awaited: otherwise its end is no event
        return life

    world = World(env, begin, lambda ns: ns, programs)
    return run(world, lambda: env.run_slice(7))


@given(PROGRAMS)
def test_lives_keep_the_order_of_simpy_processes(programs: list[list[tuple[str, int]]]) -> None:
    assert by_lives(programs) == by_simpy(programs)


def test_passive_wait_ends_within_the_present_event() -> None:
    """A life that yields nothing is woken by a call, twice at one instant; an interrupt ends a third wait."""
    env, seen = Environment(), list[object]()

    def passive() -> Generator[Any, Any, None]:
        seen.append((yield))
        seen.append((yield))
        try:
            yield
        except simpy.Interrupt as interrupt:
            seen.append(interrupt.cause)

    life = Life(env, passive())

    def other() -> None:
        life.wake("first")
        assert seen == ["first"]
        life.wake("second")
        assert seen == ["first", "second"]
        life.interrupt("third")
        assert seen == ["first", "second"]

    env.call_at(5, other)
    while env.run_slice(10):
        pass
    assert seen == ["first", "second", "third"]
    assert env.now == 5
    assert not life.is_alive


def test_two_interrupts_at_one_instant_are_both_delivered() -> None:
    """The second finds the life at the wait that the first one led to, and withdraws it."""
    env, seen = Environment(), list[object]()

    def patient() -> Generator[Any, Any, None]:
        for _ in range(3):
            try:
                yield 100
                seen.append(env.now)
            except simpy.Interrupt as interrupt:
                seen.append(interrupt.cause)

    life = Life(env, patient())
    env.call_at(5, lambda: (life.interrupt("a"), life.interrupt("b")))
    while env.run_slice(10):
        pass
    assert seen == ["a", "b", 105]


def test_a_life_cannot_interrupt_itself() -> None:
    env = Environment()

    def selfish() -> Generator[Any, Any, None]:
        lives[0].interrupt()
        yield 1

    lives = [Life(env, selfish())]
    with pytest.raises(RuntimeError, match="itself"):
        env.run_slice(10)


def test_an_ended_life_ignores_interrupts() -> None:
    """It has a value, and who waits for it goes on at once."""
    env = Environment()

    def short() -> Generator[Any, Any, int]:
        yield 1
        return 7

    life = Life(env, short())
    while env.run_slice(10):
        pass
    life.interrupt()
    assert not env.run_slice(10)
    assert life.value == 7

    def later() -> Generator[Any, Any, int]:
        return (yield life)

    last = Life(env, later(), at_once=True)
    assert last.value == 7


def test_a_stopped_life_ends_at_once() -> None:
    """Its wait is withdrawn, its `finally` runs, and those who wait for it go on."""
    env, seen = Environment(), list[object]()

    def short() -> Generator[Any, Any, None]:
        try:
            yield 5
            seen.append("never")
        finally:
            seen.append(env.now)

    def waiting() -> Generator[Any, Any, None]:
        yield life
        seen.append("over")

    life = Life(env, short())
    Life(env, waiting())
    env.call_at(3, life.stop)
    while env.run_slice(10):
        pass
    assert seen == [3, "over"]


def test_an_interrupt_at_once_comes_within_the_event() -> None:
    """A life naps until 5. At 3 it is interrupted, and what the interrupting call does next comes after."""
    env, seen = Environment(), list[object]()

    def napping() -> Generator[Any, Any, None]:
        try:
            yield 5
        except simpy.Interrupt as interrupt:
            seen.append((env.now, interrupt.cause))

    def both() -> None:
        life.interrupt("lost", at_once=True)
        seen.append("after")

    life = Life(env, napping())
    env.call_at(3, both)
    while env.run_slice(10):
        pass
    assert seen == [(3, "lost"), "after"]
    life.interrupt("again", at_once=True)
    assert seen == [(3, "lost"), "after"]
