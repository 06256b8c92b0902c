"""One thread for every library: two pools on the same cores are slower than one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def one_thread(training: bool = True) -> Iterator[None]:
    """Hold torch, BLAS and OpenMP to one thread. training: torch is going to be used; it is imported first,
    as limits reach only what is there."""
    if training:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        if training:
            torch.set_num_threads(threads)
