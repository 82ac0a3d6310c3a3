"""What buckets hold, by `bson.decode` and plain loops; and MongoDB's order of values."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cmp_to_key
from typing import Any, NamedTuple

import bson
from bson.binary import Binary
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128

from config.policies import Policy

OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True, uuid_representation=4, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400_000


class Reading(NamedTuple):
    time: int
    values: tuple[tuple[str, float | None], ...]  # a value field: the name of its kind, and the number


class Bucket(NamedTuple):
    """A bucket as bytes: its document, and its overflow."""

    main: bytes
    extras: tuple[bytes, ...] = ()

    @property
    def id(self) -> Any:
        return decoded(self.main)["_id"]


def decoded(document: bytes) -> dict[str, Any]:
    try:
        return bson.decode(document, OPTIONS)
    except bson.errors.InvalidBSON:  # a UUID of another length, bytes that are not UTF-8
        legible = OPTIONS.with_options(uuid_representation=0, unicode_decode_error_handler="backslashreplace")
        return bson.decode(document, legible)


def at(document: Any, path: str) -> Any:
    for part in path.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return document


def milliseconds(time: Any) -> int:
    if isinstance(time, DatetimeMS):
        return int(time)
    if isinstance(time, datetime):
        return (time - EPOCH) // timedelta(milliseconds=1)
    return time * 1000 if isinstance(time, int) else math.floor(time * 1000 + 0.5)


def value(held: Any) -> tuple[str, float | None]:
    if held is None:
        return "MISSING", None
    if isinstance(held, bool) or not isinstance(held, int | float | Decimal128):
        return "NONNUMERIC", None
    if isinstance(held, Decimal128):
        exact = held.to_decimal()
        number = math.nan if exact.is_nan() else float(exact)
    else:
        number = float(held)
    return ("FINITE" if math.isfinite(number) else "NONFINITE"), number


def readings(policy: Policy, bucket: Bucket) -> list[Reading]:
    """In the order in which they lie (slots: by slot), the bucket's own before its overflow's."""
    main = decoded(bucket.main)
    if policy.model in ("reading", "timeseries"):
        return [_reading(policy, main, milliseconds(at(main, str(policy.time_field))))]
    overflow = policy.overflow.samples_field if policy.overflow else ""
    found: list[Reading] = []
    if policy.model == "samples":
        arrays = [at(main, str(policy.samples_field)), *(at(decoded(e), overflow) for e in bucket.extras)]
        for samples in arrays:
            found += [
                _reading(policy, s, milliseconds(at(s, str(policy.sample_time_field)))) for s in samples
            ]
        return found
    start = milliseconds(at(main, str(policy.time_field)))
    found += _slots(policy, main, start)
    for document in map(decoded, bucket.extras):
        held = at(document, overflow)
        if isinstance(held, list):
            found += [_reading(policy, s, milliseconds(at(s, str(policy.time_field)))) for s in held]
        elif policy.value_fields == ("p",) and isinstance(held, dict) and "p" not in held:
            found += _slots(policy, {"p": held}, start)
        else:
            found += _slots(policy, held if isinstance(held, dict) else document, start)
    return found


def _reading(policy: Policy, document: Any, time: int) -> Reading:
    return Reading(time, tuple(value(at(document, name)) for name in policy.value_fields))


def _slots(policy: Policy, document: Any, start: int) -> list[Reading]:
    length = 1000 if policy.slot == "second" else 60_000
    found = []
    for slot in range(60):
        held = tuple(value(_in_slot(at(document, name), slot)) for name in policy.value_fields)
        if any(kind != "MISSING" for kind, _ in held):
            found.append(Reading(start + slot * length, held))
    return found


def _in_slot(slots: Any, slot: int) -> Any:
    if isinstance(slots, list):
        return slots[slot] if slot < len(slots) else None
    return (slots or {}).get(str(slot))


def series(policy: Policy, bucket: Bucket) -> tuple[Any, ...]:
    document = decoded(bucket.main)
    return tuple(_one(at(document, name)) for name in policy.series_fields)


def _one(held: Any) -> Any:
    if isinstance(held, float) and held.is_integer() and -(2**63) <= held < 2**63:
        return int(held)
    return int(held) if isinstance(held, bson.Int64) else held


def last(policy: Policy, bucket: Bucket) -> int:
    """The last reading; where there is none, what the bucket says."""
    times = [reading.time for reading in readings(policy, bucket)]
    if times:
        return max(times)
    document = decoded(bucket.main)
    if policy.model == "slots":
        length = 60_000 if policy.slot == "second" else 3_600_000
        return milliseconds(at(document, str(policy.time_field))) + length - 1
    end = at(document, str(policy.end_field))
    return milliseconds(end) + (999 if isinstance(end, int) else 0)


#: In MongoDB's order. A bool is an int in Python, and code a str: the last that fits counts.
_TYPES: list[tuple[type, ...]] = [
    (bson.MinKey,), (type(None),), (int, float, Decimal128), (str,), (dict,), (list,), (bytes, uuid.UUID),
    (bson.ObjectId,), (bool,), (datetime, DatetimeMS), (bson.Timestamp,), (bson.Regex,), (bson.Code,),
    (bson.MaxKey,),
]  # fmt: skip


def rank(held: Any) -> int:
    return max(i for i, types in enumerate(_TYPES) if isinstance(held, types))


def compare(a: Any, b: Any) -> int:
    """Below 0 where MongoDB sorts a before b."""
    if rank(a) != rank(b):
        return rank(a) - rank(b)
    if isinstance(a, dict):
        for (one, left), (other, right) in zip(a.items(), b.items(), strict=False):
            found = rank(left) - rank(right) or _order(one.encode(), other.encode()) or compare(left, right)
            if found:
                return found
        return len(a) - len(b)
    if isinstance(a, list):
        pairs = (compare(left, right) for left, right in zip(a, b, strict=False))
        return next((found for found in pairs if found), len(a) - len(b))
    return _order(_comparable(a), _comparable(b))


def _order(a: Any, b: Any) -> int:
    return int(a > b) - int(a < b)


def _comparable(held: Any) -> Any:
    if isinstance(held, bool) or held is None or isinstance(held, bson.MinKey | bson.MaxKey):
        return bool(held is True)
    if isinstance(held, int | float | Decimal128):
        exact = held.to_decimal() if isinstance(held, Decimal128) else Decimal(held)
        return (0, Decimal(0)) if exact.is_nan() else (1, exact)
    if isinstance(held, str):
        return held.encode()
    if isinstance(held, bytes | uuid.UUID):
        it = Binary.from_uuid(held) if isinstance(held, uuid.UUID) else held
        subtype = it.subtype if isinstance(it, Binary) else 0
        return len(it) + (4 if subtype == 2 else 0), subtype, bytes(it)
    if isinstance(held, datetime | DatetimeMS):
        return milliseconds(held)
    if isinstance(held, bson.Timestamp):
        return held.time, held.inc
    return held


by_id = cmp_to_key(compare)


def in_order(buckets: Sequence[Bucket]) -> list[Bucket]:
    return sorted(buckets, key=lambda bucket: by_id(bucket.id))
