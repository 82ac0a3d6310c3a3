"""Buckets that break their model, each with where and why it is quarantined."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from bson.code import Code
from bson.dbref import DBRef
from bson.objectid import ObjectId

from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from tests.buckets import handmade as bson_of
from tests.buckets.handmade import Field, Value
from tests.buckets.oracle import Bucket


class BadDocument(NamedTuple):
    id: str
    options: dict[str, Any]  # of its policy
    document: bytes
    field: str  # where it breaks
    reason: str  # part of what is said
    extras: tuple[bytes, ...] = ()  # its overflow
    told: Any = "bad"  # its `_id` in the report

    @property
    def policy(self) -> Policy:
        return make_policy(**self.options)

    @property
    def bucket(self) -> Bucket:
        return Bucket(self.document, self.extras)


OVERFLOW = {
    "flag_field": "has_more",
    "collection": "it_more",
    "ref_field": "bucket",
    "samples_field": "more",
}
_COMMON: dict[str, Any] = {
    "name": "it",
    "collection": "it",
    "series_fields": ("symbol",),
    "value_fields": ("p",),
}
NUMBERS: dict[str, Any] = {**_COMMON, "model": "reading", "time_field": "d"}
READING: dict[str, Any] = {**NUMBERS, "nonnumeric_ok": ("p",)}
TIMESERIES: dict[str, Any] = {**READING, "model": "timeseries"}
NUMBERS_TIMESERIES: dict[str, Any] = {**NUMBERS, "model": "timeseries"}
SECONDS: dict[str, Any] = {**_COMMON, "model": "slots", "slot": "second", "time_field": "d"}
MINUTES: dict[str, Any] = {**SECONDS, "slot": "minute"}
NUMBERS_MORE: dict[str, Any] = {**SECONDS, "overflow": OVERFLOW}
SLOTS_MORE: dict[str, Any] = {**NUMBERS_MORE, "nonnumeric_ok": ("p",)}
SAMPLES: dict[str, Any] = {
    **_COMMON,
    "model": "samples",
    "samples_field": "samples",
    "sample_time_field": "time",
    "start_field": "first",
    "end_field": "last",
    "count_field": "n",
    "sum_fields": {"p": "sum"},
}
SAMPLES_MORE: dict[str, Any] = {
    **SAMPLES,
    "count_field": None,
    "sum_fields": {},
    "overflow": OVERFLOW,
    "nonnumeric_ok": ("p",),
}

T0 = bson_of.day("2018-06-30T00:00:00")
BAD_ID = bson_of.text("bad")


def _with(fields: dict[str, Value], changed: dict[str, Value | None], more: tuple[Field, ...] = ()) -> bytes:
    """The fields with some of them changed, or left out (None), and more behind."""
    held = {**fields, **changed}
    return bson_of.document(*((name, value) for name, value in held.items() if value is not None), *more)


def reading(*more: Field, **changed: Value | None) -> bytes:
    sound = {"_id": BAD_ID, "symbol": bson_of.text("MDB"), "d": T0, "p": bson_of.double(56.58)}
    return _with(sound, changed, more)


def nested(depth: int, held: Value) -> Value:
    """Documents in documents."""
    for _ in range(depth):
        held = bson_of.sub(("a", held))
    return held


def slots(*more: Field, **changed: Value | None) -> bytes:
    p = bson_of.sub(("0", bson_of.double(56.56)), ("59", bson_of.double(57.02)))
    return _with({"_id": BAD_ID, "p": p, "symbol": bson_of.text("MDB"), "d": T0}, changed, more)


def slot(key: str) -> Value:
    return bson_of.sub(("0", bson_of.double(1)), (key, bson_of.double(2)))


def sample(time: Value | None = None, **fields: Value) -> Value:
    return bson_of.sub(*([("time", time)] if time else []), *fields.items())


def _two(first: Value, second: Value) -> Value:
    return bson_of.array(sample(first, p=bson_of.int32(50)), sample(second, p=bson_of.double(1.5)))


FIRST, LAST = bson_of.int32(1535530412), bson_of.int32(1535530432)
#: As so many more seconds, milliseconds of 64 bits come round to the same time, but for 616 of them.
_ROUND = 2**64 // 1000


def samples(*more: Field, **changed: Value | None) -> bytes:
    sound = {
        "_id": BAD_ID,
        "symbol": bson_of.text("MDB"),
        "n": bson_of.int32(2),
        "sum": bson_of.double(51.5),
        "first": FIRST,
        "last": LAST,
        "samples": _two(FIRST, LAST),
    }
    return _with(sound, changed, more)


def more_of(**fields: Value) -> bytes:
    """An overflow document of the bad bucket."""
    return bson_of.document(("_id", BAD_ID), ("bucket", BAD_ID), *fields.items())


def sound_of(bad: BadDocument) -> list[Bucket]:
    """Buckets of the same policy that keep to the model: one without and, if it may, one with overflow."""
    make = {"reading": reading, "timeseries": reading, "slots": slots, "samples": samples}
    document = make[str(bad.options["model"])]
    found = [Bucket(document(_id=bson_of.int32(1)))]
    if "overflow" in bad.options:
        held = (
            bson_of.array(sample(FIRST, p=bson_of.int32(1)))
            if bad.options["model"] == "samples"
            else slot("7")
        )
        place = "p" if len(bad.options["value_fields"]) > 1 else "more"
        extra = bson_of.document(("_id", bson_of.int32(2)), ("bucket", bson_of.int32(2)), (place, held))
        found.append(Bucket(document(_id=bson_of.int32(2), has_more=bson_of.boolean(True)), (extra,)))
    return found


TRUE = bson_of.boolean(True)
NAN = bson_of.double(float("nan"))
YEAR_10000 = bson_of.date(253_402_300_800_000)
YEAR_0 = bson_of.date(-62_135_596_800_001)
REGEX = bson_of.regex("^M")

#: Options of a policy, and rows: what it is, the document, where it breaks, why, and its overflow.
_TABLE: list[tuple[dict[str, Any], list[tuple[Any, ...]]]] = [
    (READING, [
        ("reading: no time", reading(d=None), "d", "no time: the field is missing or null"),
        ("reading: time is null", reading(d=bson_of.null), "d", "no time: the field is missing"),
        ("reading: time is undefined", reading(d=bson_of.undefined), "d", "no time"),
        ("reading: time is a string", reading(d=bson_of.text("2018")), "d",
         "a date is needed; text such as 2018-06-30T00:00:00Z is read with time_unit"),
        ("reading: time is a number", reading(d=FIRST), "d", "an int stands where a date is needed"),
        ("reading: time is a timestamp", reading(d=bson_of.timestamp(1, 1)), "d", "a timestamp stands"),
        ("reading: time is an array", reading(d=bson_of.array(T0)), "d", "an array stands"),
        ("reading: year 10000", reading(d=YEAR_10000), "d", "outside the years 1 to 9999"),
        ("reading: year 0", reading(d=YEAR_0), "d", "outside the years 1 to 9999"),
        ("reading: the time twice", reading(("d", T0)), "d", "the field appears twice"),
        ("reading: the value twice", reading(("p", bson_of.int32(1))), "p", "the field appears twice"),
        ("reading: the series twice", reading(("symbol", REGEX)), "symbol", "the field appears twice"),
        ("reading: no series", reading(symbol=None), "symbol", "no series: the field is missing"),
        ("reading: series is null", reading(symbol=bson_of.null), "symbol", "no series: the field is"),
        ("reading: series is NaN", reading(symbol=NAN), "symbol", "nan is not a finite number"),
        ("reading: series is infinite", reading(symbol=bson_of.double(float("inf"))), "symbol",
         "inf is not a finite"),
        ("reading: series is a regex", reading(symbol=REGEX), "symbol",
         "no series: a regular expression stands"),
        ("reading: series holds NaN", reading(symbol=bson_of.sub(("a", NAN))), "symbol.a", "nan is not"),
        ("reading: series is not UTF-8", reading(symbol=bson_of.text(b"\xff")), "symbol",
         "no series: 'utf-8'"),
        ("reading: series is an array", reading(symbol=bson_of.array(T0)), "symbol", "no series: an array"),
        ("reading: series is code", reading(symbol=bson_of.code("f")), "symbol", "no series: code stands"),
        ("reading: series is MinKey", reading(symbol=bson_of.min_key), "symbol", "no series: MinKey stands"),
        ("reading: series is MaxKey", reading(symbol=bson_of.max_key), "symbol", "no series: MaxKey stands"),
        ("reading: series is a decimal", reading(symbol=bson_of.decimal("1")), "symbol", "a decimal stands"),
        ("reading: series is a timestamp", reading(symbol=bson_of.timestamp(1, 1)), "symbol", "a timestamp"),
        ("reading: series is a symbol", reading(symbol=bson_of.symbol("M")), "symbol", "a symbol stands"),
        ("reading: series is a DBPointer", reading(symbol=bson_of.db_pointer("c", b"0123456789ab")),
         "symbol", "no series: a DBPointer stands"),
        ("reading: series is no UUID", reading(symbol=bson_of.binary(b"short", 4)), "symbol",
         "no series: cannot decode a uuid"),
        ("reading: series holds what is not UTF-8", reading(symbol=bson_of.sub(("a", bson_of.text(b"\xff")))),
         "symbol", "no series: 'utf-8'"),
        ("reading: series holds an operator", reading(symbol=bson_of.sub(("$gt", bson_of.text("")))),
         "symbol.$gt", "the name of a field in it begins with $"),
        ("reading: series holds one key twice", reading(symbol=bson_of.sub(("a", T0), ("a", T0))), "symbol",
         "the document holds a field twice"),
        ("reading: series holds undefined", reading(symbol=bson_of.sub(("a", bson_of.undefined))), "symbol",
         "or a value of a deprecated type"),
        ("reading: series too deep", reading(symbol=nested(160, bson_of.null)),
         ("symbol" + ".a" * 160)[:80], "more than 150 levels deep"),
        ("reading: series too long", reading(symbol=bson_of.text("x" * (1 << 20))), "symbol",
         "its value has 1,048,581 bytes, and at most 1,048,576 can be"),
        ("reading: the time twice, then a string", reading(("d", bson_of.text("x"))), "d", "appears twice"),
        ("reading: the time twice, a string first", reading(("d", T0), d=bson_of.text("x")), "d",
         "the field appears twice"),
        ("reading: the least date", reading(d=bson_of.date(-(2**63))), "d", "outside the years 1 to 9999"),
        ("reading: the greatest date", reading(d=bson_of.date(2**63 - 1)), "d", "outside the years 1 to"),
        ("reading: time is bytes", reading(d=bson_of.text(b"\xff")), "d", "a string stands where a date"),
        ("reading: time is no UUID", reading(d=bson_of.binary(b"x", 4)), "d", "binary data stands where"),
        ("reading: _id is not UTF-8", reading(_id=bson_of.text(b"\xff")), "_id", "not UTF-8", (), "\\xff"),
        ("reading: _id is a DBPointer", reading(_id=bson_of.db_pointer("c", b"0123456789ab")), "_id",
         "a DBPointer can't be asked for", (), DBRef("c", ObjectId(b"0123456789ab"))),
        ("reading: _id is code with scope", reading(_id=bson_of.code_with_scope("f", ("x", T0))), "_id",
         "code can't be asked for", (), Code("f", {"x": datetime(2018, 6, 30, tzinfo=UTC)})),
        ("reading: _id too long", reading(_id=bson_of.text("x" * 20_000)), "_id",
         "it has 20,005 bytes, and at most 8,192 can be", (),
         repr(b"\x02!N\0\0" + b"x" * 35) + " and 19,966 bytes more, SHA-256 397cf2274760bd8e…"),
    ]),
    (NUMBERS, [
        ("reading: the value is a document", reading(p=bson_of.sub(("a", FIRST))), "p",
         "a document stands where a number is needed; let value_fields say what is in it, or name the field"),
        ("reading: the value is an array", reading(p=bson_of.array(FIRST)), "p",
         "an array stands where a number is needed"),
    ]),
    (NUMBERS_TIMESERIES, [
        ("timeseries: the value is a document", reading(p=bson_of.sub()), "p",
         "a document stands where a number is needed"),
    ]),
    (NUMBERS_MORE, [
        ("slots: a document in a slot of the overflow", slots(has_more=TRUE), "it_more: more.7",
         "a document stands where a number is needed", (more_of(more=bson_of.sub(("7", bson_of.sub()))),)),
    ]),
    (TIMESERIES, [
        ("timeseries: year 10000", reading(d=YEAR_10000), "d", "outside the years 1 to 9999"),
    ]),
    (SECONDS, [
        ('slots: slot "60"', slots(p=slot("60")), "p.60", 'slot "60" is not one of "0" to "59"'),
        ('slots: slot "007"', slots(p=slot("007")), "p.007", 'slot "007" is not one of "0" to "59"'),
        ("slots: a slot twice, padded", slots(p=bson_of.sub(*((it, bson_of.int32(1)) for it in ("7", "07")))),
         "p.07", 'slot "07" appears twice'),
        ('slots: slot "-1"', slots(p=slot("-1")), "p.-1", 'slot "-1" is not one of "0" to "59"'),
        ('slots: slot "1.5"', slots(p=slot("1.5")), "p.1.5", 'slot "1.5" is not one of'),
        ('slots: slot ""', slots(p=slot("")), "p.", 'slot "" is not one of'),
        ("slots: a slot of other digits", slots(p=slot("٣")), "p.٣", 'slot "٣" is not one of'),
        ("slots: a null slot out of range", slots(p=bson_of.sub(("60", bson_of.null))), "p.60", 'slot "60"'),
        ("slots: an array of 61", slots(p=bson_of.array(*[bson_of.int32(1)] * 61)), "p.60", 'slot "60"'),
        ("slots: a slot twice", slots(p=slot("0")), "p.0", 'slot "0" appears twice'),
        ("slots: slots in a slot", slots(p=bson_of.sub(("7", slot("0")))), "p.7",
         "a document stands where a number is needed"),
        ("slots: an array in a slot", slots(p=bson_of.array(bson_of.array())), "p.0",
         "an array stands where a number is needed"),
        ("slots: p is a string", slots(p=bson_of.text("56")), "p",
         "a string stands where the sub-document of slots"),
        ("slots: p is a number", slots(p=bson_of.double(56)), "p",
         "a double stands where the sub-document of slots"),
        ("slots: p twice", slots(("p", bson_of.sub())), "p", "the field appears twice"),
        ("slots: no start", slots(d=None), "d", "no time: the field is missing or null"),
        ("slots: start is null", slots(d=bson_of.null), "d", "no time: the field is missing or null"),
        ("slots: start is a string", slots(d=bson_of.text("x")), "d", "a string stands where a date"),
        ("slots: start off the minute", slots(d=bson_of.day("2018-06-30T00:00:01")), "d",
         "2018-06-30T00:00:01.000Z is not on a whole minute"),
        ("slots: start off by a millisecond", slots(d=bson_of.day("2018-06-30T00:00:00.001")), "d",
         "not on a whole minute"),
        ("slots: start before 1970 off the minute", slots(d=bson_of.date(-1)), "d",
         "1969-12-31T23:59:59.999Z is not"),
    ]),
    (MINUTES, [
        ("slots: start off the quarter", slots(d=bson_of.day("2018-06-30T00:05:00")), "d",
         "not on a whole quarter of an hour"),
        ("slots: start in year 10000", slots(d=YEAR_10000), "d", "outside the years 1 to 9999"),
    ]),
    (SAMPLES, [
        ("samples: count too high", samples(n=bson_of.int32(3)), "n",
         "the field says 3, the array holds 2 samples"),
        ("samples: count too low", samples(n=bson_of.double(1)), "n",
         "the field says 1, the array holds 2 samples"),
        ("samples: count not whole", samples(n=bson_of.double(2.5)), "n",
         "the field says 2.5, the array holds 2"),
        ("samples: count is NaN", samples(n=NAN), "n", "the field says nan"),
        ("samples: count is a string", samples(n=bson_of.text("2")), "n", "no count: a string stands"),
        ("samples: count is a bool", samples(n=TRUE), "n", "no count: a bool stands"),
        ("samples: no count", samples(n=None), "n", "no count: the field is missing or null"),
        ("samples: wrong sum", samples(sum=bson_of.int32(51)), "sum",
         "the field says 51, the samples sum to 51.5"),
        ("samples: sum a little wrong", samples(sum=bson_of.double(51.500001)), "sum",
         "the samples sum to 51.5"),
        ("samples: sum is NaN", samples(sum=NAN), "sum", "the field says nan, the samples sum to 51.5"),
        ("samples: sum is infinite", samples(sum=bson_of.decimal("Infinity")), "sum", "the field says inf"),
        ("samples: sum is a string", samples(sum=bson_of.text("51.5")), "sum", "no sum: a string stands"),
        ("samples: no sum", samples(sum=bson_of.null), "sum", "no sum: the field is missing or null"),
        ("samples: a reading before the first", samples(samples=_two(bson_of.int32(1535530411), LAST)),
         "samples.0.time",
         "the reading at 2018-08-29T08:13:31.000Z is outside the bucket's bounds, 2018-08-29T08:13:32"),
        ("samples: a reading after the last", samples(samples=_two(FIRST, bson_of.int32(1535530433))),
         "samples.1.time", "2018-08-29T08:13:53.000Z is outside the bucket's bounds"),
        ("samples: seconds that come round again",
         samples(samples=_two(FIRST, bson_of.int64(1535530432 + _ROUND))),
         "samples.1.time", "no time: it is outside the years 1 to 9999"),
        ("samples: seconds that come round from below",
         samples(samples=_two(FIRST, bson_of.int64(1535530432 - _ROUND))),
         "samples.1.time", "no time: it is outside the years 1 to 9999"),
        ("samples: a date after the last", samples(samples=_two(FIRST, bson_of.day("2018-08-29T08:13:53"))),
         "samples.1.time", "is outside the bucket's bounds"),
        ("samples: first after last", samples(first=LAST, last=FIRST), "first",
         "the bucket's first time 2018-08-29T08:13:52.000Z is after its last 2018-08-29T08:13:32.999Z"),
        ("samples: no first", samples(first=None), "first", "no time: the field is missing or null"),
        ("samples: last is null", samples(last=bson_of.null), "last",
         "no time: the field is missing or null"),
        ("samples: last is a string", samples(last=bson_of.text("x")), "last",
         "no time: a string stands where"),
        ("samples: first is a decimal", samples(first=bson_of.decimal("1535530412")), "first",
         "a decimal stands where"),
        ("samples: first is NaN", samples(first=NAN), "first", "no time: it is outside"),
        ("samples: first in milliseconds", samples(first=bson_of.int64(1535530412000)), "first",
         "numbers are seconds since 1970, not milliseconds"),
        ("samples: last in year 10000", samples(last=YEAR_10000), "last", "outside the years 1 to 9999"),
        ("samples: last is infinite", samples(last=bson_of.double(float("inf"))), "last",
         "outside the years"),
        ("samples: a sample without time",
         samples(samples=bson_of.array(sample(FIRST), sample(p=bson_of.int32(1)))), "samples.1.time",
         "no time: the field is missing or null"),
        ("samples: a sample's time is null", samples(samples=_two(FIRST, bson_of.null)), "samples.1.time",
         "no time: the field is missing"),
        ("samples: a sample's time is NaN", samples(samples=_two(FIRST, NAN)), "samples.1.time",
         "no time: it is outside"),
        ("samples: a sample's time is a string", samples(samples=_two(bson_of.text("x"), LAST)),
         "samples.0.time", "a string stands where"),
        ("samples: a sample's time in milliseconds",
         samples(samples=_two(FIRST, bson_of.int64(1535530412000))), "samples.1.time", "not milliseconds"),
        ("samples: a sample in year 0", samples(samples=_two(YEAR_0, LAST)), "samples.0.time",
         "outside the years"),
        ("samples: a sample is a number", samples(samples=bson_of.array(sample(FIRST), bson_of.int32(5))),
         "samples.1", "an int stands where a sample is needed"),
        ("samples: a sample is null", samples(samples=bson_of.array(bson_of.null)), "samples.0",
         "null stands where a sample is needed"),
        ("samples: a sample's value twice",
         samples(samples=bson_of.array(bson_of.sub(("time", FIRST), ("p", FIRST), ("p", FIRST)))),
         "samples.0.p", "the field appears twice"),
        ("samples: a sample's value is a document",
         samples(sum=bson_of.int32(0), n=bson_of.int32(1),
                 samples=bson_of.array(sample(FIRST, p=bson_of.sub()))),
         "samples.0.p", "a document stands where a number is needed"),
        ("samples: no samples", samples(samples=None), "samples",
         "no array of samples: the field is missing or null"),
        ("samples: samples are a document", samples(samples=bson_of.sub()), "samples",
         "no array of samples: a document stands"),
    ]),
    (SLOTS_MORE, [
        ("slots: flagged without overflow", slots(has_more=TRUE), "has_more",
         "no document of it_more refers to this bucket"),
        ("slots: the flag is a string", slots(has_more=bson_of.text("true")), "has_more",
         "a string stands where true or false is needed"),
        ("slots: the flag twice", slots(("has_more", TRUE), has_more=bson_of.boolean(False)), "has_more",
         "appears twice"),
        ("slots: overflow slot 60", slots(has_more=TRUE), "it_more: more.60", 'slot "60"',
         (more_of(more=slot("60")),)),
        ("slots: overflow holds nothing", slots(has_more=TRUE), "it_more: more", "no samples",
         (more_of(moar=slot("6")),)),
        ("slots: overflow is a string", slots(has_more=TRUE), "it_more: more", "a string stands",
         (more_of(more=bson_of.text("x")),)),
        ("slots: overflow _id is not UTF-8", slots(has_more=TRUE), "it_more: _id", "not UTF-8",
         (bson_of.document(("_id", bson_of.text(b"\xff")), ("bucket", BAD_ID), ("more", slot("6"))),)),
        ("slots: an overflow reading outside", slots(has_more=TRUE), "it_more: more.0.d",
         "2018-06-30T00:01:00.000Z is outside",
         (more_of(more=bson_of.array(bson_of.sub(("d", bson_of.day("2018-06-30T00:01:00"))))),)),
    ]),
    (SAMPLES_MORE, [
        ("samples: flagged without overflow", samples(has_more=bson_of.int32(1)), "has_more",
         "no document of it_more refers to this bucket"),
        ("samples: overflow without array", samples(has_more=TRUE), "it_more: more",
         "no array of samples: the field is missing", (more_of(),)),
        ("samples: an overflow sample without time", samples(has_more=TRUE), "it_more: more.0.time",
         "no time", (more_of(more=bson_of.array(sample(p=FIRST))),)),
        ("samples: an overflow sample outside", samples(has_more=TRUE), "it_more: more.0.time",
         "is outside the bucket's bounds", (more_of(more=bson_of.array(sample(bson_of.int32(0)))),)),
        ("samples: an overflow sample in milliseconds", samples(has_more=TRUE), "it_more: more.0.time",
         "not milliseconds", (more_of(more=bson_of.array(sample(bson_of.int64(1535530412000)))),)),
    ]),
    ({**SLOTS_MORE, "value_fields": ("p", "q"), "nonnumeric_ok": ("p", "q")}, [
        ("slots: two value fields, overflow of neither", slots(has_more=TRUE), "it_more: more", "no samples",
         (more_of(more=slot("6")),)),
    ]),
    ({**SAMPLES_MORE, "count_field": "n"}, [
        ("samples: count fits neither array nor all", samples(has_more=TRUE, n=bson_of.int32(4)), "n",
         "the field says 4, the array holds 2 samples", (more_of(more=bson_of.array(sample(FIRST))),)),
    ]),
]  # fmt: skip

BAD_DOCUMENTS = [BadDocument(row[0], options, *row[1:]) for options, rows in _TABLE for row in rows]
