"""One thread for every library: two pools on the same cores are slower than one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def one_thread(training: bool = True) -> Iterator[None]:
    """Torch, BLAS and OpenMP use one thread inside. training: whether torch is going to be used; it is
    imported then, as limits reach only what is there."""
    if not training:
        with threadpool_limits(1):
            yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)
