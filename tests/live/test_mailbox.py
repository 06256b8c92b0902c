"""What a user may not have is sent again, in order, and once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from simfl.live.mailbox import Mailbox
from simfl.live.wire import Malformed


class Line:
    """A connection that notes what is put on it."""

    def __init__(self) -> None:
        self.put_on: list[bytes] = []

    def put(self, frame: bytes, then: Any) -> None:
        self.put_on.append(frame)


def mailbox() -> tuple[Mailbox, Line]:
    line = Line()
    codec = SimpleNamespace(encode=lambda message, *where: message)
    ends = SimpleNamespace(connection_of=lambda user: line)
    network: Any = SimpleNamespace(ends=ends, codec=codec)
    return Mailbox(network, 0), line


def message(content: bytes) -> Any:
    return SimpleNamespace(
        message=content, round=0, step=0, sent_ns=0, is_half=False, relayed=False, on_sent=None
    )


def test_unacknowledged_messages_are_sent_again_in_order() -> None:
    box, line = mailbox()
    for content in (b"a", b"b", b"c"):
        box.send(message(content))
    box.online(False)
    box.send(message(b"d"))
    assert line.put_on == [b"a", b"b", b"c"]
    box.acknowledge(1)
    box.online(True)
    assert line.put_on == [b"a", b"b", b"c", b"b", b"c", b"d"]
    box.acknowledge(4)
    assert not box.unacknowledged


@pytest.mark.parametrize("count", [0, 3])
def test_a_count_that_cannot_be_is_malformed(count: int) -> None:
    box, _ = mailbox()
    for content in (b"a", b"b"):
        box.send(message(content))
    box.acknowledge(1)
    with pytest.raises(Malformed, match=f"{count} messages taken: must be from 1 to 2"):
        box.acknowledge(count)
