"""`audit: galois` ends a run whose kernels are wrong, and changes nothing where they are right."""

from __future__ import annotations

import time
from typing import Any

import pytest

from simfl.crypto import mds, ntt, oracle, shamir, short_loops
from simfl.errors import DataPlaneError
from simfl.runs import memory
from simfl.trace.rows import Step
from simfl.virtual_time import NS
from tests.engine.harness import ASYNC, SIX, lines, of, run

HELD = {"audit": "galois", "protocols": ["secagg", "lightsecagg"]}


def off_by_one(kernel: Any) -> Any:
    """A product or a transform of which one element is wrong."""

    def wrong(*args: Any) -> Any:
        out = kernel(*args)
        out[-1, -1] ^= 1
        return out

    return wrong


def spoilt(kernel: Any, at: int) -> Any:
    """A loop that spoils what it writes to its argument `at`."""

    def wrong(*args: Any) -> Any:
        done = kernel(*args)
        args[at][-1, -1] ^= 1
        return done

    return wrong


WRONG: dict[str, tuple[Any, str, Any, dict[str, Any]]] = {
    "coding": (mds, "matmul", off_by_one(mds.matmul), {}),
    "coding, transformed": (ntt, "evaluate", off_by_one(ntt.evaluate), {"field.q": "ntt"}),
    "decoding": (short_loops, "lagrange", spoilt(short_loops.lagrange, 2), {}),
    "sharing": (shamir, "matmul", off_by_one(shamir.matmul), {}),
    "secret": (short_loops, "interpolate", spoilt(short_loops.interpolate, 3), {}),
}


@pytest.mark.ci(but=["secret"])
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_kernel_ends_the_run(what: str, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, kernel, more = WRONG[what]
    run({**SIX, **HELD, **more, "workers": workers})
    monkeypatch.setattr(module, name, kernel)
    word = what.split(",")[0]
    where = r"(lightsecagg|secagg), round 0, (user \d|the server), .*"
    with pytest.raises(DataPlaneError, match=rf"{where}audit: {word}.*: galois has \d+ and not \d+ in row"):
        run({**SIX, **HELD, **more, "workers": workers})


@pytest.mark.parametrize("workers", [0, 2])
def test_streamed_shares_are_audited(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "is_within_limit", lambda s, p, offline, *_: not offline)
    monkeypatch.setattr(memory, "plan", lambda *_, **__: memory.Memory(2, 1))
    overrides = {**SIX, **HELD, "protocols": ["lightsecagg"], "workers": workers}
    run(overrides)
    monkeypatch.setattr(mds, "matmul", off_by_one(mds.matmul))
    with pytest.raises(DataPlaneError, match="coded shares: audit: coding: galois has"):
        run(overrides)


@pytest.mark.ci(but=["rounds"])
@pytest.mark.parametrize("base", [SIX, ASYNC], ids=["rounds", "buffers"])
def test_the_audit_compares_each_element_and_changes_no_row(
    base: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    check = oracle.check

    def counting(kernel: Any, args: Any, result: Any) -> None:
        seen.append(kernel.__name__)
        check(kernel, args, result)

    monkeypatch.setattr(oracle, "check", counting)
    world = ({**SIX, "protocols": ["secagg", "lightsecagg"]},) if base is SIX else ({}, ASYNC)
    plain = run(*world)
    assert not seen
    held = run({**world[0], "audit": "galois"}, *world[1:])
    assert lines(held) == lines(plain)
    wanted = {"encode", "decode"} | ({"share", "reconstruct_many"} if base is SIX else set())
    assert wanted <= set(seen)


@pytest.mark.ci
def test_the_measured_clock_excludes_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(kernel: Any, *_: Any) -> None:
        began = time.thread_time()
        while kernel is mds.encode and time.thread_time() < began + 0.1:
            pass

    monkeypatch.setattr(oracle, "check", slow)
    world = {**SIX, "protocols": ["lightsecagg"], "clock": "measured", "audit": "galois"}
    (trace,) = run(world).traces.values()
    assert max(step.end - step.start for step in of(trace, Step)) < 0.5 * NS  # devices are 10 times slower
