"""Phones that take part only while they charge at night (compare Bonawitz et al. 2019, section 3)."""

from pydantic import Field

from simfl.world.availability import UserStates


class Charging(UserStates):
    """Plugged in for `plugged_s` of about `day_s` seconds, at an hour of the user's own."""

    plugged_s: float = Field(28_800.0, gt=0)
    day_s: float = Field(86_400.0, gt=0)
    sigma_s: float = Field(1_800.0, ge=0)

    def states(self, user, rng):
        yield rng.uniform(1e-9, self.day_s - self.plugged_s), False
        while True:
            yield self.plugged_s, True
            yield max(1.0, rng.normal(self.day_s - self.plugged_s, self.sigma_s)), False
