"""Plain values of a pickle: numbers, text, lists, tuples and dicts. Nothing in it is imported or called.

Invariant: bytes become values by the table `OPCODES` and in no other way, and what they take of memory and
time is bounded. Python's `Unpickler` keeps neither, even one whose `find_class` refuses everything: it makes
its memo as long as an index in the file says, takes hashes of tuples within tuples, which need not end, and
does not tell where a file is wrong. Nor could it read FedScale's capacities, which are numpy's numbers: in a
pickle these are calls of numpy's functions. Here the names of those functions stand for functions of ours,
which take a number from its bytes.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from simfl.errors import cut, refusal

MAX_BYTES = 2**27  # of a file; FedScale's have 26 and 39 million
MAX_OPCODES = 2**25  # FedScale's larger file has 11.5 million
MAX_HELD = 5_000_000  # marks and values that are no numbers, of which FedScale has 3 million
MAX_TEXT_BYTES = 1000
LATEST_PROTOCOL = 5


@dataclass(frozen=True, slots=True)
class _Name:
    """A function's name in a pickle, and what we do in its place."""

    make: Callable[..., Any]


@dataclass(slots=True)
class _NumberType:
    """The type of one of numpy's numbers, in the letters of `struct`."""

    letter: str
    byte_order: str = "<"


def _number_type(name: object, *_: object) -> _NumberType:
    letters = {"f4": "f", "f8": "d", "i4": "i", "i8": "q"}
    if not isinstance(name, str) or name not in letters:
        raise ValueError("a type of numpy's that is none of f4, f8, i4, i8")
    return _NumberType(letters[name])


def _number(of: object, raw: object) -> int | float:
    raw = raw.encode("latin-1") if isinstance(raw, str) else raw  # Python 2 knew no other bytes
    size = struct.calcsize(of.byte_order + of.letter) if isinstance(of, _NumberType) else -1
    if not (isinstance(of, _NumberType) and isinstance(raw, bytes) and len(raw) == size):
        raise ValueError("a number of numpy's without a type, or without the bytes of its type")
    number: int | float = struct.unpack(of.byte_order + of.letter, raw)[0]
    return number


def _encoded(text: object, encoding: object) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("bytes that are not text in latin1")
    return text.encode("latin-1")


_NAMES = {
    "numpy.core.multiarray scalar": _Name(_number),
    "numpy._core.multiarray scalar": _Name(_number),
    "numpy dtype": _Name(_number_type),
    "_codecs encode": _Name(_encoded),  # bytes, in protocols 0 to 2
}


def plain(content: bytes, file: str) -> Any:
    """Return the value of a pickle. ScenarioError, with the byte at which it is, for all but plain values.

    >>> plain(b"}(U\\x06activeK\\x05u.", "trace")
    {'active': 5}
    >>> plain(b"cos\\nsystem\\n(S'true'\\ntR.", "trace")
    Traceback (most recent call last):
    simfl.errors.ScenarioError: trace: byte 0: names 'os system': only plain values are read, nothing is run
    """
    pickle = _Pickle(content)
    try:
        return pickle.value()
    except IndexError:
        ended = pickle.begin >= len(content)
        message = "the file ends too early" if ended else "takes a value that is not there"
    except ValueError as error:
        message = cut(str(error))
    raise refusal(file, None, f"byte {pickle.begin}: {message}")


