"""Neighbours with the same data, such as users who photograph the same street (replicated non-IID data)."""

import numpy as np
from pydantic import Field

from simfl.learning.partition import Partition


class Twins(Partition):
    """Samples sorted by label and cut among groups of `group` users, each of whom has all of its group's."""

    group: int = Field(2, ge=1)

    def deal(self, split, users, rng):
        groups = -(-users // self.group)
        if groups > len(split.y_train):
            raise ValueError(f"{groups} groups are more than the {len(split.y_train)} samples")
        cut = np.array_split(np.argsort(split.y_train, kind="stable"), groups)
        return [cut[user // self.group] for user in range(users)]
