"""Fields of messages off a wire: each is read by its type, strictly, or the frame is `Malformed`."""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, NewType, get_args, get_type_hints

from simfl.dataplane.handles import Handle
from simfl.protocols.index_views import Users
from simfl.protocols.machine import Number, RecoveryId, UpdateId
from simfl.world.dropout import When, WhenPlanned

LARGEST = 2**63 - 1
_WHENS = (*get_args(When), "not_counted", "delay")
Signed = NewType("Signed", int)
ZERO = Signed(0)


class Malformed(Exception):
    """The bytes are no message, or not one of this sender."""


@cache  # a frame is read in less time than its types' names are
def readers(message: type[Any]) -> tuple[Callable[..., Any], ...]:
    """Return what reads each field of a dataclass; ValueError for a type that the wire does not know."""
    hints = get_type_hints(message, include_extras=True)
    out = []
    for field in fields(message):
        name = str(hints[field.name]).replace("typing.", "").replace("collections.abc.", "")
        read = _READ.get(hints[field.name]) or _READ.get(name)
        if read is None:
            raise ValueError(
                f"its message {message.kind} has {field.name}, of a type that the wire does not know"
            )
        out.append(read)
    return tuple(out)


def whole(value: Any, users: int = 0) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise Malformed(f"{str(value)[:20]} where a whole number is due")
    return value


def _signed(value: Any, users: int) -> int:
    return whole(value) if type(value) is not int else value if abs(value) <= LARGEST else whole(-1)


def _whole_or_none(value: Any, users: int) -> int | None:
    return None if value is None else whole(value)


def _text(value: Any, users: int) -> str:
    if type(value) is not str:
        raise Malformed("a text is due")
    try:
        value.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        raise Malformed("a text that is none") from None
    return value


def _when(value: Any, users: int) -> WhenPlanned | None:
    if value is not None and value not in _WHENS:
        raise Malformed(f"none or one of {', '.join(_WHENS)} is due")
    when: WhenPlanned | None = value
    return when


def _update(value: Any, users: int) -> UpdateId:
    update = UpdateId(*_numbers(value, 2))
    if update.user >= users:
        raise Malformed(f"an update of users 0 .. {users - 1} is due")
    return update


def _numbers(value: Any, count: int) -> list[int]:
    if type(value) is not list or len(value) != count:
        raise Malformed(f"{count} whole numbers are due")
    return list(map(whole, value))


def _update_or_none(value: Any, users: int) -> UpdateId | None:
    return None if value is None else _update(value, users)


def _recovery(value: Any, users: int) -> RecoveryId:
    return RecoveryId(*_numbers(value, 1))


def _each(read: Callable[..., Any]) -> Callable[..., Any]:
    def list_of(value: Any, users: int) -> tuple[Any, ...]:
        if type(value) is not list:
            raise Malformed("a list is due")
        return tuple(read(one, users) for one in value)

    return list_of


def _users(value: Any, users: int) -> Users:
    if type(value) is not list or not all(type(user) is int and 0 <= user < users for user in value):
        raise Malformed(f"users of 0 .. {users - 1} are due")
    return Users(value)


def handle(value: Any, users: int) -> Handle:
    raise NotImplementedError  # pragma: no cover - the codec reads these


def handle_or_none(value: Any, users: int) -> None:
    return None  # the codec reads those that are there


_READ: dict[Any, Callable[..., Any]] = {
    Handle: handle,
    Handle | None: handle_or_none,
    int: whole,
    Signed: _signed,
    str: _text,
    WhenPlanned | None: _when,
    Users: _users,
    "int | None": _whole_or_none,
    "tuple[int, ...]": lambda value, users: tuple(_users(value, users)),
    "Sequence[int]": _users,
    tuple[Number, ...]: _each(whole),
    UpdateId: _update,
    UpdateId | None: _update_or_none,
    tuple[UpdateId, ...]: _each(_update),
    RecoveryId: _recovery,
}
