"""Reports of users when a run is over: the rows that they noted, and facts of their devices.

All of it is a user's own word, which the server cannot check. So each report is bounded: its size, and its
numbers by the length of the run. A report beyond a bound is refused, and its user counts as silent.
"""

from collections import Counter

from simfl.live.wire import Done, Malformed
from simfl.trace import rows
from simfl.trace.rows import Row
from simfl.virtual_time import NS

REPORT_S = 20.0
"""Until when all users must have reported; the run ends without the reports of the others."""
REPORT_BYTES = 2**26
"""The longest report of a user, in characters of its rows."""
CLOCK_NS = 10 * 365 * 86_400 * NS
"""The most that two machines' clocks, which count from their starts, may be apart."""
WORK_FACTOR = 4
"""The most step time of a user, as a multiple of the run's time: its two lanes, and steps begun late."""
SLACK_NS = 10 * NS
"""The most by which a row may seem to be later than the report, as the user's clock is not the server's."""


class UserReports:
    """The reports so far.

    Attributes:
        lines: Rows by user, as text.
        done: The facts that end each user's report.
    """

    def __init__(self) -> None:
        self.lines: dict[int, list[str]] = {}
        self.done: dict[int, Done] = {}
        self._sizes: Counter[int] = Counter()

    def add(self, user: int, lines: str) -> None:
        """Take rows of a user. Malformed after its report's end, for no rows, and beyond its length."""
        if user in self.done:
            raise Malformed("a report that is not asked for")
        if not lines:
            raise Malformed("a report of no rows")
        self._sizes[user] += len(lines)
        if self._sizes[user] > REPORT_BYTES:
            raise Malformed(f"a report of more than {REPORT_BYTES} characters")
        self.lines.setdefault(user, []).append(lines)

    def end(self, user: int, done: Done, run_ns: int, wait_ns: int) -> None:
        """Take the end of a user's report. Malformed for a second one, and for times that cannot be.

        Args:
            user: Its number.
            done: Its facts.
            run_ns: Nanoseconds since the run began.
            wait_ns: Nanoseconds for which users may have compared clocks before that.
        """
        if user in self.done:
            raise Malformed("a report that is not asked for")
        for name, value, most in (
            ("step time", done.steps_ns, WORK_FACTOR * run_ns),
            ("late time", done.late_ns, WORK_FACTOR * run_ns),
            ("one step's work", done.held_ns, run_ns),
            ("clock offset", abs(done.offset_ns), CLOCK_NS),
            ("clock gain", abs(done.ahead_ns), run_ns),
            ("clock error", done.off_ns, run_ns + wait_ns),
        ):
            if value > most:
                raise Malformed(f"a report of {value / NS:.3g} s of {name}, at most {most / NS:.3g} s can be")
        self.done[user] = done


def is_possible(row: Row, user: int, rounds: int, until_ns: int, most_bytes: int) -> bool:
    """Return True for a row that a user can know of, at a time and of a size that can be in its run.

    Args:
        row: The row.
        user: The user that reports it.
        rounds: Those of the run.
        until_ns: The server's time when the report was there.
        most_bytes: The longest message.
    """
    latest_ns = until_ns + SLACK_NS
    match row:
        case rows.Step():
            return row.party == user and row.round < rounds and row.end <= latest_ns
        case rows.Ignored() | rows.Refused():
            return row.party == user and row.round < rounds and row.at <= latest_ns
        case rows.Sent():
            observer = row.sender if row.arrived is None else row.to
            times = row.sent <= latest_ns and (row.arrived or 0) <= latest_ns
            return user == observer and row.round < rounds and times and row.size <= most_bytes
        case rows.Lost():
            return row.user == user and row.round < rounds and row.at <= latest_ns
        case rows.Presence():
            return row.user == user and row.at <= latest_ns
        case _:
            return False
