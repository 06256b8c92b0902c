"""Selection with a rest: uniform among those who sat out the last rounds (compare pace steering, Bonawitz et
al. 2019, section 2.3)."""

import numpy as np
from pydantic import Field

from simfl.world.selection import Selection


class Rested(Selection):
    """`users` of the available who took part in none of the last `rest_rounds` rounds."""

    users: int = Field(ge=1)
    rest_rounds: int = Field(1, ge=1)

    def select(self, available, history, rng):
        fresh = np.setdiff1d(available, np.concatenate([[], *history.rows[-self.rest_rounds :]]))
        return rng.choice(fresh, self.users, replace=False) if fresh.size >= self.users else None

    def cohort(self, users):
        return self.users
