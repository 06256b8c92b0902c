"""Intervals in which users are online, from a CSV file with the header `user,from_s,to_s`: one a line.

With a column `period_s`, a user's intervals begin again after that number of seconds.

Intervals are half open: a user is online at `from_s`, and offline at `to_s`. They become columns in order of
entries, then of time; `first` has the place of each entry's own. A state is found by a search by halves among
these.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simfl.config.blocks import GREATEST, LEAST
from simfl.config.csv_files import Cells, Column, Wrong
from simfl.errors import refusal, show
from simfl.virtual_time import NS
from simfl.world.csv_series import Columns, Reader, bounded, first_of_group, read_series

COLUMNS = ("user", "from_s", "to_s")
PERIOD = "period_s"

_DIGITS = frozenset("0123456789")


class Intervals:
    """The times at which the entries of a file (users, or others whose times users take) are online.

    Held by columns, in order of entries, then of time: objects would take ten times 16 bytes an interval. An
    interval without length is left out, but its entry is kept.

    Args:
        users: Entry of each interval, ascending, int64 [n].
        begins: Seconds since the start of the run or of the entry's period, ascending for each entry, [n].
        ends: Seconds at which it ends, [n].
        period: Seconds, the same for all intervals of an entry, [n]; infinite where it does not repeat.
    """

    def __init__(self, users: Column, begins: Column, ends: Column, period: Column) -> None:
        entries, first = np.unique(users, return_index=True)
        # At most 10^18 ns, within int64. Above 2^53 ns, 104 days, a float64 cannot hold each nanosecond.
        begins, ends = (np.rint(column * NS).astype(np.int64) for column in (begins, ends))
        lasts = begins < ends
        # The number of lasting intervals before each line: where an entry's own begin in the columns below.
        before = np.concatenate(([0], np.cumsum(lasts)))
        # `where` computes both sides, and int64 has no infinity: so it is cut before it is multiplied.
        period_ns = np.where(np.isinf(period), 0, np.rint(np.minimum(period, GREATEST) * NS))[first]
        # In an `array` an item is a plain integer, which adds up with times beyond int64; NumPy's would
        # overflow.
        self.entries = array("q", entries.astype(np.int64).tobytes())
        self.first = array("q", before[np.append(first, users.size)].astype(np.int64).tobytes())
        self.begins, self.ends = (array("q", column[lasts].tobytes()) for column in (begins, ends))
        # A period that rounds to 0 ns becomes 1 ns, as 0 stands for none.
        self.period = array("q", np.maximum(period_ns, ~np.isinf(period[first])).astype(np.int64).tobytes())

    def __len__(self) -> int:
        return len(self.entries)

    def indices_of(self, users: int) -> NDArray[np.int64]:
        """Return each user's index in the order of entries, int64 [users]; -1 of one without an entry."""
        indices = np.full(users, -1)
        indices[np.array(self.entries, np.int64)] = np.arange(len(self))
        return indices

    def are_ever_online(self) -> NDArray[np.bool_]:
        """Return for each entry, in order, True if it has an interval."""
        return np.diff(np.array(self.first)) > 0

    def at(self, index: int, now: int) -> tuple[bool, int | None]:
        """Return whether an entry is online, and until when at least.

        Args:
            index: The entry's index in the order of entries.
            now: Nanoseconds since the start of the run.

        Returns:
            The state, and the nanosecond up to which it is guaranteed to stay; None for ever.
        """
        first, after = self.first[index], self.first[index + 1]
        if first == after:
            return False, None
        period = self.period[index]
        period_begin = now - now % period if period else 0
        # Intervals are half open: the one that begins now has begun, and the one that ends now is over. So
        # only i - 1 can hold this time, as intervals do not overlap.
        i = bisect_right(self.begins, now - period_begin, first, after)
        if i > first and now - period_begin < self.ends[i - 1]:
            # An interval of a whole period is the entry's only one, and the next period continues it.
            always = self.ends[first] - self.begins[first] == period
            return True, None if always else period_begin + self.ends[i - 1]
        if i < after:
            return False, period_begin + self.begins[i]
        return False, period_begin + period + self.begins[first] if period else None


