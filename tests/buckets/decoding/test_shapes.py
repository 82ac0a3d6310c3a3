"""Further shapes of documents: what is read of them, and what breaks them. Documents are written by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.int64 import Int64

from bucketwise.buckets.decoding.decode import decode
from bucketwise.config.models import make_policy
from tests.buckets.batches import batch_of
from tests.buckets.oracle import Bucket

Document = dict[str, Any]
T0 = datetime(2026, 1, 5, 10, tzinfo=UTC)
MS = int(T0.timestamp()) * 1000

_COMMON: Document = {"name": "it", "collection": "it", "series_fields": ("dev",), "value_fields": ("p",)}
SLOTS: Document = {**_COMMON, "model": "slots", "time_field": "d"}
NESTED: Document = {**SLOTS, "slot_levels": ("minute", "second")}
SECONDS: Document = {**SLOTS, "slot_levels": ("second",), "span": "hour"}
FIVES: Document = {**SLOTS, "slot": "5m", "span": "hour", "first_slot": 1}
RUNNING: Document = {**SLOTS, "slot_levels": ("hour", "minute"), "slot_keys": "running"}
CLOCK: Document = {**SLOTS, "slot": "15m", "span": "day", "slot_keys": "clock"}
SECOND_KEYS: Document = {**CLOCK, "slot": "second"}
LOCAL: Document = {**CLOCK, "slot_time": "local", "timezone": "Europe/Berlin"}
LOCAL_PLACES: Document = {**LOCAL, "slot": "hour", "slot_keys": "number"}
MONTH: Document = {**SLOTS, "slot": "day", "span": "month", "first_slot": 1}
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
    return decode(batch_of(found), make_policy(**keys))


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


def on(day: str, held: Any) -> Document:
    return {"dev": 7, "d": datetime.fromisoformat(day + "+00:00"), "p": held}


def after(day: str, *told: str) -> list[tuple[Any, ...]]:
    """What is told of values 1, 2, …, at these times of a day."""
    times = [datetime.fromisoformat(f"{day}T{it}+00:00") for it in told]
    return [(7, int(it.timestamp()) * 1000 - MS, value) for value, it in enumerate(times, start=1)]


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
    "five minutes from 1": (FIVES, slots({"1": 1, "12": 2}), [(7, 0, 1), (7, 55 * 60_000, 2)]),
    "of them, an array": (FIVES, slots([1, None, 2]), [(7, 0, 1), (7, 600_000, 2)]),
    "running keys": (
        RUNNING,
        on("2026-01-05", {"1": {"60": 1, "119": 2}, "02": {"0120": 3}}),
        after("2026-01-05", "01:00", "01:59", "02:00"),
    ),
    "running keys, arrays": (
        RUNNING,
        on("2026-01-05", [None, [1, 2]]),
        after("2026-01-05", "01:00", "01:01"),
    ),
    "clock times": (
        CLOCK,
        on("2026-01-05", {"23:45": 3, "0730": 2, "00:15:00": 1}),
        after("2026-01-05", "00:15", "07:30", "23:45"),
    ),
    "with seconds": (SECOND_KEYS, on("2026-01-05", {"07:30:05": 1}), after("2026-01-05", "07:30:05")),
    "of a local day whose clock goes back": (
        LOCAL,
        on("2025-10-25T22:00", {"02:45": 1, "03:00": 2, "23:45": 3}),
        after("2025-10-26", "00:45", "02:00", "22:45"),
    ),
    "places of a local day whose clock goes forward": (
        LOCAL_PLACES,
        on("2025-03-29T23:00", [1, None, None, 2]),
        [*after("2025-03-29", "23:00"), (7, after("2025-03-30", "01:00")[0][1], 2)],
    ),
    "days of a month": (
        MONTH,
        on("2024-02-01", {"1": 1, "29": 2}),
        [*after("2024-02-01", "00:00"), (7, after("2024-02-29", "00:00")[0][1], 2)],
    ),
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
    "slot 0 of slots from 1": (FIVES, slots({"0": 1}), "p.0", 'slot "0" is not one of "1" to "12"'),
    "slot 13 of slots from 1": (FIVES, slots({"13": 1}), "p.13", 'slot "13" is not one of "1" to "12"'),
    "place 12 of slots from 1": (FIVES, slots([1] * 13), "p.12", 'slot "12" is not one of "0" to "11"'),
    "a minute of another hour": (
        RUNNING,
        on("2026-01-05", {"1": {"120": 1}}),
        "p.1.120",
        'slot "120" is not one of "60" to "119"',
    ),
    "a clock time off the slots": (CLOCK, on("2026-01-05", {"07:20": 1}), "p.07:20", "is not one of"),
    "24:00": (CLOCK, on("2026-01-05", {"24:00": 1}), "p.24:00", '"00:00" to "23:45"'),
    "24:00 of a day of 25 hours": (LOCAL, on("2025-10-25T22:00", {"24:00": 1}), "p.24:00", "is not one of"),
    "an hour of one digit": (CLOCK, on("2026-01-05", {"7:30": 1}), "p.7:30", "is not one of"),
    "minute 60 of a clock": (CLOCK, on("2026-01-05", {"0760": 1}), "p.0760", "is not one of"),
    "a clock time twice": (CLOCK, on("2026-01-05", {"07:30": 1, "0730": 2}), "p.0730", "appears twice"),
    "clock times of a day from noon": (
        CLOCK,
        on("2026-01-05T12:00", {"07:30": 1}),
        "d",
        "2026-01-05T12:00:00.000Z is not midnight in UTC",
    ),
    "a local time that was skipped": (
        LOCAL,
        on("2025-03-29T23:00", {"01:45": 1, "02:30": 2}),
        "p.02:30",
        "has no such slot: clocks in Europe/Berlin skipped that time",
    ),
    "a place that was skipped": (
        LOCAL_PLACES,
        on("2025-03-29T23:00", [1, 2, 3]),
        "p.2",
        "clocks in Europe/Berlin skipped that time",
    ),
    "a local day from midnight in UTC": (
        LOCAL,
        on("2025-03-29", {"01:45": 1}),
        "d",
        "is not midnight in Europe/Berlin",
    ),
    "a day that a month has not": (
        MONTH,
        on("2025-02-01", {"28": 1, "29": 1}),
        "p.29",
        "has no such slot: the bucket ends before",
    ),
    "a month from its second day": (MONTH, on("2025-02-02", {"1": 1}), "d", "of the first day of a month"),
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
