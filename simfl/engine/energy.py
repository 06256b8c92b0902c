"""Energy, booked as it is drawn: microwatts x nanoseconds, in whole femtojoules, so nothing is rounded away.

    cpu      while a step holds a core, also one that is broken off; by the phases of its segments
    up, down for each byte, when its transfer is over or breaks off; by the phase of the message
    active   from the first bit of a transfer to its last one on the user's own link, either way: the latency
             is not the radio's; of two at once by the phase of the one that began first
    tail     after the last of them, for `tail_s` or until the next; by the phase of the last one
    idle     in the rest of a user's part, by the phase of its last message: of a round from its begin to its
             end, of a cycle until the server has dealt with its upload or gives it up; never once it is lost

Energy drawn until a round ends is of that round, whichever round the work is for: a late user's work is
paid for while it is done. Aggregations overlap, so there a user's energy is of the one that is next when its
cycle is over: a row a cycle, where a row for each aggregation that a cycle overlaps would be many.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simfl.engine.battery import Batteries, Battery
from simfl.engine.devices import Job
from simfl.engine.links import Network, Transmission
from simfl.trace.rows import SERVER, Spent
from simfl.world.energy import Powers

if TYPE_CHECKING:
    from simfl.engine.user_side import UserSide


@dataclass(slots=True, eq=False)
class Account:
    """The energy of one party: `spent` since its last row, by (phase, source), up to the time `then`.

    Attributes:
        jobs: Steps that hold its cores.
        moving: Phases of the transfers on its link, as they began.
        phase: Phase of the latest message of its task.
        taking_part: True in a round or a cycle.
        due: True once it has left a round or a cycle whose energy no row reports yet.
    """

    powers: Powers
    then: int
    phase: str
    battery: Battery | None = None
    jobs: list[Job] = field(default_factory=list)
    moving: list[str] = field(default_factory=list)
    taking_part: bool = False
    due: bool = False
    tail_until: int = 0
    tail_phase: str = ""
    spent: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def at_work(self) -> bool:
        """True while a part or a transfer or a step is in progress."""
        return bool(self.taking_part or self.jobs or self.moving)

    def radio(self) -> tuple[int, str, str]:
        """Return the radio's power from `then` on, with its source and its phase."""
        if self.moving:
            return self.powers.active, "active", self.moving[0]
        if self.then < self.tail_until:
            return self.powers.tail, "tail", self.tail_phase
        return self.powers.idle if self.taking_part else 0, "idle", self.phase

    def power(self) -> int:
        """Return the power that the device draws from `then` on."""
        return self.powers.cpu * len(self.jobs) + self.radio()[0]

    def advance(self, now: int) -> None:
        """Book what was drawn up to now."""
        while self.then < now:
            until = min(now, self.tail_until) if self.then < self.tail_until else now
            if self.battery is None:
                self._book(until)
                continue
            on, until = self.battery.on, self.battery.step(self.then, until, self.power())
            if on:
                self._book(until)
                if not self.battery.on:
                    self.tail_until = until
            self.then = until

    def _book(self, until: int) -> None:
        """Book a stretch in which the power is the same."""
        for job in self.jobs:
            at = job.start
            for phase, ns in job.spans:
                self.add(phase, "cpu", self.powers.cpu * (min(until, at + ns) - max(self.then, at)))
                at += ns
        power, source, phase = self.radio()
        self.add(phase, source, power * (until - self.then))
        self.then = until

    def add(self, phase: str, source: str, fj: int) -> None:
        if fj > 0:
            self.spent[phase, source] = self.spent.get((phase, source), 0) + fj

    def begin_transfer(self, phase: str) -> None:
        self.moving.append(phase)
        self.phase = phase

    def end_transfer(self, phase: str, up: bool, moved_bytes: int) -> None:
        self.moving.remove(phase)
        self.phase = phase
        rate, source = (self.powers.up, "up") if up else (self.powers.down, "down")
        fj = rate * moved_bytes
        self.add(phase, source, fj if self.battery is None else self.battery.pay(fj))
        if not self.moving:
            self.tail_until, self.tail_phase = self.then + self.powers.tail_ns, phase


