"""Packed rows: the rows of a long trace are the same, whether or not its older ones are packed."""

from __future__ import annotations

import random

import pytest

from simfl.trace import rows
from simfl.trace.rows import SERVER, Aborted, Begin, End, Row, Sent, Step, Trace


def some(number: int) -> list[Row]:
    """So many rows of several kinds, with texts, pairs, a missing time and times beyond 32 bits."""
    made: list[Row] = [Begin(0, 0, range(9), True)]
    for k in range(number - 1):
        at = 10**12 + k * 7
        kinds = (
            Step(
                0, k, "protocol", "receive", "shares", f"{k}.7", k, -1, at, at, at + 9, (("offline", 9),), 0
            ),
            Sent(0, k, SERVER, "upload", "upload", "", 2604, 17, k, at, None if k % 3 else at + 5),
            Aborted(1, f"upload: {k} users answered", k, at),
            End(1, 3, at, k),
        )
        made.append(kinds[k % 4])
    return made


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 4 rows, of which the last 16 are not packed."""
    monkeypatch.setattr(rows, "RECENT", 16)
    monkeypatch.setattr(rows, "BLOCK", 4)


@pytest.mark.usefixtures("small")
def test_packed_rows_are_the_same() -> None:
    plain = some(107)
    trace = Trace()
    assert [trace.add(row) for row in plain] == list(range(107))
    assert sum(isinstance(block, bytes) for block in trace._blocks) == 80 // 4 - 1
    assert isinstance(trace._blocks[0], list)  # a range of users is no value of marshal's
    assert len(trace) == 107
    assert list(trace) == plain == list(reversed(trace))[::-1]
    assert trace == plain
    assert plain == trace
    assert trace != plain[:-1]
    assert [type(row) for row in trace] == [type(row) for row in plain]
    assert trace[3:90:7] == plain[3:90:7]
    assert trace.buffered
    for index in random.Random(1).sample(range(-107, 107), 100):
        assert trace[index] == plain[index]
    for index in (107, -108):
        with pytest.raises(IndexError):
            trace[index]


@pytest.mark.usefixtures("small")
def test_an_iterator_sees_the_rows_of_its_beginning() -> None:
    plain = some(31)
    trace = Trace(plain)
    reading = iter(trace)
    first = next(reading)
    trace.add(plain[-1])  # the older rows are packed by this
    assert len(trace._blocks) == 4
    assert [first, *reading][:31] == plain
