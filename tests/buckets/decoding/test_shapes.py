"""Further shapes of documents: what is read of them, and what breaks them. Documents are written by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.int64 import Int64

from bucketwise.buckets.decoding.decode import decode
from bucketwise.config.policies import Policy
from tests.buckets.batches import batch_of
from tests.buckets.oracle import Bucket

Document = dict[str, Any]
T0 = datetime(2026, 1, 5, 10, tzinfo=UTC)
MS = int(T0.timestamp()) * 1000

_COMMON: Document = {"name": "it", "collection": "it", "series_fields": ("dev",), "value_fields": ("p",)}
SLOTS: Document = {**_COMMON, "model": "slots", "time_field": "d"}
NESTED: Document = {**SLOTS, "slot_levels": ("minute", "second")}
SECONDS: Document = {**SLOTS, "slot_levels": ("second",), "span": "hour"}
INSIDE: Document = {**SECONDS, "value_fields": ("v.*.p", "v.*.q")}
DAY: Document = {**SLOTS, "slot_levels": ("hour",)}
READING: Document = {**_COMMON, "model": "reading", "time_field": "d"}
ATTRIBUTES: Document = {**READING, "attributes_field": "attrs"}
SAMPLES: Document = {**_COMMON, "model": "samples", "samples_field": "s", "start_field": "first"}
TIMED: Document = {**SAMPLES, "sample_time_field": "t"}
PAIRS: Document = {**SAMPLES, "samples_as": "pairs", "sample_time_unit": "ms"}
SEVERAL: Document = {**TIMED, "series_fields": ("gw", "s.*.dev")}


def read(keys: Document, *documents: Document) -> Any:
    found = [Bucket(bson.encode({"_id": number, **it})) for number, it in enumerate(documents)]
    return decode(batch_of(found), Policy(**keys))


def told(keys: Document, *documents: Document) -> list[tuple[Any, ...]]:
    """Series, milliseconds after T0, and values of each reading."""
    decoded = read(keys, *documents)
    assert decoded.quarantined == []
    columns = decoded.columns
    return [
        (*columns.series[series], time - MS, *values)
        for series, time, *values in zip(
            columns.series_of_readings.tolist(),
            columns.time.tolist(),
            *(column.tolist() for column in columns.values.values()),
            strict=True,
        )
    ]


def slots(held: Any, field: str = "p") -> Document:
    return {"dev": 7, "d": T0, field: held}


SOUND: dict[str, tuple[Document, Document, list[tuple[Any, ...]]]] = {
    "seconds in minutes": (
        NESTED,
        slots({"0": {"1": 1}, "59": {"59": 2.5}}),
        [(7, 1000, 1), (7, 3599000, 2.5)],
    ),
    "of them, padded": (NESTED, slots({"01": {"02": 1}}), [(7, 62_000, 1)]),
    "of them, arrays": (NESTED, slots([None, [None, None, 3]]), [(7, 62_000, 3)]),
    "a minute that is null": (NESTED, slots({"0": None, "1": {"0": 1}}), [(7, 60_000, 1)]),
    "seconds of an hour": (SECONDS, slots({"0": 1, "3599": 2}), [(7, 0, 1), (7, 3_599_000, 2)]),
    "by place": (SECONDS, slots([1, None, 2]), [(7, 0, 1), (7, 2000, 2)]),
    "hours": (DAY, slots({"0": 1, "23": 2}), [(7, 0, 1), (7, 23 * 3_600_000, 2)]),
    "inside slots": (INSIDE, slots({"5": {"p": 1, "q": 2}}, "v"), [(7, 5000, 1, 2)]),
    "inside slots, nothing in one": (
        INSIDE,
        slots({"5": {"x": 1}, "6": None, "7": {"p": 1, "q": 1}}, "v"),
        [(7, 7000, 1, 1)],
    ),
    "attributes": (
        ATTRIBUTES,
        {"dev": 7, "d": T0, "attrs": [{"k": "x", "v": 9}, {"k": "p", "v": 1}]},
        [(7, 0, 1)],
    ),
    "pairs": (
        PAIRS,
        {"dev": 7, "first": T0, "s": [[Int64(MS), 1, "more"], [float(MS + 5), 2]]},
        [(7, 0, 1), (7, 5, 2)],
    ),
    "several series": (
        SEVERAL,
        {
            "gw": 1,
            "first": T0,
            "s": [
                {"dev": "b", "t": T0, "p": 1},
                {"dev": "a", "t": T0, "p": 2},
                {"dev": "b", "t": T0, "p": 3},
            ],
        },
        [(1, "b", 0, 1), (1, "a", 0, 2), (1, "b", 0, 3)],
    ),
    "a text with an offset": (
        {**READING, "time_unit": "iso"},
        {"dev": 7, "d": "2026-01-05T12:00:00.5+02:00", "p": 1},
        [(7, 500, 1)],
    ),
    "a date where text is usual": ({**READING, "time_unit": "iso"}, {"dev": 7, "d": T0, "p": 1}, [(7, 0, 1)]),
    "nanoseconds": (
        {**READING, "time_unit": "ns"},
        {"dev": 7, "d": Int64(MS * 10**6 + 1_499_999), "p": 1},
        [(7, 1, 1)],
    ),
    "fields in _id": (
        {**READING, "time_field": "_id.d", "series_fields": ("_id.dev",)},
        {"_id": {"dev": "x", "d": T0}, "p": 1},
        [("x", 0, 1)],
    ),
    "the whole _id": ({**READING, "series_fields": ("_id",)}, {"_id": "x", "d": T0, "p": 1}, [("x", 0, 1)]),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_is_read(name: str) -> None:
    keys, document, expected = SOUND[name]
    assert told(keys, document) == expected


_EARLY = {"dev": 7, "first": T0, "s": [{"t": datetime(2026, 1, 5, 9, tzinfo=UTC), "p": 1}]}
BROKEN: dict[str, tuple[Document, Document, str, str]] = {
    "a number where seconds are": (
        NESTED,
        slots({"0": 1.5}),
        "p.0",
        "a double stands where the sub-document of slots",
    ),
    "minute 60": (NESTED, slots({"60": {"0": 1}}), "p.60", 'slot "60" is not one of "0" to "59"'),
    "second 60": (NESTED, slots({"0": {"60": 1}}), "p.0.60", 'slot "60" is not one of "0" to "59"'),
    "second 3600": (SECONDS, slots({"3600": 1}), "p.3600", 'slot "3600" is not one of "0" to "3599"'),
    "padded too much": (SECONDS, slots({"00001": 1}), "p.00001", "is not one of"),
    "once more, padded": (NESTED, slots({"1": {"0": 1}, "01": {"0": 2}}), "p.01.0", 'slot "0" appears twice'),
    "hour 24": (DAY, slots({"24": 1}), "p.24", 'slot "24" is not one of "0" to "23"'),
    "a day off the quarter": (
        DAY,
        {**slots({"0": 1}), "d": T0.replace(minute=5)},
        "d",
        "not on a whole quarter",
    ),
    "no sub-document in a slot": (
        INSIDE,
        slots({"5": 1.5}, "v"),
        "v.5",
        "a double stands where a sub-document with p",
    ),
    "attributes are none": (
        ATTRIBUTES,
        {"dev": 7, "d": T0, "attrs": 1},
        "attrs",
        "an int stands where the array of",
    ),
    "an attribute is none": (
        ATTRIBUTES,
        {"dev": 7, "d": T0, "attrs": [1]},
        "attrs.0",
        "stands where an attribute",
    ),
    "no name": (
        ATTRIBUTES,
        {"dev": 7, "d": T0, "attrs": [{"v": 1}]},
        "attrs.0.k",
        "no attribute's name: the field",
    ),
    "a name that is a number": (
        ATTRIBUTES,
        {"dev": 7, "d": T0, "attrs": [{"k": 1}]},
        "attrs.0.k",
        "an int stands",
    ),
    "an attribute twice": (
        ATTRIBUTES,
        {"dev": 7, "d": T0, "attrs": [{"k": "p", "v": 1}] * 2},
        "attrs.1",
        'the attribute "p" appears twice',
    ),
    "a sample that is no pair": (
        PAIRS,
        {"dev": 7, "first": T0, "s": [{"t": MS}]},
        "s.0",
        "a document stands where a",
    ),
    "an empty pair": (PAIRS, {"dev": 7, "first": T0, "s": [[]]}, "s.0.0", "no time: the field is missing"),
    "seconds for milliseconds": (
        PAIRS,
        {"dev": 7, "first": T0, "s": [[MS // 1000, 1]]},
        "s.0.0",
        "is outside",
    ),
    "no series in a sample": (
        SEVERAL,
        {"gw": 1, "first": T0, "s": [{"t": T0}]},
        "s.0.dev",
        "no series: the field is",
    ),
    "a document for a series": (
        SEVERAL,
        {"gw": 1, "first": T0, "s": [{"dev": {}, "t": T0}]},
        "s.0.dev",
        "no series: a document stands",
    ),
    "NaN for a series": (
        SEVERAL,
        {"gw": 1, "first": T0, "s": [{"dev": float("nan"), "t": T0}]},
        "s.0.dev",
        "nan is not a finite number",
    ),
    "a long series": (
        SEVERAL,
        {"gw": 1, "first": T0, "s": [{"dev": "x" * 600, "t": T0}]},
        "s.0.dev",
        "at most 512",
    ),
    "no series beside them": (
        SEVERAL,
        {"first": T0, "s": [{"dev": 1, "t": T0}]},
        "gw",
        "no series: the field is",
    ),
    "before the first time": (TIMED, _EARLY, "s.0.t", "is outside the bucket's bounds"),
    "text that is no time": ({**READING, "time_unit": "iso"}, {"dev": 7, "d": "5 Jan 2026"}, "d", "ISO 8601"),
    "a day that is none": ({**READING, "time_unit": "iso"}, {"dev": 7, "d": "2026-02-30"}, "d", "ISO 8601"),
    "a number for text": (
        {**READING, "time_unit": "iso"},
        {"dev": 7, "d": MS},
        "d",
        "a long stands where a date or",
    ),
    "text for a number": (
        {**READING, "time_unit": "ms"},
        {"dev": 7, "d": "x"},
        "d",
        "a string stands where a date or",
    ),
    "a number where dates alone are": (
        {**TIMED, "time_unit": "date"},
        {"dev": 7, "first": 5, "s": []},
        "first",
        "an int stands where a date is needed",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_a_shape_is_told_and_the_others_go_on(name: str) -> None:
    keys, document, field, reason = BROKEN[name]
    sound = [it for of, it, _ in SOUND.values() if of == keys and "_id" not in it]
    decoded = read(keys, document, *sound, document)
    assert decoded.units.tolist() == list(range(1, 1 + len(sound)))
    assert [(it.field, reason in it.reason) for it in decoded.quarantined] == [(field, True)] * 2


def test_a_bucket_without_samples_and_last_time_is_where_it_starts() -> None:
    decoded = read(TIMED, {"dev": 7, "first": T0, "s": []}, {"dev": 7, "first": T0, "s": [{"t": T0, "p": 1}]})
    assert decoded.quarantined == [] and decoded.last.tolist() == [MS, MS]


def test_attributes_in_any_order_are_read_by_their_names() -> None:
    documents = [
        {"dev": 7, "d": T0, "attrs": [{"k": name, "v": place} for place, name in enumerate(names)]}
        for names in (["p", "x"], ["x", "p"], ["y", "p"], ["p"], ["x"]) * 5
    ]
    values = [values for _, _, *values in told(ATTRIBUTES, *documents[:4], *documents[5:9])]
    assert values == [[0], [1], [1], [0]] * 2
    assert read(ATTRIBUTES, documents[4]).columns.kinds["p"].tolist() == [0]
