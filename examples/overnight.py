"""Phones that are charged overnight, and drained by their owners during the day."""

from pydantic import Field

from simfl.world.energy import BatteryStates


class Overnight(BatteryStates):
    """At a charger of `charger_w` for `night_s` of `day_s` seconds; by day its owner draws about `use_w`."""

    charger_w: float = Field(10.0, ge=0, le=100)
    night_s: float = Field(28_800.0, gt=0)
    day_s: float = Field(86_400.0, gt=0)
    use_w: float = Field(0.5, gt=0, le=10)

    def states(self, user, rng):
        yield rng.uniform(1e-3, self.day_s - self.night_s), 0.0, self.use_w
        while True:
            yield self.night_s, self.charger_w, 0.05
            yield self.day_s - self.night_s, 0.0, self.use_w * rng.uniform(0.5, 1.5)
