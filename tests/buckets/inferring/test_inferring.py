"""Guesses at collections: every model and shape of the tests, odd ones, and fields of any name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.int64 import Int64
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.columns import ValueKind
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.inferring.guess import Guess, guess
from bucketwise.config.models import ReadingPolicy, SlotsPolicy
from tests.archivers import builders
from tests.archivers.builders import Case
from tests.buckets import handmade as bson_of
from tests.buckets import strategies
from tests.buckets.batches import batch_of
from tests.buckets.handmade import Field
from tests.buckets.oracle import Bucket
from tests.examples import examples

Document = dict[str, Any]
T0 = datetime(2026, 1, 5, 10, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=it) for it in (1, 60, 3600, 86400))
#: What says how documents are read.
LAYOUT = {"model", "time_field", "time_unit", "slot", "slot_levels", "span", "samples_field", "samples_as"}
LAYOUT |= {"sample_time_field", "sample_time_unit", "start_field", "end_field", "count_field", "sum_fields"}
LAYOUT |= {"attributes_field", "attribute_key", "attribute_value", "series_fields", "value_fields"}


def infer(documents: Sequence[Document], indexes: Sequence[Sequence[str]] = (), **native: str) -> Guess:
    numbered = ({"_id": it.get("_id", number), **it} for number, it in enumerate(documents))
    raw = [bson.encode(it, codec_options=builders.CODEC) for it in numbered]
    return guess("it", "it", Docs.of(raw), indexes, native or None)


def keys(found: Guess) -> Document:
    """What the policy says of the layout."""
    assert found.policy is not None, found.evidence
    return {key: it for key, it in found.policy.model_dump(exclude_unset=True).items() if key in LAYOUT}


def questions(found: Guess) -> str:
    return " ".join(it for texts in found.notes.questions.values() for it in texts)


@pytest.mark.parametrize("case", [*builders.deletable(), builders.timeseries()], ids=lambda case: case.name)
def test_every_model(case: Case) -> None:
    native = {"timeField": "d", "metaField": "symbol"} if case.policy.model == "timeseries" else None
    found = guess("it", "it", Docs.of(case.documents), [], native)
    wanted = {key: it for key, it in case.policy.model_dump(exclude_unset=True).items() if key in LAYOUT}
    if case.name == "samples-overflow":
        wanted["sum_fields"] = {"val": "sum"}  # the builder leaves it out, and it agrees
    assert keys(found) == wanted
    assert f"{len(case.documents)} of {len(case.documents)} sampled documents" in found.evidence[0]
    if case.policy.overflow is None:
        assert found.evidence[0].endswith(f" {len(case.readings):,} readings")


def reading(at: int, **more: Any) -> Document:
    return {"sensor": f"s{at % 3}", "at": T0 + at * MINUTE, "t": 20 + at % 7 / 4, **more}


READINGS = [reading(at) for at in range(40)]
ROWS = [tuple(it.values()) for it in READINGS]
BASE: Document = {
    "model": "reading",
    "time_field": "at",
    "series_fields": ("sensor",),
    "value_fields": ("t",),
}
ODD: dict[str, tuple[list[Document], Document]] = {
    "nested meta": (
        [{"meta": {"site": {"id": s}}, "at": at, "v": {"a": t, "b": at.minute // 9}} for s, at, t in ROWS],
        {**BASE, "series_fields": ("meta.site.id",), "value_fields": ("v.a", "v.b")},
    ),
    "string _id": ([{**it, "_id": f"{it['sensor']}-{it['at']}"} for it in READINGS], BASE),
    "compound _id": (
        [{"_id": {"dev": it["sensor"], "at": it["at"]}, "t": it["t"]} for it in READINGS],
        {**BASE, "time_field": "_id.at", "series_fields": ("_id.dev",)},
    ),
    "nested in _id": (
        [{"_id": {"of": {"dev": it["sensor"]}, "at": it["at"]}, "t": it["t"]} for it in READINGS],
        {**BASE, "time_field": "_id.at", "series_fields": ("_id.of.dev",)},
    ),
    "numbers for series": (
        [{"deviceId": number % 4, "at": it["at"], "t": it["t"]} for number, it in enumerate(READINGS)],
        {**BASE, "series_fields": ("deviceId",)},
    ),
    "a number that no name explains": (
        [{"x": dev, "at": it["at"], "t": it["t"]} for it in READINGS for dev in (1, 2)],
        {**BASE, "series_fields": ("x",)},
    ),
    "an ObjectId for series": (
        [{**it, "sensor": ObjectId(bytes([it["at"].minute % 2] * 12))} for it in READINGS],
        BASE,
    ),
    "one series": ([{"at": it["at"], "t": it["t"]} for it in READINGS], {**BASE, "series_fields": ()}),
    "book-keeping beside": ([{"createdAt": T0, **it, "updated_at": T0, "__v": 0} for it in READINGS], BASE),
    "flags and texts beside": (
        [{**it, "ok": True, "note": "x" * number} for number, it in enumerate(READINGS)],
        BASE,
    ),
    "decimals and longs": (
        [{**it, "t": bson.Decimal128("1.5"), "n": Int64(2**60 + i)} for i, it in enumerate(READINGS)],
        {**BASE, "value_fields": ("t", "n")},
    ),
    "a place on a map": ([{**it, "loc": {"type": "P", "coordinates": [8.5, 47.4]}} for it in READINGS], BASE),
    "a few broken ones": ([*READINGS, {"sensor": "s0", "t": 1.5}, {"at": T0, "t": 1.5}], BASE),
    "epoch microseconds": (
        [{**it, "at": Int64(it["at"].timestamp() * 1_000_000)} for it in READINGS],
        {**BASE, "time_unit": "us"},
    ),
    "attributes of other names": (
        [
            {"sensor": sensor, "at": at, "m": [{"name": "t", "val": t}, {"name": "u", "val": "C"}]}
            for sensor, at, t in ROWS
        ],
        {**BASE, "attributes_field": "m", "attribute_key": "name", "attribute_value": "val"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_documents(name: str) -> None:
    documents, wanted = ODD[name]
    assert keys(infer(documents)) == wanted


SLOTTED: dict[str, tuple[timedelta, int, Any, Document]] = {
    "seconds": (MINUTE, 60, str, {"slot": "second"}),
    "minutes": (HOUR, 60, str, {"slot": "minute"}),
    "hours": (DAY, 24, "{:02}".format, {"slot_levels": ("hour",)}),
    "minutes of a day": (DAY, 1440, str, {"slot": "minute", "span": "day"}),
    "seconds of an hour": (HOUR, 3600, str, {"slot": "second", "span": "hour"}),
}


@pytest.mark.parametrize("name", SLOTTED)
@pytest.mark.parametrize("is_array", [False, True])
def test_slots(name: str, is_array: bool) -> None:
    length, count, key, wanted = SLOTTED[name]
    start = T0.replace(hour=0)
    values = [number / 4 for number in range(count)]
    held: Any = values if is_array else {key(number): value for number, value in enumerate(values)}
    found = infer([{"dev": "a", "d": start + at * length, "p": held} for at in range(5)])
    common = {"model": "slots", "time_field": "d", "series_fields": ("dev",), "value_fields": ("p",)}
    assert keys(found) == {**common, **wanted}
    assert f'{count:,} slots under "p": {5 * count:,} readings' in found.evidence[0]


def test_days_of_another_zone() -> None:
    """Clocks change between the second and the third day."""
    starts = [
        datetime(2026, 3, day, hour, tzinfo=UTC) for day, hour in ((27, 23), (28, 23), (29, 22), (30, 22))
    ]
    found = infer([{"dev": 1, "d": it, "p": {str(hour): 1.5 for hour in range(24)}} for it in starts])
    assert isinstance(found.policy, SlotsPolicy) and found.policy.slot_levels == ("hour",)


def test_a_single_bucket_leaves_a_question() -> None:
    found = infer([{"dev": 1, "d": T0, "p": {str(slot): 1.5 for slot in range(60)}}])
    assert found.asked
    assert [it.keys for it in found.ways][:2] == [{"slot": "minute"}, {"slot": "second"}]


def test_samples_of_several_series_and_of_none() -> None:
    samples = [{"sensor": f"s{at % 3}", "t": T0 + at * SECOND, "v": at / 4} for at in range(9)]
    buckets = [{"gw": 1, "first": T0, "last": T0 + MINUTE, "readings": samples} for _ in range(3)]
    assert keys(infer(buckets))["series_fields"] == ("gw", "readings.*.sensor")
    empty = [*buckets, {"gw": 1, "first": T0, "last": T0, "readings": []}]
    assert keys(infer(empty)) == keys(infer(buckets))


def test_a_count_that_differs_now_and_then_is_left_out() -> None:
    def bucket(size: int, count: int) -> Document:
        samples = [{"t": T0 + at * SECOND, "v": at / 4} for at in range(size)]
        return {"dev": 1, "first": T0, "last": T0 + MINUTE, "n": count, "samples": samples}

    found = infer([*(bucket(size, size) for size in range(1, 9)), bucket(4, 5)])
    assert "count_field" not in keys(found)
    assert '"n"' in questions(found) and "left out" in questions(found)


def test_sums_beyond_the_greatest_double() -> None:
    def bucket(at: int) -> Document:
        samples = [{"t": T0 + at * MINUTE, "v": value} for value in (1.7e308, 1.7e308, -1.7e308, float(at))]
        return {"dev": 1, "first": T0 + at * MINUTE, "last": T0 + at * MINUTE, "s": at, "samples": samples}

    found = keys(infer([bucket(at) for at in range(1, 9)]))
    assert found["value_fields"] == ("v",) and "sum_fields" not in found


def test_what_is_read_in_part_is_told() -> None:
    found = infer([*READINGS, {"sensor": "s0", "t": 1.5}])
    assert found.evidence[0].startswith("40 of 41 sampled documents")
    assert "1 of 41 don't keep to it" in questions(found) and "no time" in questions(found)


def test_text_among_numbers_is_told() -> None:
    found = infer([*READINGS, reading(41, t="broken")])
    assert 'nonnumeric_ok = ["t"]' in questions(found)


@pytest.mark.parametrize("odd", [bson.Decimal128("sNaN"), bson.Decimal128("1E+6000"), 1e308, float("-inf")])
def test_numbers_at_the_rim(odd: Any) -> None:
    assert keys(infer([*READINGS, reading(40, t=odd)])) == BASE
    times = [{**it, "at": it["at"].timestamp()} for it in READINGS]
    found = infer([*times, {**times[0], "at": odd}])
    assert keys(found) == {**BASE, "time_unit": "s"}


def test_an_index_tells_series() -> None:
    documents = [{"a": at // 5, "b": at % 3, "at": T0 + at * MINUTE, "t": 1.5} for at in range(30)]
    found = infer(documents, [["b", "at"]])
    assert (keys(found)["series_fields"], keys(found)["value_fields"]) == (("b",), ("a", "t"))


def test_whole_numbers_of_things_tell_series_where_nothing_else_does() -> None:
    documents = [{"at": T0 + it * MINUTE, "probe": 1001 + it % 3, "nr": it, "v": it / 4} for it in range(40)]
    assert keys(infer(documents))["series_fields"] == ("probe",)
    beside = infer([{**it, "dev": "a"} for it in documents])
    assert [it.policy.series_fields for it in beside.ways] == [("dev", "probe"), ("dev",)]


def test_what_is_unique_is_no_series() -> None:
    found = infer([{**it, "message_id": str(ObjectId())} for it in READINGS])
    assert keys(found)["series_fields"] == ("sensor",)
    assert '"message_id"' in questions(found)


def test_offsets_and_zones() -> None:
    offset = infer([{**it, "tz": -330} for it in READINGS])
    assert offset.policy is not None and offset.policy.local_offset_field == "tz"
    zone = infer([{**it, "zone": "Europe/Berlin"} for it in READINGS])
    assert zone.timezone == "Europe/Berlin" and keys(zone) == BASE
    zones = [{**it, "zone": ("Europe/Berlin", "Asia/Tokyo")[at % 2]} for at, it in enumerate(READINGS)]
    assert infer(zones).timezone is None and "Asia/Tokyo" in questions(infer(zones))


def test_native_collections() -> None:
    at = {"timeField": "at"}
    nested = [{"at": it["at"], "meta": {"dev": it["sensor"], "n": 1}, "t": it["t"]} for it in READINGS]
    found = infer(nested, **at, metaField="meta")
    assert keys(found)["series_fields"] == ("meta.dev", "meta.n")
    nested[3]["meta"] = {"dev": "x"}
    assert keys(infer(nested, **at, metaField="meta"))["series_fields"] == ("meta",)
    alone = [{"at": it["at"], "t": it["t"]} for it in READINGS]
    assert keys(infer(alone, **at))["series_fields"] == ()


def test_noise() -> None:
    noisy = infer([reading(at, sensor="s", t=at * 7919 % 100 / 4) for at in range(100)])
    slow = infer([reading(at, sensor="s", t=at / 4) for at in range(100)])
    assert (noisy.is_noisy, slow.is_noisy) == (True, False)


NONE: dict[str, tuple[list[Document], str]] = {
    "nothing": ([], "it is empty"),
    "people": ([{"name": f"u{at}", "age": at} for at in range(9)], "no field holds times"),
    "people with birthdays": ([{"name": f"u{at}", "born": T0} for at in range(9)], "no field holds numbers"),
    "summaries": (
        [{"_id": {"series": {"s": 1}, "start": T0}, "start": T0, "end": T0, "count": 1, "p": {"sum": 1.5}}],
        "it holds summaries",
    ),
}


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_time_series(name: str) -> None:
    documents, reason = NONE[name]
    found = infer(documents)
    assert found.policy is None and reason in found.evidence[0]


digits = st.integers(0, 70).map(str)
slotted = st.recursive(
    st.one_of(strategies.numbers, strategies.nothings, strategies.dates, st.just(bson_of.text("x"))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6).map(lambda held: bson_of.array(*held)),
        st.lists(st.tuples(st.one_of(digits, st.just("v")), inner), max_size=6).map(
            lambda held: bson_of.sub(*held)
        ),
    ),
    max_leaves=12,
)
whatever = st.lists(st.tuples(strategies.names, st.one_of(strategies.anything, slotted)), max_size=5)


@settings(max_examples=examples(30))
@given(
    st.lists(whatever, min_size=1, max_size=5), st.sampled_from([None, {"timeField": "d", "metaField": "m"}])
)
def test_whatever_documents_hold(documents: list[list[Field]], native: dict[str, str] | None) -> None:
    """There is a guess or a reason."""
    day = [("d", bson_of.day("2026-01-05"))]
    raw = [bson_of.document(("_id", bson_of.int32(at)), *day, *it) for at, it in enumerate(documents)]
    found = guess("it", "it", Docs.of(raw), [], native)
    assert found.evidence


def test_times_beyond_all_calendars_are_no_times() -> None:
    pair = bson_of.array(bson_of.double(2.0**63 / 1000), bson_of.double(0.0))
    document = bson_of.document(("_id", bson_of.int32(1)), ("held", bson_of.array(pair)))
    assert guess("it", "it", Docs.of([document]), [], None).evidence


@settings(max_examples=examples(25))
@given(strategies.cases())
def test_buckets_of_any_policy(case: strategies.Case) -> None:
    """There is a guess or a reason."""
    assert guess("it", "it", Docs.of([it.main for it in case.buckets]), [], None).evidence


names = st.text(st.characters(codec="utf-8", exclude_characters="\0.*$"), min_size=1, max_size=8).filter(
    lambda it: not it.isdigit() and it not in ("_id", "__v") and not it.startswith("__")
)
FORMS: dict[str, Callable[[datetime], Any]] = {
    "date": lambda at: at,
    "s": lambda at: int(at.timestamp()),
    "ms": lambda at: Int64(at.timestamp() * 1000),
    "us": lambda at: Int64(int(at.timestamp()) * 10**6),
    "ns": lambda at: Int64(int(at.timestamp()) * 10**9),
    "iso": lambda at: at.isoformat(),
}
_NOT_OURS = {"time", "dt", "start", "end", "count", "timezone", "hours"}


@settings(max_examples=examples(30))
@given(
    fields=st.lists(names, min_size=3, max_size=5, unique_by=str.casefold),
    unit=st.sampled_from(sorted(FORMS)),
)
def test_fields_of_any_name(fields: list[str], unit: str) -> None:
    """Time, series and values are told by what they hold: every number is read, by series and time."""
    series, time, *values = fields
    assume(not _NOT_OURS & {it.casefold() for it in fields})
    readings = [
        (f"s{at % 3}", T0 + at * MINUTE, [at / 3 + place for place in range(len(values))]) for at in range(30)
    ]
    documents = [
        {series: name, time: FORMS[unit](at), **dict(zip(values, held, strict=True))}
        for name, at, held in readings
    ]
    found = infer(documents)
    assert isinstance(found.policy, ReadingPolicy), found.evidence
    assert found.policy.time_unit == (None if unit == "date" else unit)
    raw = [Bucket(bson.encode({"_id": number, **it})) for number, it in enumerate(documents)]
    columns = decode(batch_of(raw), found.policy).columns
    told = [
        (*columns.series[of], at, [float(columns.values[it][row]) for it in columns.values])
        for row, (of, at) in enumerate(zip(columns.series_of_readings, columns.time.tolist(), strict=True))
    ]
    assert told == [(name, int(at.timestamp() * 1000), held) for name, at, held in readings]
    assert all((it == ValueKind.FINITE).all() for it in columns.kinds.values())


@pytest.mark.parametrize(("format", "is_double"), [("%Y%m%d%H%M%S", False), ("%Y%m%d%H%M", True)])
def test_whole_numbers_may_be_dates_by_their_digits(format: str, is_double: bool) -> None:
    numbers = [int((T0 + it * HOUR + 7 * SECOND).strftime(format)) for it in range(24)]
    found = infer([{"dev": "a", "n": float(it) if is_double else Int64(it), "v": it / 7} for it in numbers])
    policy = keys(found)
    assert (policy["model"], policy["time_field"], policy["value_fields"]) == ("reading", "n", ("v",))
    assert found.policy is not None
    assert getattr(found.policy, "time_format", None) == format


def test_fields_that_no_policy_can_name_are_told() -> None:
    documents = [{"dev": "a", "d": T0 + it * HOUR, "temp.c": it / 7, "s": [{"$x": 1}]} for it in range(24)]
    assert infer(documents).reasons[1].startswith('No policy can name the fields "$x", "temp.c":')
    found = infer([{**it, "v": 1.5} for it in documents])
    assert keys(found)["value_fields"] == ("v",)
    assert 'No policy can name the fields "$x", "temp.c":' in questions(found)


def test_samples_that_tell_a_time_of_day_alone_are_not_read_by_their_place() -> None:
    def documents(minute: int) -> list[Document]:
        times = [f"{hour:02}:{minute:02}" for hour in range(24)]
        return [
            {"dev": "a", "day": T0 + 24 * it * HOUR, "s": [{"at": at, "v": it / 7} for at in times]}
            for it in range(7)
        ]

    assert infer(documents(30)).policy is None
    assert keys(infer(documents(0)))["value_fields"] == ("s.*.v",)


def test_days_of_25_hours_may_be_every_fourth() -> None:
    days = [("24/10/2025", 48), ("25/10/2025", 48), ("26/10/2025", 50), ("27/10/2025", 48)]
    found = infer(
        [{"unit": "u", "day": day, "mw": {str(it + 1): it / 7 for it in range(n)}} for day, n in days]
    )
    ways = [it.policy.model_dump(mode="json", exclude_unset=True) for it in found.ways]
    assert {(it["slot"], it["first_slot"]) for it in ways} == {("30m", 1)}
    assert "Europe/London" in [it["timezone"] for it in ways]


@pytest.mark.parametrize(
    ("clock", "format"),
    [(lambda at: f"{at:%H%M}", "%Y%m%d %H%M"), (lambda at: int(f"{at:%H%M}"), None)],
    ids=["with all digits", "as a number"],
)
def test_a_time_of_day_without_colon_beside_its_day(
    clock: Callable[[datetime], Any], format: str | None
) -> None:
    times = [T0 + it * HOUR + it * MINUTE for it in range(48)]
    found = infer([{"dev": "a", "datum": int(f"{at:%Y%m%d}"), "zeit": clock(at), "v": 0.5} for at in times])
    assert getattr(found.policy, "time_format", None) == format
