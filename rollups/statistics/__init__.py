"""The statistics of value fields: a module a kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from bucketwise.config.policies import Policy
from bucketwise.rollups.statistics.base import Column, Statistic
from bucketwise.rollups.statistics.edges import Edges
from bucketwise.rollups.statistics.excluded import Excluded
from bucketwise.rollups.statistics.moments import Moments
from bucketwise.rollups.statistics.quantiles import Quantiles

#: The statistics of each value field, in the order of the keys of a summary and of the bytes of its `state`.
FieldStatistics = Mapping[str, Sequence[Statistic[Any]]]
#: The state of each statistic of one value field. Those of `Moments` come first.
FieldState = tuple[Any, ...]


def registered(percents: Sequence[float]) -> list[Statistic[Any]]:
    """Returns all statistics, with these percentiles. What is added to a value field's `state` goes last."""
    return [Moments(), Edges(), Quantiles(percents), Excluded()]


def statistics_of(policy: Policy, percents: Sequence[float] | None = None) -> FieldStatistics:
    """Returns the statistics of a policy's value fields. `percents`: the percentiles; None: the policy's."""
    if percents is None:
        percents = policy.rollup.percentiles if policy.rollup else ()
    return _statistics_of(tuple(policy.value_names), tuple(percents))


@lru_cache(maxsize=1 << 8)
def _statistics_of(names: Sequence[str], percents: Sequence[float]) -> FieldStatistics:
    return {name: registered(percents) for name in names}


def columns_of(kinds: Iterable[Statistic[Any]]) -> list[Column]:
    """Returns the keys of a value field that has these statistics."""
    return [column for kind in kinds for column in kind.columns]


def table_keys(percents: Sequence[float]) -> list[str]:
    """Returns the keys that tables show of a value field."""
    kinds = sorted(registered(percents), key=lambda it: it.table_place)
    return [key for kind in kinds for key in kind.table]


def finite_count(state: FieldState) -> int:
    """Returns how many finite numbers a state is of."""
    count: int = state[0][0]
    return count
