"""The sequence diagram of docs/architecture.md: a user's round, from a trace.

python -m docs.tools.sequence     runs it, shadow and under the modelled clock, and writes the page's block
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from docs.tools import ROOT
from simfl.trace.rows import SERVER, Aggregated, Sent, Step, TimerSet, Trace
from tests.engine.harness import SYNC, run

PAGE = ROOT / "docs" / "architecture.md"
SHADOW = {"payload": "shadow"}
MS = 10**6
ARROW = 18
"""Characters between the user's and the server's column."""

Line = tuple[int, int, int, str]
"""Start and end [ns], column, text. Columns: 0 training, 1 protocol, 2 link, 3 server."""


def round_of(user: int = 0) -> str:
    """Return the diagram of a user's round of LightSecAgg, one of three users."""
    trace = run({**SHADOW, "protocols": ["lightsecagg"]}, SYNC).traces["lightsecagg"]
    return drawn(lines(trace, user, ""))


def lines(trace: Trace, user: int, about: str) -> Iterator[Line]:
    """Yield the rows of a user's update, with the server's steps around them, and aggregates up to its own.

    Args:
        trace: Of a run without losses.
        user: The user whose rows these are.
        about: The update, as in rows of a buffered run; empty in rounds.
    """
    messages = [row for row in trace if isinstance(row, Sent) and user in (row.sender, row.to)]
    messages = [row for row in messages if row.about == about]
    began = messages[0].sent
    aggregates = [row for row in trace if isinstance(row, Aggregated) and row.at >= began]
    causes = {row.cause for row in messages} | {row.cause for row in aggregates}
    arrived = {number for number, row in enumerate(trace) if row in messages}
    for number, row in enumerate(trace):
        if isinstance(row, Step) and row.party == user and row.about == about:
            yield row.start, row.end, row.lane == "protocol", name_of(row)
        elif isinstance(row, Step) and row.party == SERVER and (number in causes or row.cause in arrived):
            yield row.start, row.end, 3, name_of(row) + sender_of(trace, row, user)
        elif isinstance(row, Sent) and number in arrived and row.arrived is not None:
            yield row.sent, row.arrived, 2, arrow(row.kind, up=row.sender == user)
        elif isinstance(row, TimerSet) and row.about == about:
            yield row.at, row.fires, 3, f"deadline {row.name}"
        elif row in aggregates:
            yield row.at, row.at, 3, aggregate(row)
            if (user, about) in [(member, update) for member, update, _ in row.members]:
                return


def name_of(step: Step) -> str:
    """Return a step's call, and the kind of message that it takes."""
    return f"{step.call} {step.what}".strip()


def sender_of(trace: Trace, step: Step, user: int) -> str:
    """Return the other user whose message the server's step takes, if there is one."""
    cause: Any = trace[step.cause]
    return f" of user {cause.sender}" if isinstance(cause, Sent) and cause.sender != user else ""


def aggregate(row: Aggregated) -> str:
    """Return the members of an aggregate, with their staleness in brackets."""
    members = [f"{user} ({stale})" if stale else f"{user}" for user, _, stale in row.members]
    return f"aggregate {row.round + 1}: users {', '.join(members)}"


def arrow(kind: str, up: bool) -> str:
    """Return a message's arrow to the server, or from it."""
    text = f" {kind} ".center(ARROW - 1, "-")
    return f"{text}>" if up else f"<{text}"


def drawn(listed: Iterable[Line]) -> str:
    """Return the lines in order of their start, below a heading; times in milliseconds."""
    columns = (9, 18, ARROW + 2, 0)
    titles = ("training", "protocol", "link".center(ARROW), "server")
    rows: list[tuple[str, str, tuple[str, ...]]] = [("from", "to", titles)]
    for start, end, column, text in sorted(listed, key=lambda line: line[0]):
        cells = tuple(text if k == column else "" for k in range(4))
        rows.append((f"{start / MS:.3f}", f"{end / MS:.3f}", cells))
    return "".join(
        f"{start:>8}{end:>10}  {''.join(map(str.ljust, cells, columns))}".rstrip() + "\n"
        for start, end, cells in rows
    )


def between(name: str) -> re.Match[str]:
    """Return a generated part of the page: marker, block, end."""
    pattern = rf"(<!-- python -m docs\.tools\.sequence: {name} -->\n```text\n)(.*?)(```\n)"
    match = re.search(pattern, PAGE.read_text(encoding="utf-8"), re.S)
    assert match, name
    return match


DIAGRAMS = {"round": round_of}

if __name__ == "__main__":
    for name, draw in DIAGRAMS.items():
        part, text = between(name), PAGE.read_text(encoding="utf-8")
        PAGE.write_text(text[: part.start(2)] + draw() + text[part.end(2) :], encoding="utf-8")
