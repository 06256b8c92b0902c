"""Reports of users when a run is over: their rows, and facts of their devices.

The server cannot check a report. So its size is bounded, and its numbers are bounded by the length of the
run. A report beyond a bound is refused, and its user counts as silent.
"""

from collections import Counter

from simfl.live.control import Done
from simfl.live.wire import Malformed
from simfl.trace import rows
from simfl.trace.rows import Row
from simfl.virtual_time import NS

REPORT_S = 20.0
"""Seconds within which all users must report; the run ends without the other reports."""
REPORT_BYTES = 2**26
"""Maximum size of a user's report, in characters of its rows."""
CLOCK_NS = 10 * 365 * 86_400 * NS
"""Maximum difference of two machines' clocks, which count from their starts."""
WORK_FACTOR = 4
"""Maximum step time of a user, as a multiple of the run's time: two lanes, and steps that began late."""
SLACK_NS = 10 * NS
"""Maximum time by which a row may seem later than the report, as the clocks differ."""


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
        """Add rows of a user.

        Raises:
            Malformed: Its report has ended, the text is empty, or the report is too long.
        """
        if user in self.done:
            raise Malformed("a report that was not requested")
        # An empty text adds nothing to the size, so such frames could be held without bound
        # (test_user_reports.py: test_report_sizes_are_bounded_and_cost_no_sum).
        if not lines:
            raise Malformed("a report of no rows")
        # A running sum: adding up all pieces for each frame would take quadratic time.
        self._sizes[user] += len(lines)
        if self._sizes[user] > REPORT_BYTES:
            raise Malformed(f"a report of more than {REPORT_BYTES} characters")
        self.lines.setdefault(user, []).append(lines)

    def end(self, user: int, done: Done, run_ns: int, wait_ns: int) -> None:
        """End a user's report.

        Args:
            user: Its number.
            done: Its facts.
            run_ns: Nanoseconds since the run began.
            wait_ns: Nanoseconds for which users may have compared clocks before that.

        Raises:
            Malformed: Its report has ended already, or a time is impossible.
        """
        if user in self.done:
            raise Malformed("a report that was not requested")
        # The bounds follow from the run's length, so a false report changes a figure by a bounded amount
        # only.
        for name, value, limit in (
            ("step time", done.steps_ns, WORK_FACTOR * run_ns),
            ("late time", done.late_ns, WORK_FACTOR * run_ns),
            ("one step's work", done.held_ns, run_ns),
            ("clock offset", abs(done.offset_ns), CLOCK_NS),
            ("clock gain", abs(done.ahead_ns), run_ns),
            ("clock error", done.off_ns, run_ns + wait_ns),
        ):
            if value > limit:
                bound = f"must be at most {limit / NS:.3g} s"
                raise Malformed(f"a report of {value / NS:.3g} s of {name}: {bound}")
        self.done[user] = done


def is_possible(row: Row, user: int, rounds: int, until_ns: int, max_frame_bytes: int) -> bool:
    """Return True for a row that a user can have written, with a time and a size that its run allows.

    Args:
        row: The row.
        user: The user that reports it.
        rounds: Rounds of the run.
        until_ns: The server's time as the report was complete.
        max_frame_bytes: Maximum size of a message.
    """
    latest_ns = until_ns + SLACK_NS
    match row:
        case rows.Step():
            return row.party == user and row.round < rounds and row.end <= latest_ns
        case rows.Ignored() | rows.Refused():
            return row.party == user and row.round < rounds and row.at <= latest_ns
        case rows.Sent():
            # The receiver writes the row of a message that arrived, the sender that of an aborted one.
            observer = row.sender if row.arrived is None else row.to
            times = row.sent <= latest_ns and (row.arrived or 0) <= latest_ns
            return user == observer and row.round < rounds and times and row.size <= max_frame_bytes
        case rows.Lost():
            return row.user == user and row.round < rounds and row.at <= latest_ns
        case rows.Presence():
            return row.user == user and row.at <= latest_ns
        case _:
            # All other rows are the server's: a user cannot report an aggregate or the end of a round.
            return False
