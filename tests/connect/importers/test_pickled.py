"""Plain values of pickles: what they hold under every protocol, and planted files that do nothing."""

from __future__ import annotations

import os
import pickle
import struct
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.connect.importers import pickled
from simfl.connect.importers.pickled import plain
from simfl.errors import ScenarioError

ENTRY: dict[str, Any] = {"duration": 7, "active": [0, 70_000], "inactive": [2, 70_005], "model": "CPH1801"}
BEHAVE = {1: {**ENTRY, "finish_time": 172_800}, 70_000: {**ENTRY, "finish_time": 518_400}}
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)

Scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=50)
)
Values = st.recursive(
    Scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.integers(-(2**40), 2**40) | st.text(max_size=9), inner, max_size=5)
    ),
    max_leaves=20,
)


def refused(content: bytes) -> str:
    with pytest.raises(ScenarioError, match=r"^f: no plain pickle: .") as caught:
        plain(content, "f")
    return str(caught.value)


# --- plain values --------------------------------------------------------------------------------
@given(Values, st.sampled_from(PROTOCOLS))
def test_plain_values_are_read_as_python_reads_them(value: Any, protocol: int) -> None:
    content = pickle.dumps(value, protocol)
    assert repr(plain(content, "f")) == repr(pickle.loads(content)) == repr(value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int32, np.int64])
def test_numbers_of_numpy_are_numbers(kind: Any, protocol: int) -> None:
    content = pickle.dumps({1: kind(-5648.109619499134), 2: kind(7), 3: [kind(0)] * 2}, protocol)
    expected = {1: kind(-5648.109619499134).item(), 2: kind(7).item(), 3: [kind(0).item()] * 2}
    assert repr(plain(content, "f")) == repr(expected)
    old = content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")  # as numpy 1 names it
    if protocol < 4:  # where no length precedes the name
        assert old != content
        assert plain(old, "f") == expected


def test_a_number_may_have_its_bytes_the_other_way() -> None:
    content = pickle.dumps(np.float64(162.5), 2)
    value = (
        struct.pack("<d", 162.5).decode("latin-1").encode(),
        struct.pack(">d", 162.5).decode("latin-1").encode(),
    )
    turned = content.replace(b"<", b">", 1).replace(*value)
    assert turned != content
    assert plain(turned, "f") == 162.5 == pickle.loads(turned)


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"(dp1\nS'a'\np2\nF1.5\nsS\"b\"\nI01\nsV\\u00e9\nL-7L\ns.", {"a": 1.5, "b": True, "\u00e9": -7}),
        (b"\x80\x02}q\x01(U\x01aq\x02K\x01T\x01\x00\x00\x00bh\x02u.", {"a": 1, "b": "a"}),
        (b"((lp0\nI1\naI00\nag0\nt.", ([1, False], [1, False])),
        (b"\x8a\x00.", 0),
    ],
)
def test_files_of_python_2_are_read_too(content: bytes, value: Any) -> None:
    assert plain(content, "f") == value == pickle.loads(content)


# --- planted files -------------------------------------------------------------------------------
class Planted:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_planted_call_is_named_and_not_run(tmp_path: Path, protocol: int) -> None:
    content = pickle.dumps({1: {"duration": Planted(tmp_path / "run")}}, protocol)
    assert "system': nothing is imported or called" in refused(content)
    assert not (tmp_path / "run").exists()
    pickle.loads(content)
    assert (tmp_path / "run").exists()  # so the file was not harmless


