"""How a policy reads a few buckets: do its fields name what is in them, and which does it not use?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch, as_queried
from bucketwise.buckets.bson.types import (
    ARRAY,
    DECIMAL128,
    DOCUMENT,
    DOUBLE,
    INT32,
    INT64,
    elements,
    first_at,
)
from bucketwise.buckets.columns import NO_STATE, Columns, Quarantined, Series, ValueKind
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.decoding.soundness import Plausible
from bucketwise.buckets.layouts.layout import Path
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.model import Attributes
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


#: So many elements of an array, or slots, tell what is in the others.
_MAX_NUMBERED = 3
#: So many fields are told.
_MAX_REPORTED = 100


@dataclass
class FieldUse:
    """Paths as a policy names them; "*" stands for any element of an array, or any slot."""

    used: set[str] = field(default_factory=set)  # used: these, and those on the way to them
    unused: dict[str, None] = field(default_factory=dict)  # in the order in which they are met
    within: dict[str, None] = field(default_factory=dict)  # and inside of those
    arrays: set[str] = field(default_factory=set)  # on the way to a used one that would have to be inside
    readable: set[str] = field(default_factory=set)  # unused ones that hold numbers, or may inside


def fields_of(documents: Iterable[bytes], policy: Policy) -> FieldUse:
    """Returns the fields of all documents together; `_id` is none."""
    found, model = FieldUse(), model_of(policy)
    used = model.used_paths
    for document in documents:
        _walk(document, (), used, found)
        if model.attributes is not None and len(found.within) < _MAX_REPORTED:
            attributes = dict.fromkeys(_unused_attributes(document, policy, model.attributes))
            found.within |= attributes
            found.readable |= set(attributes)
    return found


def _unused_attributes(document: bytes, policy: Policy, attributes: Attributes) -> Iterator[str]:
    """Yields the names of the attributes that the policy doesn't use."""
    array = first_at(document, attributes.array)
    for start, value, end in elements(array[1:]) if array[:1] == bytes([ARRAY]) else ():
        if array[1 + start] == DOCUMENT:
            name = as_queried(first_at(array[1 + value : 1 + end], attributes.name))
            if isinstance(name, str) and name not in policy.value_fields:
                yield name


def _walk(
    document: bytes, parent: Path, used: list[Path], found: FieldUse, *, is_array: bool = False
) -> None:
    """Adds fields that no path uses. `used`: the rest of each path that leads through here."""
    numbered = 0
    for start, value, end in elements(document):
        name, kind = document[start + 1 : value - 1].decode("utf-8", "backslashreplace"), document[start]
        if parent and name.isdigit():
            numbered += 1
            if numbered > _MAX_NUMBERED:
                if is_array:
                    break
                continue
        path = (*parent, "*" if parent and name.isdigit() else name)
        inside = document[value:end] if kind in (DOCUMENT, ARRAY) else None
        rest = [it[1:] for it in used if it[0] in (name, "*")]
        if rest:
            _add_used(path, kind, inside, rest, found)
        elif path != ("_id",):
            _add_unused(path, kind, inside, found)


def _add_used(path: Path, kind: int, inside: bytes | None, rest: list[Path], found: FieldUse) -> None:
    found.used.add(".".join(path))
    if () in rest or inside is None:
        return
    if kind == ARRAY and all(it[0] != "*" for it in rest):
        found.arrays.add(".".join(path))
    _walk(inside, path, rest, found, is_array=kind == ARRAY)


#: Types of which something is a value.
_READABLE = {DOUBLE, INT32, INT64, DECIMAL128, DOCUMENT, ARRAY}


def _add_unused(path: Path, kind: int, inside: bytes | None, found: FieldUse) -> None:
    if path[-1] == "*" and inside is not None:
        _walk(inside, path, [], found, is_array=kind == ARRAY)
    elif len(found.unused) < _MAX_REPORTED:
        found.unused.setdefault(".".join(path))
        if kind in _READABLE and not any("." in it for it in path):
            found.readable.add(".".join(path))
        for start, value, _ in elements(inside) if inside is not None else ():
            if len(found.within) < _MAX_REPORTED and inside is not None:
                name = inside[start + 1 : value - 1].decode("utf-8", "backslashreplace")
                found.within.setdefault(".".join((*path, name)))
                if inside[start] in _READABLE and not any("." in it for it in (*path, name)):
                    found.readable.add(".".join((*path, name)))


