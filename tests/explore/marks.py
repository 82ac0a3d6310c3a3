"""A set of hashes in memory that processes share: the states that are known, eight bytes each."""

from __future__ import annotations

from mmap import mmap

_BITS = (1 << 64) - 1
#: Cells that are looked at for a hash. Only in a set that is nearly full it is not found by then.
_FAR = 1000
_SPREAD = 0x9E3779B97F4A7C15


class Marks:
    """A set of hashes. Whoever forks shares it: what one process adds, others find.

    Two that add at the same moment may overwrite each other; then what was overwritten is explored again.
    """

    def __init__(self, size: int) -> None:
        """`size`: the power of two of hashes that have room. Memory is taken as it fills."""
        self._last = (1 << size) - 1
        self._cells = memoryview(mmap(-1, 8 << size)).cast("Q")

    def add(self, mark: int) -> bool:
        """Adds a hash. Returns whether it is new."""
        mark = mark * _SPREAD & _BITS or 1
        at, cells, last = mark >> 20 & self._last, self._cells, self._last
        for _ in range(_FAR):
            if (found := cells[at]) == mark:
                return False
            if not found:
                cells[at] = mark
                return True
            at = (at + 1) & last
        raise MemoryError("there are more states than the set has room for")
