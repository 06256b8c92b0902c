"""Pure functions over arrays, and the types of the arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

A8 = NDArray[np.uint8]
A32 = NDArray[np.uint32]
A64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
