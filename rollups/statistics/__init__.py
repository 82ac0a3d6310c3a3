"""The statistics of value fields: a class a kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from bucketwise.config.policies import Policy, ValueField, percentile_key
from bucketwise.rollups.calendar.windows import span_ms
from bucketwise.rollups.statistics.base import ALL, PARTS, Column, Kept, Statistic
from bucketwise.rollups.statistics.edges import Edges
from bucketwise.rollups.statistics.excluded import Excluded
from bucketwise.rollups.statistics.moments import Moments
from bucketwise.rollups.statistics.quantiles import Quantiles
from bucketwise.rollups.statistics.steps import Counter, TimeWeighted
from bucketwise.rollups.statistics.time_in_state import TimeInState, TimeInTextState

#: The statistics of each value field, in the order of the keys of a summary and of the bytes of its `state`.
FieldStatistics = Mapping[str, Sequence[Statistic[Any]]]
#: The state of each statistic of one value field. Those of `Moments` come first.
FieldState = tuple[Any, ...]
#: Keys that follow from a field's kind: they are never left out.
_KIND_KEYS = frozenset(it.key for kind in (Counter, TimeInState, TimeWeighted) for it in kind.columns)
#: A counter's step that is longer counts for nothing, unless the policy says otherwise.
COUNTER_GAP = timedelta(days=7)
_PLAIN = ValueField()

#: What has a name in `rollup.statistics`, beside percentiles, and which of PARTS merging needs for it.
NAMED = {
    "count": (),
    "sum": ("sum",),
    "min": ("min",),
    "max": ("max",),
    "avg": ("sum",),
    "stddev": ("sum", "squares"),
    "first": ("first",),
    "last": ("last",),
    "nonfinite": ("nonfinite",),
    "nonnumeric": ("nonnumeric",),
}
_OF_PERCENTILES = ("bins", "min", "max")
_OF_STEPS = ("first", "last")


def registered(
    percents: Sequence[float], field: ValueField = _PLAIN, kept: Kept = ALL, *, has_texts: bool = False
) -> list[Statistic[Any]]:
    """Returns the statistics of a value field, with these percentiles. What is added to its `state` goes
    last. `has_texts`: its texts are states."""
    found: list[Statistic[Any]] = [Moments(kept), Edges(kept), Quantiles(percents, kept), Excluded(kept)]
    max_gap = span_ms(field.max_gap or COUNTER_GAP)
    if field.kind == "counter":
        found.append(Counter(max_gap))
    if field.kind == "state":
        found.append(TimeInTextState(max_gap) if has_texts else TimeInState(max_gap))
    if field.time_weighted is not None:
        found.append(TimeWeighted(max_gap, field.time_weighted))
    return found


def statistics_of(policy: Policy, percents: Sequence[float] | None = None) -> FieldStatistics:
    """Returns the statistics of a policy's value fields. `percents`: the percentiles; None: the policy's."""
    if percents is None:
        percents = policy.rollup.percentiles if policy.rollup else ()
    told = tuple(
        (it.kind, it.time_weighted, it.max_gap, name in policy.text_states)
        for name, it in ((name, policy.values.get(path, _PLAIN)) for name, path in policy.named_values)
    )
    return _statistics_of(tuple(policy.value_names), tuple(percents), told, _asked(policy, percents))


def keeps_percentiles(policy: Policy) -> bool:
    """Returns whether summaries of a policy tell percentiles."""
    rollup = policy.rollup
    if rollup is None or not rollup.percentiles:
        return False
    return not rollup.statistics or any(percentile_key(it) in rollup.statistics for it in rollup.percentiles)


def _asked(policy: Policy, percents: Sequence[float]) -> tuple[frozenset[str] | None, bool]:
    """Returns the names of the statistics that are told (None: all), and whether percentiles are kept."""
    rollup = policy.rollup
    if rollup is None or not rollup.statistics:
        return None, True
    asked = set(percents) - set(rollup.percentiles)  # by a question
    return frozenset({*rollup.statistics, *map(percentile_key, asked)}), keeps_percentiles(policy)


@lru_cache(maxsize=1 << 8)
def _statistics_of(
    names: Sequence[str],
    percents: Sequence[float],
    told: Sequence[Any],
    asked: tuple[frozenset[str] | None, bool],
) -> FieldStatistics:
    keys = ("kind", "time_weighted", "max_gap")
    fields = [(ValueField.model_construct(**dict(zip(keys, it, strict=True))), texts) for *it, texts in told]
    return {
        name: registered(percents, field, _kept(field, *asked, has_texts=texts), has_texts=texts)
        for name, (field, texts) in zip(names, fields, strict=True)
    }


def _kept(field: ValueField, names: frozenset[str] | None, has_percentiles: bool, *, has_texts: bool) -> Kept:
    """Returns what is kept of a value field, given the names of the statistics that are told."""
    if names is None:
        return ALL
    needed = {part for name in names for part in NAMED.get(name, ())}
    needed |= set(_OF_PERCENTILES) if has_percentiles else set()
    has_steps = field.kind in ("counter", "state") or field.time_weighted is not None
    has_steps = has_steps and not has_texts  # these keep their own
    needed |= set(_OF_STEPS) if has_steps else set()
    return Kept(names | _KIND_KEYS, frozenset(PARTS) & needed)


def is_ordered(fields: FieldStatistics) -> bool:
    """Returns whether any of the statistics needs the readings of a series at once, in the order of time."""
    return any(it.is_ordered for kinds in fields.values() for it in kinds)


def columns_of(kinds: Iterable[Statistic[Any]]) -> list[Column]:
    """Returns the keys of a value field that has these statistics."""
    return [column for kind in kinds for column in kind.columns]


def table_keys(percents: Sequence[float], shown: Iterable[str] = ()) -> list[str]:
    """Returns the keys that tables show of value fields. `shown`: keys that any of them has."""
    kinds = sorted(registered(percents), key=lambda it: it.table_place)
    keys, known = [key for kind in kinds for key in kind.table], set(shown)
    further = (key for kind in (Counter, TimeInState, TimeWeighted) for key in kind.table)
    return [*keys, *(key for key in further if key in known)]


def finite_count(state: FieldState) -> int:
    """Returns how many finite numbers a state is of."""
    count: int = state[0][0]
    return count
