"""Batteries: levels that follow from what is drawn and charged, and devices that run empty and come back.

Invariant: level = first level + charged - drawn - standby, for every user at any time, in whole femtojoules.
A battery runs empty at the last whole nanosecond that its level lasts, so what is left is less than the next
one needs. An amount for bytes that is more than the level is paid as far as the level goes. At capacity the
charger gives what is drawn and no more. An empty device draws nothing, and is charged alone.

Nobody follows the battery of a device that does nothing: it is gone through when somebody looks. While a
device takes part, works or communicates, and from when it ran empty doing so until it is back, each turn of
its battery is an event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simfl.engine.life import Life, Waits
from simfl.engine.presence import BATTERY
from simfl.virtual_time import NS
from simfl.world.availability import FOR_EVER, State
from simfl.world.energy import Store

if TYPE_CHECKING:
    from simfl.engine.energy import Account
    from simfl.engine.user_side import UserSide


@dataclass(slots=True, eq=False)
class Battery:
    """The battery of one user."""

    store: Store
    user: int
    level: int = field(init=False)
    """Femtojoules."""
    on: bool = True
    """False from when it runs empty until it is back."""
    charged: int = 0
    """Femtojoules charged so far."""
    standby: int = 0
    """Femtojoules drawn by the device's standby power so far."""
    life: Life | None = None
    """While it is followed."""
    turns_at: int | None = None
    """The time of its next turn; None while its life does not wait for one."""

    def __post_init__(self) -> None:
        self.level = self.store.start(self.user)

    def _flow(self, now: int, draws: int) -> tuple[int, int, int, int]:
        """Return the power in, the power out and its part for standby, and the time up to which they stay."""
        (charger, base), until = self.store.flow(self.user, now)
        return charger, (draws + base) * self.on, base * self.on, until

    def _lasts(self, gain: int, drain: int) -> int:
        """Return the nanoseconds until it runs empty, rounded down, or until it is back, rounded up."""
        if self.on:
            return self.level // (drain - gain) if drain > gain else FOR_EVER
        return -(-max(1, self.store.back - self.level) // gain) if gain else FOR_EVER

    def turns(self, now: int, draws: int) -> int:
        """Return the time up to which its state is certain, if the device draws the same power."""
        gain, drain, _, until = self._flow(now, draws)
        return min(until, now + self._lasts(gain, drain))

    def wakes(self, now: int, draws: int) -> int:
        """Return a time up to which it surely stays as it is, found without the charger if it is on and that
        is far."""
        if self.on:
            lasts = self._lasts(0, draws + self.store.base)
            return now + lasts if lasts > NS else self.turns(now, draws)
        return max(now + self._lasts(self.store.charger, 0), self.turns(now, draws))  # never, without one

    def step(self, then: int, until: int, draws: int) -> int:
        """Go on from `then`, up to `until` or to where the power or the state changes; return that time."""
        gain, drain, standby, change = self._flow(then, draws)
        until, turns = min(until, change), then + self._lasts(gain, drain)
        # One that lasts until then has turned at the next look only, when what is drawn then is known.
        over = turns < until if self.on else turns <= until
        ns = (turns if over else until) - then
        level = min(self.store.capacity, self.level + (gain - drain) * ns)
        self.charged += level - self.level + drain * ns
        self.standby += standby * ns
        self.level = level
        self.on ^= over
        return then + ns

    def pay(self, fj: int) -> int:
        """Take an amount at once, or what is left of the level: then it is empty. Return what was paid."""
        paid = min(fj, self.level)
        self.level -= paid
        self.on &= paid == fj
        return paid

    def starves(self, now: int, draws: int) -> bool:
        """Return True for a level that does not last one more nanosecond."""
        return self.on and self.turns(now, draws) == now


class Batteries:
    """Turns devices off and on by their batteries.

    Args:
        users: The users' side.
        account: Returns the account of a user, up to now, if it has one.
    """

    def __init__(self, users: UserSide, account: Callable[[int], Account | None]) -> None:
        self.users = users
        self.env = users.env
        self._account = account
        self._empty: set[int] = set()  # whose devices were turned off

    def state_of(self, user: int) -> State:
        """Return True while a user's battery is not empty, and the time up to which that is certain."""
        account = self._account(user)
        if account is None or account.battery is None:
            return True, FOR_EVER
        return account.battery.on, account.battery.wakes(self.env.now, account.power())

    def levels(self) -> NDArray[np.float64]:
        """Return each user's level as a fraction of its capacity, 1 where there is no battery."""
        levels = np.ones(self.users.config.users)
        for user in range(levels.size):
            account = self._account(user)
            if account is not None and (battery := account.battery) is not None:
                levels[user] = battery.level / battery.store.capacity
        return levels

    def turn_off(self, user: int) -> None:
        """Turn off a device that has run empty while it was not followed, and follow it until it is back."""
        account = self._account(user)
        assert account is not None
        self._switch(user, account, on=False)
        self.follow(user, account)

    def follow(self, user: int, account: Account) -> None:
        """Set the next event of a battery, after a change of what its device draws."""
        battery, now = account.battery, self.env.now
        if battery is None or not (account.at_work or user in self._empty):
            return
        at = now
        if battery.on != (user in self._empty):  # otherwise it has turned before somebody followed it
            at = battery.wakes(now, account.power())
        if at >= FOR_EVER or (battery.turns_at is not None and battery.turns_at <= at):
            return
        sleeps, battery.turns_at = battery.turns_at is not None, at
        if battery.life is None:
            battery.life = Life(self.env, self._live(user, account, battery), at_once=True)
        elif sleeps:
            battery.life.wake(True)  # to sleep for less

    def _live(self, user: int, account: Account, battery: Battery) -> Waits:
        """Turn a device off and on as its battery runs empty and is charged, as long as it is followed."""
        while battery.turns_at is not None:
            if (yield battery.turns_at - self.env.now):
                continue
            battery.turns_at = None
            account.advance(self.env.now)
            if account.at_work or user in self._empty:
                if battery.starves(self.env.now, account.power()):
                    battery.on = False
                if battery.on == (user in self._empty):
                    self._switch(user, account, battery.on)
                self.follow(user, account)
        battery.life = None

    def _switch(self, user: int, account: Account, on: bool) -> None:
        presence, device = self.users.presence, self.users.device(user)
        if on:
            self._empty.discard(user)
            device.power(on)
            presence.on_recharged(user)
        else:
            self._empty.add(user)
            account.tail_until = account.then
            presence.add_reason(user, BATTERY)  # first, as the loss names the training that it breaks off
            device.power(on)
