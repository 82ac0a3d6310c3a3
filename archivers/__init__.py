"""Archives: export, verify, commit, guarded delete; restore, verify and audit."""

import ctypes
import os
import sys

#: Arrow's other allocators keep what they have once had, where numpy can't use it: a fifth of a run's memory.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

_M_ARENA_MAX = -8  # as glibc's malloc.h has it
#: Where threads have heaps of their own, each keeps what was freed there: a third of a run's memory.
if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
    if hasattr(libc := ctypes.CDLL(None), "mallopt"):  # musl's has none
        libc.mallopt(_M_ARENA_MAX, 1)
