"""Are values noisy, so that an average hides much of them?"""

from __future__ import annotations

import numpy as np

from buckets.columns import Columns, Kind

#: Readings that are needed to tell.
_FEWEST = 30
#: Mean square of the steps from one reading to the next, as a part of the variance: 2 for white noise, nearly
#: 0 for what changes slowly.
_NOISY = 0.2
#: Fraction of the mean from which on a deviation matters.
_LEAST = 0.01


def is_noisy(columns: Columns) -> bool:
    """Returns whether any value field jumps about from one reading of a series to the next."""
    order = np.lexsort((columns.time, columns.series_of_readings))
    same = np.diff(columns.series_of_readings[order]) == 0
    for name, values in columns.values.items():
        finite = columns.kinds[name][order] == Kind.FINITE
        held = np.where(finite, values[order], 0.0)
        if finite.sum() < _FEWEST:
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            steps = np.diff(held)[same & finite[1:] & finite[:-1]]
            deviation, mean = held[finite].std(), abs(held[finite].mean())
            if len(steps) and deviation > _LEAST * mean and (steps**2).mean() > _NOISY * deviation**2:
                return True
    return False
