"""A command in this process: its exit code and what it prints."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from simfl.cli import main
from tests.fuzz.attempt import LONGEST_LINE, LONGEST_TEXT
from tests.fuzz.invariants import Broken

CODES = (0, 1, 2, 3, 130, 141, 143)


class Ended(NamedTuple):
    """A command's exit code, and what it printed."""

    code: int
    out: str
    err: str


def command(*arguments: str) -> Ended:
    """Execute a command. Broken: it ends otherwise than the documentation says, or without a message."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(list(arguments))
            code: object = 0
        except SystemExit as left:
            code = left.code or 0
    ended = Ended(code if isinstance(code, int) else -1, out.getvalue(), err.getvalue())
    text = ended.err
    if ended.code not in CODES:
        raise Broken("exit code", f"{code!r}: {text[:500]}")
    if "Traceback (most recent call last)" in text + ended.out:
        raise Broken("traceback", text[-1500:])
    said = text.strip() or (ended.out.strip() if ended.code == 1 else "")  # a verdict is what was asked for
    if ended.code in (1, 2) and said in ("", "Aborted!"):
        raise Broken("no message", f"exit code {ended.code}: {text!r}")
    if len(text) > LONGEST_TEXT or max(map(len, text.splitlines()), default=0) > LONGEST_LINE:
        raise Broken("long message", f"{len(text)} characters: {text[:500]}")
    return ended
