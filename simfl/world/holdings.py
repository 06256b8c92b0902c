"""Shares of users by the samples that they hold, after FLGo's modes of availability."""

from typing import Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from simfl.config.blocks import Draws

Share = Literal["more_data", "less_data", "least_label", "labels"]


def shares(by: Share, held: NDArray[np.int64]) -> Draws:
    """Return each user's share, 0 to 1, by the samples of each label that it holds, [users, labels].

    >>> shares("labels", np.array([[3, 0], [1, 1], [0, 0]])).tolist()
    [0.5, 1.0, 0.0]
    """
    amount, labels = held.sum(axis=1), held.shape[1]
    some = np.maximum(amount, 1)
    match by:
        case "more_data":
            found = amount / some.max(initial=1)
        case "less_data":
            found = some[amount > 0].min(initial=some.max(initial=1)) / some
        case "least_label":
            found = (held > 0).argmax(axis=1) / max(1, labels - 1)
        case "labels":
            found = (held > 0).sum(axis=1) / labels
        case _:
            assert_never(by)
    return np.where(amount > 0, found, 0.0)