def read_intervals(file: str, users: int | None, period_s: float | None = None) -> Intervals:
    """Return the intervals of a file, which may touch, but do not overlap.

    Args:
        file: The file's path.
        users: Their number, if the column `user` has theirs. None if it has numbers of entries, which may be
            any, and whose intervals may be empty.
        period_s: Seconds of all users' period, if the file has none.

    Raises:
        ScenarioError: The file cannot be read, a column is missing, or a line of it is wrong.
    """
    readers = {
        "user": Reader(partial(_users, users=users), partial(_user, users=users)),
        "from_s": bounded("from_s", 0, GREATEST),
        "to_s": bounded("to_s", 0, GREATEST),
        PERIOD: bounded(PERIOD, LEAST, GREATEST),
    }
    columns = read_series(file, "", COLUMNS, readers, partial(_wrong, file, users is None, period_s))
    user, begin, end = (columns[name] for name in COLUMNS)
    period = columns.get(PERIOD, np.full(user.size, period_s or np.inf))
    order = np.lexsort((end, begin, user))
    return Intervals(user[order], begin[order], end[order], period[order])


def _users(cells: Sequence[str], users: int | None) -> Column:
    """Return the users of many cells; ValueError unless all are digits, and below `users`."""
    # `int` also takes signs, underscores and the digits of other scripts, which `_user` refuses. All cells
    # are joined for one test.
    if not _DIGITS.issuperset("".join(cells)):
        raise ValueError("digits")
    entries = np.array(list(map(int, cells)), np.int64)
    if users is not None and (entries >= users).any():
        raise ValueError("users")
    return entries


def _user(cells: Cells, users: int | None) -> int:
    """Return the user of a line."""
    user = cells["user"].strip()
    if not re.fullmatch("[0-9]{1,18}", user):
        raise Wrong("user", f"must be a whole number, not {show(user)}")
    if users is not None and int(user) >= users:
        raise Wrong("user", f"user={user} does not exist: {numbered(users)}")
    return int(user)


def _wrong(
    file: str, may_be_empty: bool, period_s: float | None, columns: Columns, lines: Sequence[int]
) -> Iterator[tuple[int, str, str]]:
    """Yield each problem of a file's intervals, a line's first one only."""
    user, begin, end = (columns[name] for name in COLUMNS)
    if PERIOD in columns and period_s is not None and user.size:
        raise refusal(
            file, 1, f"the column {PERIOD} and the scenario's {PERIOD}={period_s:g}: leave one of them out"
        )
    period = columns.get(PERIOD, np.full(user.size, period_s or np.inf))
    # First each line by itself. A line with a problem takes no part in a later check, so it has one message.
    allowed = (begin == end) & may_be_empty
    backward = (end <= begin) & ~allowed
    # Ends that differ as floats may be one nanosecond, the unit of `Intervals`.
    short = (np.round(begin * NS) == np.round(end * NS)) & ~allowed & ~backward
    for wrong, bound in ((backward, "above"), (short, "a nanosecond above")):
        for row in np.flatnonzero(wrong).tolist():
            yield row, "to_s", f"must be {bound} from_s={begin[row]:.15g}, not {end[row]:.15g}"
    # Then each line beside the first right line of its user, which sets the period.
    rows = np.flatnonzero(~backward & ~short)
    first = rows[first_of_group(user[rows])]
    other = period[rows] != period[first]
    for row, earlier in zip(rows[other], first[other], strict=True):
        as_before = f"{period[earlier]:.15g} as in line {lines[earlier]}"
        yield row, PERIOD, f"must be {as_before}, not {period[row]:.15g}"
    beyond = ~other & (end[rows] > period[rows])
    for row in rows[beyond]:
        yield row, "to_s", f"must be at most {PERIOD}={period[row]:.15g}, not {end[row]:.15g}"
    # At last the lines of a user beside each other. `lexsort` sorts by its last key first: by user, begin,
    # end.
    rows = rows[~other & ~beyond & (begin < end)[rows]]
    order = rows[np.lexsort((end[rows], begin[rows], user[rows]))]
    # If any two intervals of a user overlap, two neighbours in this order do. So the loop runs for wrong
    # files only.
    if (begin[order][1:] < end[order][:-1])[user[order][1:] == user[order][:-1]].any():
        yield from _overlaps(user, begin, end, order, lines)


def _overlaps(
    user: Column, begin: Column, end: Column, order: Column, lines: Sequence[int]
) -> Iterator[tuple[int, str, str]]:
    """Yield each interval that begins before an earlier one of its user ends, for rows in order of time."""
    latest = order[0]
    for row in order[1:]:
        if user[row] == user[latest] and begin[row] < end[latest]:
            first, second = sorted((latest, row), key=lambda row: lines[row])
            online = f"user {user[row]} is online from {begin[first]:.15g} to {end[first]:.15g}"
            yield second, "", f"{online} already, by line {lines[first]}"
        # The latest end, and not the latest begin: an interval within another does not end that other.
        if user[row] != user[latest] or end[row] > end[latest]:
            latest = row


def numbered(users: int) -> str:
    """Return the numbers of a run's users, for messages."""
    return f"users are 0 to {users - 1}" if users > 1 else "the only user is 0"
