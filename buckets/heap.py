"""How a process keeps freed memory, where its C library is glibc; and how often Python collects garbage.

Memory of one piece of work is freed, and needed again for the next. By default glibc gives it back to the
system each time, and gets it again page by page: a quarter of the time of a roll-up. And threads with heaps
of their own each keep what was freed there: a third of the memory of an archive run.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys

_MB = 1 << 20
#: Options of glibc's malloc.h, by their names in the environment, and what they are set to. Those of one line
#: only make sense together: if the environment sets one of them, all are left alone.
OPTIONS = (
    {"MALLOC_ARENA_MAX": (-8, 1)},
    # More is kept than a run takes, except blocks larger than 32 MB, which is glibc's maximum.
    {"MALLOC_TRIM_THRESHOLD_": (-1, 512 * _MB), "MALLOC_MMAP_THRESHOLD_": (-3, 32 * _MB)},
)


def keep_freed_memory() -> None:
    """Makes the C library keep freed memory, for the whole process. Settings in the environment come
    first."""
    libc = _glibc()
    if libc is None or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return
    for options in OPTIONS:
        if not options.keys() & os.environ.keys():
            for option, value in options.values():
                libc.mallopt(option, value)


def freeze_objects() -> None:
    """Excludes all existing objects from garbage collection. No large object of a run refers to itself,
    yet Python would search for such cycles after every 700 new objects. That takes some percent of the
    time if buckets are irregular, and stops all threads."""
    gc.freeze()
    gc.set_threshold(10_000)


def release_memory() -> None:
    """Collects garbage and returns free memory to the system. For a process that will be idle for a while."""
    gc.collect()
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None  # musl's has neither
