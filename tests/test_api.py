"""What `import simfl` gives."""

from __future__ import annotations

import asyncio
import gc
import inspect
import pkgutil
import re
import warnings
import weakref

import pytest

import simfl
from simfl.config.yaml_tree import parse, plain


def test_no_module_bears_a_public_name() -> None:
    """Importing it would put it in the function's place."""
    assert not {module.name for module in pkgutil.iter_modules(simfl.__path__)} & set(simfl.__all__)


def test_its_names_are_what_they_say() -> None:
    assert callable(simfl.run)
    assert inspect.iscoroutinefunction(simfl.simulate)
    assert isinstance(simfl.Result, type)
    assert issubclass(simfl.ScenarioError, Exception)


def test_help_begins_with_the_next_steps() -> None:
    """Fewer than 15 lines, whose calls run: in shadow, and with a file of that name."""
    text = inspect.getdoc(simfl) or ""
    assert len(text.splitlines()) < 15
    for name in re.findall(r"simfl\.(\w+)\(", text):
        assert callable(getattr(simfl, name))
    names = {"print": lambda scenario: str(scenario)}
    example = "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))
    exec(example.replace("dropout=0.2", 'dropout=0.2, rounds=1, payload="shadow"'), names)
    assert list(names["result"].protocols) == ["secagg", "lightsecagg"]  # type: ignore[attr-defined]


def test_run_needs_no_file() -> None:
    """The shortest shipped scenario, with what is given by keyword in its place."""
    result = simfl.run(protocols=["secagg"], users=9, rounds=2, dropout=0.2, seed=3, payload="shadow")
    s = result.scenario
    assert (s.name, list(s.protocols), s.population.users, s.rounds, s.seed) == (
        "minimal",
        ["secagg"],
        9,
        2,
        3,
    )
    assert [r.survivors for r in result.protocols["secagg"].rounds] == [7, 7]


def test_printed_scenario_runs_the_same() -> None:
    """All defaults are in it, so that the mapping it is runs without the file."""
    result = simfl.run(users=6, rounds=1, payload="shadow")
    again = simfl.run(plain(parse(str(result.scenario), "printed")))
    assert again.scenario == result.scenario
    assert again.traces == result.traces


def test_simulate_and_check_have_the_same_keywords() -> None:
    result = asyncio.run(simfl.simulate(users=6, rounds=1, payload="shadow"))
    assert simfl.check(users=6, rounds=1, payload="shadow").scenario == result.scenario


def test_run_inside_a_loop_says_what_to_await() -> None:
    async def cell() -> None:
        simfl.run("scenarios/tutorial.yaml")

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no coroutine is left that was never awaited
        with pytest.raises(RuntimeError, match=r"`await simfl\.simulate\(\.\.\.\)` instead"):
            asyncio.run(cell())


@pytest.mark.ci
def test_a_run_leaves_nothing_to_the_garbage_collection() -> None:
    """Its trace, the largest part, is gone with its last reference."""
    gc.collect()
    gc.disable()
    try:
        result = simfl.run("scenarios/tutorial.yaml", {"rounds": 1, "payload": "shadow"})
        traces = [weakref.ref(trace) for trace in result.traces.values()]
        del result
        assert [trace() for trace in traces] == [None] * 3
    finally:
        gc.enable()