@dataclass(frozen=True)
class Example:
    """A reading as it is understood; None where it holds no number, and no state."""

    series: Series
    time: int  # milliseconds
    values: dict[str, float | str | None]


@dataclass(frozen=True)
class Fit:
    """Tells what a policy finds in sampled buckets. Value fields go by their names."""

    sampled: int  # buckets
    buckets: int  # of these, that keep to the model
    readings: int
    held: dict[str, dict[ValueKind, int]]  # value field -> how many readings hold what there
    series: int
    span: tuple[int, int] | None  # of the readings, first to last, milliseconds
    examples: list[Example]  # the first and the last, by `_id`
    quarantined: list[Quarantined]
    fields: FieldUse
    is_hollow: bool  # no bucket has a place where readings could be
    kinds: dict[str, LikelyKind]  # of value fields that are gauges, by their paths

    @property
    def readings_a_bucket(self) -> float | None:
        """Returns the mean number of readings per bucket; None without buckets."""
        return self.readings / self.buckets if self.buckets else None

    @property
    def finite(self) -> dict[str, float | None]:
        """Returns the share of the readings that hold a finite number; None without readings."""
        shares = {name: held[ValueKind.FINITE] / max(1, self.readings) for name, held in self.held.items()}
        return {name: share if self.readings else None for name, share in shares.items()}

    def empty_fields(self, policy: Policy) -> list[str]:
        """Returns the value fields in which not one reading holds a finite number, though it has to."""
        return [
            name for name in policy.numeric_names if self.readings and not self.held[name][ValueKind.FINITE]
        ]


def fit_of(batch: Batch, policy: Policy, plausible: Plausible | None = None) -> Fit:
    """Returns the fit of the policy with these live buckets. `plausible`: the times that they may have."""
    decoded, fields = decode(batch, policy, plausible=plausible), fields_of(batch.main, policy)
    columns = decoded.columns
    return Fit(
        sampled=len(batch),
        buckets=len(decoded.units),
        readings=len(columns.time),
        held={name: _counted(columns, name) for name in policy.value_names},
        series=len(np.unique(columns.series_of_readings)),
        span=(int(columns.time.min()), int(columns.time.max())) if len(columns.time) else None,
        examples=_examples(columns),
        quarantined=decoded.quarantined,
        fields=fields,
        is_hollow=_is_hollow(decoded, fields, policy),
        kinds=_other_kinds(columns, policy),
    )


def _other_kinds(columns: Columns, policy: Policy) -> dict[str, LikelyKind]:
    tables = policy.values
    found = likely_kinds(columns, policy).items()
    return {path: it for path, it in found if path not in tables or tables[path].kind == "gauge"}


def _counted(columns: Columns, name: str) -> dict[ValueKind, int]:
    counts = np.bincount(columns.kinds[name], minlength=len(ValueKind))
    return {kind: int(counts[kind]) for kind in ValueKind}


def _examples(columns: Columns) -> list[Example]:
    rows = sorted({0, len(columns.time) - 1}) if len(columns.time) else []
    return [example_of(columns, row) for row in rows]


def example_of(columns: Columns, row: int) -> Example:
    """Returns one reading of these columns."""
    numbers = (ValueKind.FINITE, ValueKind.NONFINITE)
    values: dict[str, float | str | None] = {
        name: float(held[row]) if columns.kinds[name][row] in numbers else None
        for name, held in columns.values.items()
    }
    for name, states in columns.states.items():
        values[name] = None if states.codes[row] == NO_STATE else states.names[states.codes[row]]
    series = columns.series[columns.series_of_readings[row]]
    return Example(series, int(columns.time[row]), values)


def _is_hollow(decoded: Decoded, fields: FieldUse, policy: Policy) -> bool:
    """Returns whether buckets hold no reading because they have none of the sub-documents of slots. Slots
    that wait for their readings don't count, nor does an empty array."""
    places = model_of(policy).slot_holders
    if not places or not len(decoded.units) or len(decoded.columns.time):
        return False
    return not any(".".join(place) in fields.used for place in places)
