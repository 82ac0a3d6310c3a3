"""Finite numbers in runs, and runs in groups: the input of sums and bins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Numbers:
    """n values, at least one; r runs, none of them empty; groups 0 to g - 1, none of them without a run."""

    values: Doubles  # n
    starts: Integers  # r: where each run starts
    group: Integers  # r: of each run

    @classmethod
    def of(cls, values: Doubles, starts: Integers) -> Numbers:
        """Returns values of which each run is a group."""
        return cls(values, starts, np.arange(len(starts)))

    @cached_property
    def groups(self) -> int:
        """Returns how many groups there are."""
        return int(self.group.max()) + 1

    @cached_property
    def lengths(self) -> Integers:
        """Returns how many values each run has, (r,)."""
        return np.diff(self.starts, append=len(self.values))

    @cached_property
    def low(self) -> Doubles:
        """Returns the least value of each run, (r,)."""
        return np.minimum.reduceat(self.values, self.starts)

    @cached_property
    def high(self) -> Doubles:
        """Returns the greatest value of each run, (r,)."""
        return np.maximum.reduceat(self.values, self.starts)
