"""An update held within a bound before it leaves the user: in its length, or coordinate by coordinate.

This is a rule of the training (gradient clipping; McMahan et al. 2018, "Learning Differentially Private
Recurrent Language Models"), not the clipping of `simfl.crypto.quantize`, which keeps the field
from wrapping around.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Kind = Literal["norm", "value"]


def clip_update(delta: F32, kind: Kind, bound: float) -> F32:
    """An update delta [1, d] within the bound, [1, d] float32.

    norm: delta min(1, bound / ||delta||_2), computed in float64 and rounded once. value: each coordinate is
    brought into [-bound, bound]. What is within the bound is returned bit for bit. ValueError if a
    coordinate is not finite, unless bound > 0, or if the kind is another.
    """
    if not count_clipped(delta, kind, bound):
        return delta
    if kind == "norm":
        return (delta.astype(np.float64) * (bound / _length(delta))).astype(np.float32)
    most = _rounded_down(bound)
    return np.clip(delta, -most, most)


def count_clipped(delta: F32, kind: Kind, bound: float) -> bool:
    """Whether `clip_update` changes an update delta [1, d]: summed over a round's users, how many it changed.

    ValueError as there.
    """
    if not bound > 0:
        raise ValueError(f"the bound {bound} on an update's {kind} must be above 0")
    finite = np.isfinite(delta)
    if not finite.all():
        bad = int(np.flatnonzero(~finite)[0])
        raise ValueError(f"coordinate {bad} of the update is {delta.reshape(-1)[bad]}: not finite")
    match kind:
        case "norm":
            return _length(delta) > bound
        case "value":
            return bool((np.abs(delta) > _rounded_down(bound)).any())
    raise ValueError(f"an update is clipped by norm or value, not by {kind}")


def _length(delta: F32) -> float:
    """||delta||_2 in float64, where no square of a float32 is lost."""
    return float(np.linalg.norm(delta.astype(np.float64)))


def _rounded_down(bound: float) -> np.float32:
    """The largest float32 that is not above the bound."""
    nearest = np.float32(min(bound, float(np.finfo(np.float32).max)))
    return nearest if float(nearest) <= bound else np.nextafter(nearest, np.float32(0))
