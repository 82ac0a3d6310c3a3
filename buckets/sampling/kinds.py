"""What the values of a field may be: a counter, or a state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.columns import Columns, ValueKind
from bucketwise.config.policies import Policy
from bucketwise.config.times import format_duration

#: Fewer steps tell nothing; so many have to rise.
_STEPS, _RISING = 30, 0.3
#: A counter that begins again is at most at this share of where it was.
_NEAR_ZERO = 0.05
#: A state has at most so many values. So many times the usual step between readings is a gap.
STATES, _MISSING = 10, 10


#: Keys for the table of a value field, and what speaks for them.
LikelyKind = tuple[dict[str, str], str]


def likely_kinds(columns: Columns, policy: Policy) -> dict[str, LikelyKind]:
    """Returns keys for the tables of value fields, by their paths, each with what speaks for them: of a
    counter, which never falls but to near zero, and of a state, where words that stand for numbers come and
    go. They are likely, and no more."""
    found = {}
    for name, path in policy.named_values:
        runs = _runs(columns, name)
        steps = sum(len(values) - 1 for _, values in runs)
        if steps < _STEPS:
            continue
        table = policy.values.get(path)
        if (resets := _resets(runs, steps)) is not None:
            how = f"but to near zero, {resets:,} times" if resets else "in the sample"
            found[path] = ({"kind": "counter"}, f"it never falls {how}: a counter?")
        elif table is not None and table.map and _is_state(runs):
            gap = timedelta(milliseconds=longest_step(np.concatenate([np.diff(time) for time, _ in runs])))
            found[path] = (
                {"kind": "state", "max_gap": format_duration(gap)},
                f"it has {len(table.map):,} values that last: a state?",
            )
    return found


_Run = tuple[NDArray[np.int64], NDArray[np.float64]]


def _runs(columns: Columns, name: str) -> list[_Run]:
    """Returns times and numbers of each series that has several, in the order of time."""
    finite = np.flatnonzero(columns.kinds[name] == ValueKind.FINITE)
    series, time = columns.series_of_readings[finite], columns.time[finite]
    order = np.lexsort((time, series))
    cuts = np.flatnonzero(np.diff(series[order])) + 1
    rows = [finite[it] for it in np.split(order, cuts)]
    return [(columns.time[it], columns.values[name][it]) for it in rows if len(it) > 1]


def _resets(runs: list[_Run], steps: int) -> int | None:
    """Returns how often a counter begins again; None where the numbers are not those of one."""
    rises = resets = 0
    for _, values in runs:
        with np.errstate(over="ignore"):
            change = np.diff(values)
        falls = change < 0
        if values.min() < 0 or (values[1:][falls] > _NEAR_ZERO * values[:-1][falls]).any():
            return None
        rises += int((change > 0).sum())
        resets += int(falls.sum())
    return resets if rises >= _RISING * steps and resets <= rises / STATES else None


def _is_state(runs: list[_Run]) -> bool:
    """Returns whether there are few values, each of which mostly lasts for more than a reading."""
    held = np.unique(np.concatenate([values for _, values in runs]))
    changes = sum(int((np.diff(values) != 0).sum()) for _, values in runs)
    return 1 < len(held) <= STATES and 0 < changes <= sum(len(values) for _, values in runs) / 2


def longest_step(steps: Sequence[int] | NDArray[np.int64]) -> int:
    """Returns how long a state may last by how far readings are apart, in milliseconds: whole seconds, or
    minutes."""
    seconds = max(1, int(np.median(steps)) // 1000) if len(steps) else 60
    return _MISSING * (seconds if seconds < 60 else seconds // 60 * 60) * 1000
