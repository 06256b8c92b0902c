"""One trace of the rows that server and users noted, in the order of time: as if one session had written it.

A party numbers its own rows. The cause of a message that arrived is a row of its sender; all other causes
are rows of the same party, but of the step in which the server hears that a user is gone, which is -2 - user:
there the cause is that user's loss. All parties read the same clock, or one that was set by the server's, so
that a cause comes before what it causes; a row that says otherwise is not believed, and has no cause.
"""

from collections.abc import Iterable, Mapping
from heapq import merge
from itertools import accumulate

from simfl.trace import rows
from simfl.trace.rows import SERVER, Row, Trace


def merged(
    parts: Mapping[int, list[Row]],
    broken_off: Iterable[tuple[int, int, str, str, int]],
    later: Mapping[int, int] = {},
) -> Trace:
    """Return the trace of a run.

    Args:
        parts: rows by party, in the order in which it noted them.
        broken_off: (round, user, update, phase, time) of connections that ended amid a user's part: of a user
            that noted no loss, as it died with its rows, this is the loss.
        later: nanoseconds by which a party's clock turned out to be behind.
    """
    parts = {party: [_set(row, party, later) for row in own] for party, own in parts.items()}
    told = parts.keys() - {SERVER}
    losses_noted = (row for own in parts.values() for row in own if isinstance(row, rows.Lost))
    noted = {(row.round, row.user, row.about) for row in losses_noted}
    for index, user, about, phase, at in broken_off:
        if (index, user, about) not in noted:
            lost = rows.Lost(index, user, about, phase, "its connection broke", -1, at)
            own = parts.setdefault(user, [])
            own.append(lost)
    numbers: dict[tuple[int, int], int] = {}
    losses: dict[int, int] = {}
    trace = Trace()

    def numbered(party: int, cause: int) -> int:
        return losses.get(-2 - cause, -1) if cause <= -2 else numbers.get((party, cause), -1)

    came: dict[tuple[int, bool], int] = {}
    for _, _, k, party, row in merge(*(_timed(party, own) for party, own in parts.items())):
        if isinstance(row, rows.Presence):
            if party == SERVER and row.user in told:  # what it heard of is in the user's own rows
                numbers[party, k] = came.get((row.user, row.online), -1)
                continue
            came[row.user, row.online] = len(trace)
        if isinstance(row, rows.Sent) and row.arrived is not None:
            row = row._replace(cause=numbered(row.sender, row.cause))
        elif isinstance(row, rows.Step):
            row = row._replace(cause=numbered(party, row.cause), previous=numbered(party, row.previous))
        elif not isinstance(row, (rows.Begin, rows.Presence, rows.Spent)):
            row = row._replace(cause=numbered(party, row.cause))
        numbers[party, k] = trace.add(row)
        if isinstance(row, rows.Lost):
            losses[row.user] = numbers[party, k]
    return trace


def _set(row: Row, party: int, later: Mapping[int, int]) -> Row:
    """Return a row with its times by the server's clock."""
    own = later.get(party, 0)
    match row:
        case rows.Sent():
            sent, arrived = row.sent + later.get(row.sender, 0), row.arrived
            if arrived is not None:
                arrived = max(sent + 1, arrived + own)  # behind the step that sent it
            return row._replace(sent=sent, arrived=arrived)
        case _ if not own:
            return row
        case rows.Step():
            return row._replace(ready=row.ready + own, start=row.start + own, end=row.end + own)
        case rows.Lost() | rows.Ignored() | rows.Refused() | rows.Presence():
            return row._replace(at=row.at + own)
        case _:
            return row


def _timed(party: int, own: list[Row]) -> Iterable[tuple[int, int, int, int, Row]]:
    """Yield a party's rows with their times, which never go back; users before the server."""
    times = accumulate(map(_time, own), max)
    for k, (at, row) in enumerate(zip(times, own, strict=True)):
        yield at, (party if party != SERVER else 2**31), k, party, row


def _time(row: Row) -> int:
    match row:
        case rows.Step():
            return row.end
        case rows.Sent():
            return row.sent if row.arrived is None else row.arrived
        case _:
            return row.at