class Meter:
    """The accounts of a session's parties; the session, its devices and links call it."""

    def __init__(self, users: UserSide, network: Network) -> None:
        self.runtime, self.config, self.env = users.runtime, users.config, users.env
        self._accounts: dict[int, Account | None] = {}
        self._open: dict[int, Account] = {}  # those that have something to book, or will
        self._taking_part: dict[int, Account] = {}
        self.batteries = Batteries(users, self.account) if self.config.batteries else None
        if self.batteries is not None:
            users.presence.powered = self.batteries.state_of
        network.radio = self.radio

    def account(self, party: int) -> Account | None:
        """Return the account of a party, up to now; None if its energy is not counted."""
        if party not in self._accounts:
            powers = self._powers(party)
            made = None if powers is None else Account(powers, 0, self.runtime.setup.first_phase)
            if made is not None and made.powers.store is not None:
                made.battery = Battery(made.powers.store, party)
            self._accounts[party] = made
        account = self._accounts[party]
        if account is not None:
            account.advance(self.env.now)
        return account

    def _opened(self, party: int) -> Account | None:
        """Return an account that is going to change."""
        account = self.account(party)
        if account is not None:
            self._open[party] = account
        return account

    def _changed(self, party: int, account: Account) -> None:
        """Book a change of the power of a party's device."""
        if self.batteries is not None:
            self.batteries.follow(party, account)

    def _powers(self, party: int) -> Powers | None:
        config = self.config
        if party == SERVER:
            return config.server_powers
        return None if config.energy_of is None else config.energy_of(party)

    # -- changes of power
    def began(self, party: int, job: Job) -> None:
        """A step begins that takes time."""
        if (account := self._opened(party)) is not None:
            account.jobs.append(job)
            self._changed(party, account)

    def stopped(self, party: int, job: Job) -> None:
        """A step is over, or broken off."""
        account = self._accounts.get(party)
        if account is not None and job in account.jobs:  # it is not if it took no time
            account.advance(self.env.now)
            account.jobs.remove(job)
            self._changed(party, account)

    def radio(self, user: int, up: bool, transfer: object, moved_bytes: int | None) -> None:
        """A transfer begins to move on a user's link (None), or moves no more and has moved so much."""
        assert isinstance(transfer, Transmission)
        if (account := self._opened(user)) is None:
            return
        phase = transfer.message.phase
        if moved_bytes is None:
            account.begin_transfer(phase)
        else:
            account.end_transfer(phase, up, moved_bytes)
        self._changed(user, account)

    def join(self, user: int) -> None:
        """Begin a user's part in a round or a cycle."""
        if (account := self._opened(user)) is not None:
            account.taking_part, account.phase = True, self.runtime.setup.first_phase
            self._taking_part[user] = account
            self._changed(user, account)

    def leave(self, user: int) -> None:
        """End a user's part, if it has one."""
        if (account := self._taking_part.pop(user, None)) is not None:
            account.advance(self.env.now)
            account.taking_part, account.due = False, True
            self._changed(user, account)

    # -- rows
    def report(self, index: int, overlap: bool = False) -> None:
        """Put into the trace what was drawn since the last report, as of this round. overlap: later for those
        whose part goes on."""
        now = self.env.now
        for party, account in sorted(self._open.items()):
            if overlap and account.at_work and not account.due:
                continue
            account.advance(now)
            if account.spent:
                amounts = tuple((*key, fj) for key, fj in sorted(account.spent.items()))
                self.runtime.trace.add(Spent(index, party, now, amounts))
                account.spent = {}
            account.due = False
            if not account.at_work and account.tail_until <= now:
                del self._open[party]
