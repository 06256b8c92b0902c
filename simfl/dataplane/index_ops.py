"""The operations of random-k (`simfl.crypto.index_set`), a part of `Ops`."""

from abc import abstractmethod
from collections import Counter
from typing import Any

from simfl.crypto import A8, index_set
from simfl.dataplane.handles import F32, F64, Handle, Kernel, Shape
from simfl.dataplane.work import Ledger, expanding, over_vector


class IndexOps(Ledger):
    """The choice of coordinates by a public seed [1, 32], and their way back."""

    @abstractmethod
    def _op(self, kernel: Kernel, shape: Shape, work: dict[str, int], *args: Any) -> Handle: ...

    def select(self, delta: Handle, seed: A8, k: int) -> Handle:
        """Return the k chosen coordinates of an update 1 x d, 1 x k float32."""
        return self._op(index_set.select, (1, k, F32), choosing(delta.columns, k), delta, seed, k)

    def scatter(self, mean: Handle, seed: A8, d: int) -> Handle:
        """Return the vector of the chosen coordinates 1 x k, and of zeros elsewhere, 1 x d float64."""
        work = choosing(d, mean.columns)
        return self._op(index_set.scatter, (1, d, F64), work, mean, seed, d)


def choosing(d: int, k: int) -> dict[str, int]:
    """Return the work of choosing k of d coordinates by a seed, and of moving them."""
    # Numpy at every length, so its passes are counted in elements, as of short vectors.
    passes = Counter(vector=index_set.CALLS, short_element=index_set.PASSES * d + k)
    return passes + Counter(expanding(1, d) | over_vector(d, 3))
