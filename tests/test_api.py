"""What `import simfl` gives."""

from __future__ import annotations

import asyncio
import gc
import inspect
import pkgutil
import warnings
import weakref

import pytest

import simfl


def test_no_module_bears_a_public_name() -> None:
    """Importing it would put it in the function's place."""
    assert not {module.name for module in pkgutil.iter_modules(simfl.__path__)} & set(simfl.__all__)


def test_its_names_are_what_they_say() -> None:
    assert callable(simfl.run)
    assert inspect.iscoroutinefunction(simfl.simulate)
    assert isinstance(simfl.Result, type)
    assert issubclass(simfl.ScenarioError, Exception)


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