class _Pickle:
    """A pickle that is being read: its values so far, and those before each mark that is still open."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.begin = self.at = 0  # of the opcode, and of what is read next
        self.values: list[Any] = []
        self.before: list[list[Any]] = []
        self.memo: list[Any] = []
        self.held = 0

    def value(self) -> Any:
        content, act_of = self.content, OPCODES
        for _ in repeat(None, MAX_OPCODES):
            self.begin = self.at
            opcode = content[self.at]
            self.at += 1
            if opcode == STOP:
                break
            if opcode not in act_of:
                raise ValueError(f"opcode {bytes([opcode])!r}: only plain values are read, nothing is run")
            act_of[opcode](self)
        else:
            raise ValueError(f"more than {MAX_OPCODES} opcodes")
        if self.before or len(self.values) != 1 or self.at != len(content):
            raise ValueError("the pickle ends here, but not with one value, or not with the file")
        return self.values.pop()

    # -- the bytes behind an opcode
    def take(self, size: int) -> bytes:
        taken = self.content[self.at : self.at + size]
        if len(taken) != size:
            raise ValueError("the file ends too early")
        self.at += size
        return taken

    def size(self, of: int) -> int:
        return int.from_bytes(self.take(of), "little")

    def signed(self, size: int) -> int:
        if size > 8:
            raise ValueError(f"a whole number of {size} bytes: at most 8 are read")
        return int.from_bytes(self.take(size), "little", signed=True)

    def text(self, size: int) -> bytes:
        if size > MAX_TEXT_BYTES:
            raise ValueError(f"text of {size} bytes: at most {MAX_TEXT_BYTES} are read")
        return self.take(size)

    def line(self) -> str:
        end = self.content.find(b"\n", self.at, self.at + MAX_TEXT_BYTES)
        line = self.take((end if end >= 0 else self.at + MAX_TEXT_BYTES) + 1 - self.at)
        if end < 0:
            raise ValueError(f"a line of more than {MAX_TEXT_BYTES} bytes")
        return line[:-1].decode("latin-1")

    # -- values
    def push(self, value: Any) -> None:
        self.values.append(value)

    def hold(self, value: Any) -> None:
        self.count()
        self.values.append(value)

    def count(self) -> None:
        self.held += 1
        if self.held > MAX_HELD:
            raise ValueError(f"more than {MAX_HELD} lists, tuples, dicts and texts")

    def pop(self, count: int) -> list[Any]:
        return [self.values.pop() for _ in range(count)][::-1]

    def mark(self) -> None:
        self.count()
        self.before.append(self.values)
        self.values = []

    def marked(self) -> list[Any]:
        """Return the values since the last mark, which is closed by it."""
        values, self.values = self.values, self.before.pop()
        return values

    def append(self, values: list[Any]) -> None:
        into = self.values[-1]
        if type(into) is not list:
            raise ValueError("appends to something that is not a list")
        into.extend(values)

    def set_items(self, values: list[Any]) -> None:
        into = self.values[-1]
        if type(into) is not dict or len(values) % 2:
            raise ValueError("sets items of something that is not a dict, or half an item")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if type(key) is not int and type(key) is not str:
                raise ValueError("a key that is neither text nor a whole number")
            if key in into:
                raise ValueError(f"the key {key!r} for a second time")
            into[key] = value

    def marked_dict(self) -> None:
        values = self.marked()
        self.hold({})
        self.set_items(values)

    def put(self, index: int) -> None:
        # All picklers count from 0, or from 1 (Python 2). So no index makes the memo longer than its values.
        if index == 1 and not self.memo:
            self.memo.append(None)
        if index != len(self.memo):
            raise ValueError(f"remembers a value as number {index} after {len(self.memo)}")
        self.memo.append(self.values[-1])

    def get(self, index: int) -> None:
        if not 0 <= index < len(self.memo):
            raise ValueError(f"recalls value {index} of {len(self.memo)}")
        self.values.append(self.memo[index])

    def name(self, module: Any, name: Any) -> None:
        known = _NAMES.get(f"{module} {name}") if isinstance(module, str) and isinstance(name, str) else None
        if known is None:
            shown = repr(f"{module} {name}") if isinstance(name, str) else "something that is not text"
            raise ValueError(f"names {shown}: only plain values are read, nothing is run")
        self.values.append(known)

    def call(self) -> None:
        arguments, name = self.values.pop(), self.values.pop()
        if type(name) is not _Name or type(arguments) is not tuple:
            raise ValueError("calls something that is not a name: nothing is run")
        try:
            self.push(name.make(*arguments))
        except TypeError:
            raise ValueError(f"one of numpy's numbers of {len(arguments)} parts") from None

    def build(self) -> None:
        state, of = self.values.pop(), self.values[-1]
        if type(of) is not _NumberType or type(state) is not tuple or state[1:2] not in (("<",), (">",)):
            raise ValueError("sets the state of something that is not the type of a number: nothing is run")
        of.byte_order = state[1]


def _whole(line: str) -> int | bool:
    number = {"00": False, "01": True}.get(line, int(line.removesuffix("L")))
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"a whole number of {len(line)} digits: at most 64 bits are read")
    return number


def _quoted(line: str) -> str:
    if len(line) < 2 or line[0] not in "'\"" or line[-1] != line[0]:
        raise ValueError("text without its quotes")
    return line[1:-1].encode("latin-1").decode("unicode-escape")


def _protocol(version: int) -> None:
    if version > LATEST_PROTOCOL:
        raise ValueError(f"protocol {version}: the latest that is read is {LATEST_PROTOCOL}")


STOP = ord(".")
_ACTS: dict[str, Callable[[_Pickle], object]] = {
    "\x80": lambda p: _protocol(p.size(1)),
    "\x95": lambda p: p.take(8),  # a frame's size, which matters only to who reads a stream
    # numbers
    "N": lambda p: p.push(None),
    "\x88": lambda p: p.push(True),
    "\x89": lambda p: p.push(False),
    "I": lambda p: p.push(_whole(p.line())),
    "L": lambda p: p.push(_whole(p.line())),
    "K": lambda p: p.push(p.size(1)),
    "M": lambda p: p.push(p.size(2)),
    "J": lambda p: p.push(p.signed(4)),
    "\x8a": lambda p: p.push(p.signed(p.size(1))),
    "\x8b": lambda p: p.push(p.signed(p.size(4))),
    "F": lambda p: p.push(float(p.line())),
    "G": lambda p: p.push(struct.unpack(">d", p.take(8))[0]),
    # text and bytes
    "S": lambda p: p.hold(_quoted(p.line())),
    "T": lambda p: p.hold(p.text(p.size(4)).decode("latin-1")),
    "U": lambda p: p.hold(p.text(p.size(1)).decode("latin-1")),
    "V": lambda p: p.hold(p.line().encode("latin-1").decode("raw-unicode-escape")),
    "X": lambda p: p.hold(p.text(p.size(4)).decode()),
    "\x8c": lambda p: p.hold(p.text(p.size(1)).decode()),
    "C": lambda p: p.hold(p.take(p.size(1))),
    # lists, dicts and tuples
    "(": _Pickle.mark,
    "]": lambda p: p.hold([]),
    "l": lambda p: p.hold(p.marked()),
    "a": lambda p: p.append(p.pop(1)),
    "e": lambda p: p.append(p.marked()),
    "}": lambda p: p.hold({}),
    "d": _Pickle.marked_dict,
    "s": lambda p: p.set_items(p.pop(2)),
    "u": lambda p: p.set_items(p.marked()),
    ")": lambda p: p.hold(()),
    "t": lambda p: p.hold(tuple(p.marked())),
    "\x85": lambda p: p.hold(tuple(p.pop(1))),
    "\x86": lambda p: p.hold(tuple(p.pop(2))),
    "\x87": lambda p: p.hold(tuple(p.pop(3))),
    # values that come again
    "p": lambda p: p.put(int(p.line())),
    "q": lambda p: p.put(p.size(1)),
    "r": lambda p: p.put(p.size(4)),
    "\x94": lambda p: p.put(len(p.memo)),
    "g": lambda p: p.get(int(p.line())),
    "h": lambda p: p.get(p.size(1)),
    "j": lambda p: p.get(p.size(4)),
    # numpy's numbers
    "c": lambda p: p.name(p.line(), p.line()),
    "\x93": lambda p: p.name(*p.pop(2)),
    "R": _Pickle.call,
    "b": _Pickle.build,
}
OPCODES = {ord(byte): act for byte, act in _ACTS.items()}
