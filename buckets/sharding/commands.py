"""What to enter in mongosh to shard a collection: as JavaScript."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from bucketwise.buckets.fields.isoforms import date_text
from bucketwise.buckets.fields.times import as_date, to_numbers
from bucketwise.buckets.sharding.keys import DrawnDocuments, ShardKey
from bucketwise.buckets.sharding.study import Study

_SAFE = 2**53


class UnwrittenError(ValueError):
    """A value that has no form in JavaScript here."""


def sharding(study: Study, namespace: str, names: Sequence[str], *, is_native: bool) -> list[str]:
    """Returns the commands that shard a collection, `names` being its shards. A native time-series collection
    takes neither splits nor zones."""
    key, space = study.key, json.dumps(namespace)
    command = f"sh.shardCollection({space}, {js(key.document)}"
    if key.is_hashed_first and len(key.fields) > 1 and not is_native:
        low, high = (dict.fromkeys(key.paths, end) for end in (MinKey(), MaxKey()))
        return [
            "// For a collection that is empty or not there: MongoDB makes a range for each shard.",
            *(f'sh.addShardToZone({json.dumps(name)}, "all")' for name in names),
            f'sh.updateZoneKeyRange({space}, {js(low)}, {js(high)}, "all")',
            f"{command}, false, {{ presplitHashedZones: true }})",
        ]
    index = [] if is_native else [f"{_collection(namespace)}.createIndex({js(key.document)})"]
    return [
        *index,
        f"{command})",
        *([] if is_native or key.is_hashed_first else _splits(study, space, names)),
    ]


def _splits(study: Study, space: str, names: Sequence[str]) -> list[str]:
    """Returns the ranges that the documents suggest, each on its shard."""
    bounds = []
    if any(is_hashed for _, is_hashed in study.key.fields):
        return []  # a hash has to be asked for
    for cell in study.cuts:
        row, paths = study.row_of(cell), study.key.paths
        bound = {path: study.drawn.value(path, row) for path in paths}
        if study.begins_value(cell):
            bound = {path: bound[path] if path == paths[0] else MinKey() for path in paths}
        try:
            bounds.append(js(bound))
        except UnwrittenError:
            return []
    moves = [
        f"db.adminCommand({{ moveRange: {space}, min: {bound}, toShard: {json.dumps(name)} }})"
        for bound, name in zip(bounds, names[1:], strict=False)
    ]
    return [*(f"sh.splitAt({space}, {bound})" for bound in bounds), *moves]


def tiering(
    key: ShardKey, drawn: DrawnDocuments, namespace: str, names: Sequence[str], hot_from: int, days: float
) -> list[str]:
    """Returns the commands of zones by age: what is since `hot_from` (milliseconds) on the first half of the
    shards. None where the key does not begin with the time: ages are no ranges of it."""
    if key.fields[0] != (drawn.time_field, False) or len(names) < 2:
        return []
    space, hot = json.dumps(namespace), max(1, len(names) // 2)
    low, high = (dict.fromkeys(key.paths, end) for end in (MinKey(), MaxKey()))
    edge = {path: _instant(drawn, hot_from) if path == drawn.time_field else MinKey() for path in key.paths}
    zones = ["hot"] * hot + ["cold"] * (len(names) - hot)
    return [
        f"// The last {days:g} days stay on the hot shards. Each day: remove both ranges, and set them anew.",
        *(f'sh.addShardToZone({json.dumps(it)}, "{zone}")' for it, zone in zip(names, zones, strict=True)),
        f'sh.updateZoneKeyRange({space}, {js(low)}, {js(edge)}, "cold")',
        f'sh.updateZoneKeyRange({space}, {js(edge)}, {js(high)}, "hot")',
    ]


def _instant(drawn: DrawnDocuments, ms: int) -> Any:
    """Returns an instant as the documents write times."""
    example = drawn.value(drawn.time_field, 0)
    if isinstance(example, str):
        return date_text(ms)
    if isinstance(example, int | float):
        return int(to_numbers(np.array([ms]), drawn.form.unit or "s")[0])
    return as_date(ms)


def _collection(namespace: str) -> str:
    database, _, name = namespace.partition(".")
    return f"db.getSiblingDB({json.dumps(database)}).getCollection({json.dumps(name)})"


def js(value: Any) -> str:
    """Returns a value as mongosh reads it. Raises UnwrittenError."""
    for kinds, text in _TEXTS:
        if isinstance(value, kinds) and not isinstance(value, Code):
            return text(value)
    raise UnwrittenError(type(value).__name__)


def _object(value: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{json.dumps(name)}: {js(it)}" for name, it in value.items()) + " }"


def _number(value: float) -> str:
    if isinstance(value, Int64) or (isinstance(value, int) and abs(value) >= _SAFE):
        return f'NumberLong("{int(value)}")'
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return json.dumps(value)


def _binary(value: bytes) -> str:
    return f'BinData({getattr(value, "subtype", 0)}, "{base64.b64encode(value).decode()}")'


#: The first that fits.
_TEXTS: tuple[tuple[Any, Callable[[Any], str]], ...] = (
    ((RawBSONDocument, Mapping), _object),
    (list, lambda it: "[" + ", ".join(map(js, it)) + "]"),
    ((MinKey, MaxKey), lambda it: f"{type(it).__name__}()"),
    (datetime, lambda it: f'ISODate("{it.isoformat(timespec="milliseconds").removesuffix("+00:00")}Z")'),
    (ObjectId, lambda it: f'ObjectId("{it}")'),
    (Decimal128, lambda it: f'NumberDecimal("{it}")'),
    (UUID, lambda it: f'UUID("{it}")'),
    (bytes, _binary),
    (Timestamp, lambda it: f"Timestamp({it.time}, {it.inc})"),
    ((bool, str, type(None)), json.dumps),
    ((int, float), _number),
)
