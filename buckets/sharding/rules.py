"""MongoDB's rules for a shard key, and the costs of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from bucketwise.buckets.bson.cluster import keeps_ids_unique
from bucketwise.buckets.models import model_of
from bucketwise.buckets.sharding.keys import ShardKey
from bucketwise.buckets.sharding.study import Study
from bucketwise.config.policies import Policy


class Rule(NamedTuple):
    """A remark on a key. `severity`: "error" where MongoDB refuses the key, "warning" where it is costly,
    else "note"."""

    rule: str
    severity: str
    message: str


def refusals(key: ShardKey, policy: Policy, native: dict[str, Any] | None) -> list[Rule]:
    """Returns why MongoDB rejects this key, as far as names tell. `native`: the options of a native
    time-series collection."""
    found = []
    hashed = [path for path, is_hashed in key.fields if is_hashed]
    if len(hashed) > 1:
        found.append(Rule("one-hashed", "error", f"{', '.join(hashed)}: only one field may be hashed"))
    model = model_of(policy)
    arrays = [".".join(it) for it in (model.array, model.attributes and model.attributes.array) if it]
    for path in key.paths:
        if "*" in path or any(path.startswith(f"{it}.") for it in arrays):
            found.append(Rule("no-arrays", "error", f"{path} lies in an array; no field of a key may"))
    if native is not None:
        found += _native(key, str(native["timeField"]), native.get("metaField"))
    return found


def _native(key: ShardKey, time: str, meta: str | None) -> Iterator[Rule]:
    for path in key.paths:
        if path != time and (meta is None or path.split(".")[0] != meta):
            fields = " and ".join(filter(None, (meta, time)))
            message = f"{path}: a time-series collection is sharded by {fields} alone"
            yield Rule("time-series", "error", message)
    if time in key.paths[:-1] or (time, True) in key.fields:
        yield Rule("time-series", "error", f"{time} has to be the last field, in ascending order")
    elif time in key.paths:
        yield Rule("time-series", "warning", f"MongoDB 8.0 deprecates {time} in the key of a time-series")


def remarks(study: Study, policy: Policy) -> Iterator[Rule]:
    """Yields what is to be known of a key that MongoDB would take, by these documents; first of all
    arrays."""
    key, distinct = study.key, len(study.counts)
    for path in key.paths:
        if study.drawn.columns[path].has_arrays:
            yield Rule("no-arrays", "error", f"{path} is or lies in an array in some documents; none may")
        if missing := study.drawn.columns[path].missing:
            message = f"{missing:.1%} of the documents have no {path}: these all lie under null"
            yield Rule("missing", "warning", message)
    if not study.is_growing and distinct < study.shards:
        message = f"distinct values: {distinct}. No more of the {study.shards} shards can have data"
        yield Rule("cardinality", "warning", message)
    if study.placed.jumbo:
        message = f"{study.placed.jumbo} values have more data than a range may have: jumbo, they can't move"
        yield Rule("jumbo", "warning", message)
    model = model_of(policy)
    if written := [
        it for it in key.paths if any(f"{it}.".startswith(f"{path}.") for path in model.changing_fields)
    ]:
        message = (
            f"{', '.join(written)} changes as buckets fill: allowed since 4.2, but each change may move it"
        )
        yield Rule("immutable", "warning", message)
    if model.keeps_ids_unique and not keeps_ids_unique(key.document):
        yield Rule("unique-id", "note", UNIQUE)


UNIQUE = (
    "MongoDB keeps _id unique inside a shard only: let drivers make ObjectIds. A run that meets two "
    "documents with one _id halts, and deletes nothing"
)
