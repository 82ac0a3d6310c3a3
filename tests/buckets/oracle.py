"""What buckets hold, by `bson.decode` and plain loops; and MongoDB's order of values."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cmp_to_key
from typing import Any, NamedTuple

import bson
from bson.binary import Binary
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128

OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True, uuid_representation=4, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400_000


class Reading(NamedTuple):
    time: int
    values: tuple[tuple[str, float | None], ...]  # a value field: the name of its kind, and the number
    holds_container: bool = False  # a sub-document or an array, in any of them


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


_A_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def milliseconds(time: Any, unit: str | None = None) -> int:
    if isinstance(time, DatetimeMS):
        return int(time)
    if isinstance(time, datetime):
        return (time - EPOCH) // timedelta(milliseconds=1)
    if isinstance(time, str):
        read = datetime.fromisoformat(time)
        micros = ((read if read.tzinfo else read.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)
        return int(Fraction(micros, 1000))  # towards zero
    exact = Fraction(time) * 1000 / _A_SECOND[unit or "s"]
    if isinstance(time, float):
        exact = Fraction(time * 1000.0 if unit in (None, "s") else time / (_A_SECOND[unit] // 1000))
    return math.floor(exact + Fraction(1, 2))


def own_time(policy: Any, document: Any, field: str) -> int:
    return milliseconds(at(document, field), policy.time_unit)


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


def readings(policy: Any, bucket: Bucket) -> list[Reading]:
    """In the order in which they lie (slots: by slot), the bucket's own before its overflow's."""
    main = decoded(bucket.main)
    if policy.model in ("reading", "timeseries"):
        return [_reading(policy, main, own_time(policy, main, str(policy.time_field)))]
    overflow = policy.overflow.samples_field if policy.overflow else ""
    found: list[Reading] = []
    if policy.model == "samples" and policy.samples_as == "arrays":
        times = at(main, policy.sample_time_field)
        columns = [at(main, it) or [None] * len(times) for it in policy.value_fields]
        samples = zip(times, zip(*columns, strict=True), strict=True)
        return [_read(milliseconds(it, policy.sample_time_unit), list(held)) for it, held in samples]
    if policy.model == "samples":
        arrays = [at(main, str(policy.samples_field)), *(at(decoded(e), overflow) for e in bucket.extras)]
        return [_sample(policy, sample) for samples in arrays for sample in samples]
    start = own_time(policy, main, str(policy.time_field))
    found += _slots(policy, main, start)
    for document in map(decoded, bucket.extras):
        held = at(document, overflow)
        if isinstance(held, list):
            found += [_reading(policy, s, own_time(policy, s, str(policy.time_field))) for s in held]
        elif policy.value_fields == ("p",) and isinstance(held, dict) and "p" not in held:
            found += _slots(policy, {"p": held}, start)
        else:
            found += _slots(policy, held if isinstance(held, dict) else document, start)
    return found


def _sample(policy: Any, sample: Any) -> Reading:
    if policy.samples_as == "pairs":
        values = [sample[i] if i < len(sample) else None for i in range(1, 1 + len(policy.value_fields))]
        return _read(milliseconds(sample[0], policy.sample_time_unit), values)
    time = milliseconds(at(sample, str(policy.sample_time_field)), policy.sample_time_unit)
    return _reading(policy, sample, time)


def _reading(policy: Any, document: Any, time: int) -> Reading:
    if getattr(policy, "attributes_field", None) is not None:
        attributes = at(document, policy.attributes_field) or []
        document = {}
        for attribute in attributes:
            document[at(attribute, policy.attribute_key)] = at(attribute, policy.attribute_value)
        return _read(time, [document.get(name) for name in policy.value_fields])
    return _read(time, [at(document, name) for name in policy.value_fields])


def _read(time: int, held: list[Any]) -> Reading:
    return Reading(time, tuple(map(value, held)), any(isinstance(it, dict | list) for it in held))


def holds_container(policy: Any, bucket: Bucket) -> bool:
    return any(reading.holds_container for reading in readings(policy, bucket))


SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "10s": 10, "10m": 600, "30m": 1800}


def units_of(policy: Any) -> tuple[str, ...]:
    return policy.slot_levels or (str(policy.slot),)


def span_of(policy: Any) -> int:
    """Seconds."""
    larger = {"second": "minute", "minute": "hour", "hour": "day"}
    return SECONDS[policy.span or larger[units_of(policy)[0]]]


def _slots(policy: Any, document: Any, start: int) -> list[Reading]:
    held: dict[int, list[Any]] = {}
    for i, path in enumerate(policy.value_fields):
        container, _, inside = path.partition(".*.")
        slots = [(0, at(document, container))]
        for unit in units_of(policy):
            slots = [
                (second + place * SECONDS[unit], inner)
                for second, outer in slots
                for place, inner in _by_place(policy, outer, second // SECONDS[unit])
            ]
        for second, slot in slots:
            of_all = held.setdefault(second, [None] * len(policy.value_fields))
            of_all[i] = at(slot, inside) if inside else slot
    found = [_read(start + second * 1000, of_all) for second, of_all in sorted(held.items())]
    return [it for it in found if any(kind != "MISSING" for kind, _ in it.values)]


def _by_place(policy: Any, slots: Any, before: int) -> Iterator[tuple[int, Any]]:
    if isinstance(slots, list):
        return enumerate(slots)
    first = policy.first_slot + (before if policy.slot_keys == "running" else 0)
    return ((int(key) - first, inner) for key, inner in (slots or {}).items())


def series(policy: Any, bucket: Bucket) -> tuple[Any, ...]:
    document = decoded(bucket.main)
    return tuple(_one(at(document, name)) for name in policy.series_fields)


def series_of_readings(policy: Any, bucket: Bucket) -> list[tuple[Any, ...]]:
    """Of each reading, in their order."""
    own = decoded(bucket.main)
    if not any(".*." in path for path in policy.series_fields):
        return [series(policy, bucket)] * len(readings(policy, bucket))
    overflow = policy.overflow.samples_field if policy.overflow else ""
    arrays = [at(own, str(policy.samples_field)), *(at(decoded(e), overflow) for e in bucket.extras)]
    return [
        tuple(
            _one(at(sample, path.split(".*.")[1]) if ".*." in path else at(own, path))
            for path in policy.series_fields
        )
        for samples in arrays
        for sample in samples
    ]


def _one(held: Any) -> Any:
    if isinstance(held, float) and held.is_integer() and -(2**63) <= held < 2**63:
        return int(held)
    return int(held) if isinstance(held, bson.Int64) else held


def last(policy: Any, bucket: Bucket) -> int:
    """The last reading; where there is none, what the bucket says."""
    times = [reading.time for reading in readings(policy, bucket)]
    if times:
        return max(times)
    document = decoded(bucket.main)
    if policy.model == "slots":
        return own_time(policy, document, str(policy.time_field)) + span_of(policy) * 1000 - 1
    if policy.end_field is None:  # one without samples has a start
        return own_time(policy, document, str(policy.start_field))
    end = at(document, policy.end_field)
    whole = isinstance(end, int) and policy.time_unit in (None, "s")
    return milliseconds(end, policy.time_unit) + (999 if whole else 0)


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
