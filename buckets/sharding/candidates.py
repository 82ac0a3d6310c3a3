"""Candidates for the shard key of a collection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bucketwise.buckets.inferring.fields import Document, Fields, is_number, is_text
from bucketwise.buckets.inferring.words import hints
from bucketwise.buckets.models import model_of
from bucketwise.buckets.sharding.keys import ShardKey
from bucketwise.config.policies import Policy


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PLACES = _set(
    "location place region country state city site zone area plant building floor room datacenter dc rack "
    "store branch gateway tenant customer account org group"
)
#: Fields beside those of the policy that are looked at, of each kind.
_FURTHER = 2
#: Documents that share a value of a coarse time.
_COARSE = 5


def candidates(policy: Policy, documents: Sequence[Document]) -> list[ShardKey]:
    """Returns keys of the series fields, the time, `_id`, places by name and coarse times. `documents`: some
    of the collection."""
    model = model_of(policy)
    fields = model.shard_fields
    found = dict.fromkeys(_keys(policy, documents) if fields is None else _native(*fields))
    if model.own_times:
        return list(found)
    return [it for it in found if model.first_field not in it.paths]  # an array, which no shard key has


def _native(*fields: str) -> Iterator[ShardKey]:
    """Yields keys of a native time-series collection: its metaField, or a field in it, and its timeField
    last."""
    *series, time = fields
    if series:
        yield ShardKey.of(*series)
        yield ShardKey.of(series[0], hashed=series[0])
        yield ShardKey.of(*series, time)
    yield ShardKey.of(time)


def _keys(policy: Policy, documents: Sequence[Document]) -> Iterator[ShardKey]:
    model = model_of(policy)
    time = model.first_field
    series = [it for it in policy.series_fields if "*" not in it]
    fields = Fields.of(documents).in_most()
    used = {*policy.series_fields, *policy.value_fields, *model.kept_fields, time, "_id"}
    further = {path: held for path, held in fields.items() if path not in used}
    places = [it for it, held in further.items() if hints(it, _PLACES) and all(map(is_text, held))][:_FURTHER]
    coarse = [it for it, held in further.items() if _is_coarse(held)][:_FURTHER]
    if series:
        yield ShardKey.of(*series, time)
        yield ShardKey.of(*series)
        yield ShardKey.of(time, *series)
        yield ShardKey.of(series[0], hashed=series[0])
        yield ShardKey.of(*series, time, hashed=series[0])
    for place in places:
        yield ShardKey.of(place)
        yield ShardKey.of(place, time)
    for field in coarse:
        yield ShardKey.of(field, *(series or ["_id"]))
    for path in (time, "_id"):
        yield ShardKey.of(path)
        yield ShardKey.of(path, hashed=path)


def _is_coarse(held: Sequence[object]) -> bool:
    """Returns whether a field holds days, months or the like: dates or whole numbers that many documents
    share."""
    times = [it for it in held if hasattr(it, "utcoffset") or (is_number(it) and float(str(it)).is_integer())]
    return len(times) == len(held) and 1 < len(set(times)) * _COARSE <= len(held)
