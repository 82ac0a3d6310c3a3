"""How a process keeps memory that is free again, where its C library is glibc; and how often Python looks for
what refers to itself.

What is made of one piece is freed, and asked for again for the next. By itself glibc gives it back to the
system each time, and gets it page by page: a quarter of the time of a roll-up. And threads that have heaps
of their own each keep what was freed there: a third of the memory of an archive run.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys

_MB = 1 << 20
#: Options as glibc's malloc.h has them, by their names in the environment, and what they are set to. Those of
#: one line mean something together alone: who sets one of them has set all.
OPTIONS = (
    {"MALLOC_ARENA_MAX": (-8, 1)},
    # More is kept than a run takes; larger blocks than 32 MB, the most that glibc knows, are not.
    {"MALLOC_TRIM_THRESHOLD_": (-1, 512 * _MB), "MALLOC_MMAP_THRESHOLD_": (-3, 32 * _MB)},
)


def keep() -> None:
    """Makes the C library keep freed memory, for the whole process. Settings in the environment come
    first."""
    libc = _glibc()
    if libc is None or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return
    for options in OPTIONS:
        if not options.keys() & os.environ.keys():
            for option, value in options.values():
                libc.mallopt(option, value)


def freeze() -> None:
    """Takes all objects that exist by now out of garbage collection. Nothing large that a run makes refers to
    itself. Python would look for such after every 700 objects, which costs some percent of the time where
    buckets are irregular, and stops all threads."""
    gc.freeze()
    gc.set_threshold(10_000)


def give_back() -> None:
    """Collects garbage, and gives free memory back to the system: for a process that is idle for some
    time."""
    gc.collect()
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None  # musl's has neither
