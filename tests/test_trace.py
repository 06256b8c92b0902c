"""The trace as a file: whole, readable back, and without content."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl import trace as rows
from simfl.trace import ROWS, Discarded, Trace, TraceError, read
from tests.engine.harness import ASYNC, SESSIONS, edges, lines, run

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBER = st.integers(-1, 2**63)
OF = {
    "int": NUMBER,
    "str": TEXT,
    "bool": st.booleans(),
    "int | None": st.none() | NUMBER,
    "tuple[int, int, int, int]": st.tuples(NUMBER, NUMBER, NUMBER, NUMBER),
    "tuple[int, ...]": st.lists(NUMBER).map(tuple),
    "tuple[tuple[str, int], ...]": st.lists(st.tuples(TEXT, NUMBER)).map(tuple),
    "tuple[tuple[int, str, int], ...]": st.lists(st.tuples(NUMBER, TEXT, NUMBER)).map(tuple),
}
ROW = st.one_of(
    st.builds(kind, **{name: OF[t.__forward_arg__] for name, t in kind.__annotations__.items()})
    for kind in ROWS.values()
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(TEXT, st.lists(ROW, max_size=5).map(Trace), max_size=3))
def test_what_is_written_is_read_back(traces: dict[str, Trace]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        path.write_text("".join(rows.lines(traces)), encoding="utf-8")
        assert read(path) == traces


def test_a_runs_trace_is_read_back(tmp_path: Path) -> None:
    result = run({"population.availability": SESSIONS, "dropout": {"rate": 0.2}}, ASYNC, out=tmp_path)
    assert read(tmp_path / "trace.jsonl") == result.traces
    assert (tmp_path / "trace.jsonl").read_text() == "".join(lines(result))


def test_a_cause_is_an_earlier_row() -> None:
    for trace in edges().traces.values():
        for number, row in enumerate(trace):
            assert -1 <= getattr(row, "cause", -1) < number


def test_rows_hold_numbers_and_short_names_only() -> None:
    """No key, mask or update can be in a trace."""

    def leaves(value: object) -> list[object]:
        return [leaf for v in value for leaf in leaves(v)] if isinstance(value, list) else [value]

    for line in lines(edges()):
        for key, value in json.loads(line).items():
            assert len(leaves(value)) <= 3 * 10, key
            for leaf in leaves(value):
                assert leaf is None or isinstance(leaf, int) or len(str(leaf)) < 80


def test_rows_cannot_be_changed() -> None:
    for kind in ROWS.values():
        assert issubclass(kind, tuple)
        row = kind._make(range(len(kind._fields)))
        for name in (*kind._fields, "more"):
            with pytest.raises(AttributeError):
                setattr(row, name, 1)


BEGIN = '{"row":"begin","round":0,"at":0,"users":[1]}'
NAME = '{"row":"protocol","name":"p"}'


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (BEGIN, ":1: not a row"),
        (f"{NAME}\n{BEGIN[:-1]}", ":2: not a row"),
        (f"{NAME}\n{BEGIN}\n[]", ":3: not a row"),
        (f'{NAME}\n{BEGIN}\n{{"row":"begin","round":0}}', ":3: not a row"),
        (f'{NAME}\n{{"row":"nonsense"}}', ":2: not a row"),
        (f'{NAME}\n{{"round":1}}', ":2: not a row"),
    ],
)
def test_a_bad_line_is_named(text: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(TraceError, match=f"trace.jsonl{place}"):
        read(path)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TraceError, match=r"trace\.jsonl: cannot be read"):
        read(path)


@pytest.mark.parametrize(
    ("party", "message", "why", "expected"),
    [
        (rows.SERVER, "update", "stale: beyond 2", Discarded.STALE),
        (rows.SERVER, "update", "its recovery was aborted", Discarded.ABORTED),
        (rows.SERVER, "timer", "stale", None),
        (rows.SERVER, "update", "stale mate", None),
        (3, "update", "stale: beyond 2", None),
    ],
)
def test_only_a_buffers_server_discards(
    party: int, message: str, why: str, expected: Discarded | None
) -> None:
    assert rows.Ignored(0, party, 1, message, "1.0", why, 0, 0).discarded is expected
