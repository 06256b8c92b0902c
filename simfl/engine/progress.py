"""Detection of runs that get nowhere: a count of failures since the last progress.

A run gets further when its server takes an upload, and when a round or an aggregation is over. Coming and
going alone could last for ever, in however little virtual time, so events are counted and not time: users may
come for nanoseconds or stay away for nights.
"""

from collections import Counter

from simfl.trace import rows
from simfl.virtual_time import NS

MAX_RETURNS = 1000  # returns of each user, on average, before a run that got no further meanwhile is stopped
FEW_USERS, MAX_FAILED = 10, 10
"""Lost updates and messages that broke off, since a buffer last got an update, before a run is stopped:
at most `MAX_RETURNS` for each of `FEW_USERS` users, or `MAX_FAILED` for each user if that is more."""
BREAKS_PER_RETURN = 50  # so many messages that break off, and are sent again, count as one more return
STAYS_PER_RETURN = 20
"""Looks at users who stay as they are, online or offline, that count as one more return."""
MAX_LATE = 10  # updates given up though their users stayed, for each user, before a run is stopped


class StallDetector:
    """Failures of a run since it last got further."""

    __slots__ = ("broken", "failed", "late", "returns", "since", "stays", "trace", "users")

    def __init__(self, users: int, trace: rows.Trace) -> None:
        self.users = users
        self.trace = trace
        self.reset()

    def reset(self) -> None:
        self.returns = self.stays = self.broken = self.late = self.failed = 0
        self.since = len(self.trace)

    @property
    def all_return(self) -> bool:
        """True once users have come back, or were found where they were, too often."""
        returns = self.returns + self.broken / BREAKS_PER_RETURN + self.stays / STAYS_PER_RETURN
        return returns > MAX_RETURNS * self.users

    @property
    def all_failed(self) -> bool:
        """True once too many attempts of a buffer's users failed."""
        limit = max(MAX_RETURNS * min(self.users, FEW_USERS), MAX_FAILED * self.users)
        return self.failed > 0 and self.failed + self.broken > limit

    @property
    def all_late(self) -> bool:
        """True once too many updates were given up though their users stayed."""
        return self.late > MAX_LATE * self.users

    def describe(self) -> str:
        """Describe how users came and went, and how they were lost."""
        came, stays, losses = dict[int, int](), list[int](), Counter[str]()
        for row in self.trace[self.since :]:
            match row:
                case rows.Presence(user=user, online=True, at=at):
                    came[user] = at
                case rows.Presence(user=user, at=at) if user in came:
                    stays.append(at - came.pop(user))
                case rows.Lost(why=why):
                    losses[why] += 1
        online_s = sum(stays) / max(1, len(stays)) / NS
        broken = [f"{self.broken} messages broke off"] if self.broken else []
        lost = [f"{why}: {count}" for why, count in losses.most_common()]
        return ", ".join([
            f"users came online {self.returns} times, for {online_s:.3g} s on average",
            *broken,
            *([f"users were lost ({', '.join(lost)})"] if lost else []),
        ])  # fmt: skip