EXECUTED = {
    "global": (b"cos\nsystem\n(S'true'\ntR.", "names 'os system': nothing is imported"),
    "stack global": (b"\x8c\x02os\x8c\x06system\x93.", "names 'os system': nothing is imported"),
    "stack global of lists": (b"]]\x93.", "STACK_GLOBAL requires str"),
    "numpy's other names": (b"cnumpy\nload\n.", "names 'numpy load'"),
    "numpy's reconstruct": (b"cnumpy.core.multiarray\n_reconstruct\n.", "names 'numpy.core"),
    "inst": (b"(S'true'\nios\nsystem\n.", "opcode b'i'"),
    "obj": (b"(cnumpy\ndtype\no.", "opcode b'o'"),
    "newobj": (b"cnumpy\ndtype\n)\x81.", r"opcode b'\x81'"),
    "newobj_ex": (b"cnumpy\ndtype\n)}\x92.", r"opcode b'\x92'"),
    "reduce of text": (b"S'os.system'\n(S'true'\ntR.", "calls a value that is no name"),
    "reduce without a tuple": (b"cnumpy\ndtype\n]R.", "calls a value that is no name"),
    "reduce of too much": (b"c_codecs\nencode\n(NNNtR.", "takes 2 positional arguments but 3 were given"),
    "a codec": (b"c_codecs\nencode\n(S'a'\nS'zlib'\ntR.", "bytes that are not text in latin1"),
    "not in latin1": (b"c_codecs\nencode\n(V\\u20ac\nS'latin1'\ntR.", "'latin-1' codec can't encode"),
    "objects of numpy's": (b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.", "other than f4, f8, i4, i8"),
    "a number without a type": (b"cnumpy.core.multiarray\nscalar\n(NC\x01atR.", "without a type"),
    "a function's attributes": (b"c_codecs\nencode\n(N}S'__code__'\nNstb.", "sets the state of a value"),
    "build": (b"}}S'__setstate__'\ncnumpy\ndtype\nsb.", "sets the state of a value"),
    "ext1": (b"\x82\x01.", r"opcode b'\x82'"),
    "ext2": (b"\x83\x01\x00.", r"opcode b'\x83'"),
    "ext4": (b"\x84\x01\x00\x00\x00.", r"opcode b'\x84'"),
    "persid": (b"Pid\n.", "opcode b'P'"),
    "binpersid": (b"NQ.", "opcode b'Q'"),
    "buffers": (b"\x97.", r"opcode b'\x97'"),
    "sets": (b"\x8f.", r"opcode b'\x8f'"),
    "protocol": (b"\x80\x06N.", "unsupported pickle protocol: 6"),
    "no opcode": (b"\xff.", r"opcode b'\xff'"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), EXECUTED.values(), ids=EXECUTED)
def test_nothing_but_plain_values_is_read(content: bytes, message: str) -> None:
    assert message in refused(content)


MALFORMED = {
    "huge number": (b"\x8b\xff\xff\xff\x7f1.", r"opcode b'\x8b'"),
    "more digits": (b"L" + b"9" * 5000 + b"L\n.", "Exceeds the limit (4300 digits)"),
    "no digits": (b"Ione\n.", "invalid literal for int()"),
    "no float": (b"Fone\n.", "could not convert string to float"),
    "huge text": (b"X\xff\xff\xff\xffa.", "the file ends too early"),
    "text of Python 2": (b"T\xff\xff\xff\x7fa.", "the file ends too early"),
    "no UTF-8": (b"X\x01\x00\x00\x00\xff.", "'utf-8' codec can't decode byte 0xff"),
    "half a surrogate": (b"X\x03\x00\x00\x00\xed\xa0\x80.", "surrogates not allowed"),
    "no quotes": (b"Sa\n.", "argument must be quoted"),
    "memo below 0": (b"]p0\ng-1\n.", "Memo value not found at index -1"),
    "memo that is not there": (b"h\x05.", "Memo value not found at index 5"),
    "key of tuples": (b"})Ns.", "a key that is neither text nor a whole number"),
    "key of a number": (b"}G\x7f\xf8\x00\x00\x00\x00\x00\x00Ns.", "a key that is neither"),
    "a key twice": (b"}(K\x01NK\x01Nu.", "the key 1 for a second time"),
    "half an item": (b"}(K\x01u.", "sets items of a value that is no dict, or half"),
    "items of a list": (b"](K\x01Nu.", "sets items of a value that is no dict"),
    "append to a dict": (b"}Na.", "no attribute 'append'"),
    "pop from nothing": (b"a.", "pop from empty list"),
    "pop below a mark": (b"](a.", "pop from empty list"),
    "no mark": (b"]e.", "pop from empty list"),
    "open mark": (b"(N.", "it does not end with its value"),
    "no value": (b".", "pop from empty list"),
    "two values": (b"NN.", "it does not end with its value"),
    "something behind": (b"N.N.", "it does not end with its value"),
    "nothing": (b"", "the file ends too early"),
    "half a surrogate in a line": (b"V\\ud800\n.", "surrogates not allowed"),
    "key of a long number": (b"}\x8a\x09123456789Ns.", "a key that is neither text nor a whole number"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_files_are_refused(content: bytes, message: str) -> None:
    assert message in refused(content)


@pytest.mark.parametrize("content", [b"]r\xff\xff\xff\x7f.", b"]p99999999999\n.", b"]" + b"\x94" * 9 + b"."])
def test_a_memo_costs_no_more_than_its_values(content: bytes) -> None:
    """Python's reader in C makes a memo of 2^31 places for the first."""
    tracemalloc.start()
    try:
        assert plain(content, "f") == []
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("values", [b"]", b"(", b"}", b")", b"U\x00", b"C\x00", b"X\x00\x00\x00\x00"])
def test_values_that_take_memory_are_counted(values: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled, "MAX_HELD", 9)
    assert "more than 9 marks, lists, tuples, dicts and texts" in refused(values * 10)
    assert "more than 9" not in refused(values * 9)
    assert "more than 9" in refused(b"]" + b"\x94" * 9)


GLOBALS = ("INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID")


def test_no_global_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own `find_class`, calls and states are out of reach; a module is not even imported."""
    acts, theirs = pickled._Plain.dispatch, pickle._Unpickler.dispatch
    opcodes = {name: getattr(pickle, name)[0] for name in (*GLOBALS, "REDUCE", "BUILD")}
    assert not [name for name in GLOBALS if opcodes[name] in acts]
    assert [acts[opcodes[name]] is theirs[opcodes[name]] for name in ("REDUCE", "BUILD")] == [False] * 2
    monkeypatch.setattr(pickle._Unpickler, "find_class", lambda *_: pytest.fail("it was resolved"))
    for content in (b"cthis\ns\n.", b"\x8c\x04this\x8c\x01s\x93.", b"(ithis\ns\n.", b"cnumpy\nload\n."):
        assert "nothing is imported or called" in refused(content)
    assert "this" not in sys.modules
    assert plain(pickle.dumps(np.float64(2)), "f") == 2.0


def test_a_list_within_itself_ends() -> None:
    looped = plain(b"]\x94h\x00a.", "f")
    assert looped[0] is looped


def test_tuples_within_tuples_end() -> None:
    """Python's own reader would take the hash of 2^100 tuples."""
    doubled = b")\x94" + b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86\x94" for i in range(100))
    assert "a key that is neither" in refused(doubled + b"}h\x64Ns.")


@pytest.mark.ci
def test_nesting_costs_no_recursion() -> None:
    depth = 200_000
    value = plain(b"]" * depth + b"a" * (depth - 1) + b".", "f")
    for _ in range(depth - 1):
        (value,) = value
    assert value == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_truncated_at_every_byte_it_is_refused(protocol: int) -> None:
    capacity = {1: {"computation": np.float64(162), "communication": 5648.1}}
    for content in (pickle.dumps(BEHAVE, protocol), pickle.dumps(capacity, protocol)):
        for size in range(len(content)):
            refused(content[:size])


def problems_of(content: bytes) -> int:
    try:
        plain(content, "f")
    except ScenarioError as error:
        return len(error.problems)
    return 0


@given(st.binary(max_size=200))
def test_random_bytes_end_in_one_error(content: bytes) -> None:
    assert problems_of(content) <= 1


@given(st.data(), st.sampled_from(PROTOCOLS))
def test_a_changed_byte_ends_in_one_error_or_a_value(data: st.DataObject, protocol: int) -> None:
    content = bytearray(pickle.dumps({1: {**ENTRY, "speed": np.float64(162)}}, protocol))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    assert problems_of(bytes(content)) <= 1
