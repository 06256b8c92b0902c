"""Messages to users, side by side in tests/messages.txt: a change of one is read beside the others."""

import pytest

from tests import messages


@pytest.mark.ci
def test_messages_are_those_of_the_golden_file() -> None:
    """`python -m tests.messages` writes it anew: read the difference as a user would."""
    assert messages.listed() == messages.FILE.read_text(encoding="utf-8")
