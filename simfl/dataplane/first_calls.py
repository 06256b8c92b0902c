"""First calls: imports, compilations and memory of kernels, done before anything is timed."""

import ctypes

from simfl.crypto.short_loops import import_compiled


def prepare_process() -> None:
    """Import and compile every loop, and let freed memory stay in the process."""
    import_compiled()
    _retain_freed_memory()


def _retain_freed_memory() -> None:
    """Let glibc give freed memory to the next step, and not back to the system: each page that a step is the
    first to touch costs it a fault, which made LightSecAgg's first coding a third longer."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # numbers and bounds are those of mallopt(3)
        m_trim_threshold, m_mmap_threshold = -1, -3
        mallopt(m_trim_threshold, 2**31 - 1)
        mallopt(m_mmap_threshold, 2**25)
