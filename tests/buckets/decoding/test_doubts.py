"""Evidence against policies that misread times, and none against those that are right."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo.database import Database

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.sampling.doubts import doubt_of
from bucketwise.buckets.sampling.reading import AsRead
from bucketwise.buckets.sampling.sample import sample
from bucketwise.buckets.source import Source
from bucketwise.config.models import make_policy
from tests.examples import examples

Document = dict[str, Any]
START = datetime(2025, 3, 3, tzinfo=UTC)
NOW = datetime(2026, 3, 3, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
_HEAD = {"name": "p", "collection": "c", "series_fields": ("m",), "value_fields": ("v",)}
SLOTS = {**_HEAD, "model": "slots", "time_field": "d"}
READING = {**_HEAD, "model": "reading", "time_field": "d"}
SAMPLES = {
    **{**_HEAD, "model": "samples", "samples_field": "s", "sample_time_field": "t"},
    **{"start_field": "d", "time_unit": "date"},
}


def doubted(documents: list[Document], keys: Document) -> str | None:
    """The code of the evidence against a policy."""
    docs = Docs.of([bson.encode({"_id": i, "m": "a", **it}) for i, it in enumerate(documents)])
    found = doubt_of(AsRead(Batch.of(docs), make_policy(**keys)), int(NOW.timestamp() * 1000))
    return None if found is None else found.code


def slots(
    count: int, apart: timedelta, keys: range, *, start: datetime = START, holes: int = 0
) -> list[Document]:
    """Documents with these keys; of the first of these on, each `holes`-th is missing."""
    return [
        {"d": start + i * apart, "v": {str(k): k / 2 for k in keys if not holes or (i * 7 + k) % holes}}
        for i in range(count)
    ]


def days(zone: str, count: int, start: datetime, slots_on: Callable[[int], int]) -> list[Document]:
    """A document a local day: an array with so many slots as a day of so many hours has."""
    found = []
    for i in range(count):
        first, last = (start.replace(tzinfo=ZoneInfo(zone)) + timedelta(days=it) for it in (i, i + 1))
        begins, ends = first.astimezone(UTC), last.astimezone(UTC)
        found.append({"d": begins, "v": [1.5] * slots_on((ends - begins) // HOUR)})
    return found


def in_words(documents: list[Document], zone: str) -> list[Document]:
    """The same, with the local day as text."""
    return [{**it, "d": it["d"].astimezone(ZoneInfo(zone)).strftime("%d.%m.%Y")} for it in documents]


def texts(count: int, step: timedelta, form: str, start: datetime = START) -> list[Document]:
    return [{"d": (start + i * step).strftime(form), "v": 1.5} for i in range(count)]


def samples(count: int, apart: timedelta, times: list[int]) -> list[Document]:
    return [{"d": START + i * apart, "s": [{"t": it, "v": 1.5} for it in times]} for i in range(count)]


MINUTE_DOCS = slots(30, timedelta(minutes=1), range(60))
AUTUMN, SPRING = datetime(2025, 10, 15), datetime(2025, 3, 1)  # noqa: DTZ001  (of a local clock)
#: What is read how; the right keys, wrong ones, and what is doubted.
CASES: dict[str, tuple[list[Document], Document, Document, str]] = {
    "minutes as hours": (MINUTE_DOCS, {"slot": "second"}, {"slot": "minute"}, "slots-overlap"),
    "minutes as hours, with holes": (
        slots(30, timedelta(minutes=1), range(60), holes=3),
        {"slot": "second"},
        {"slot": "minute"},
        "slots-overlap",
    ),
    "five minutes of an hour as hours": (
        slots(40, HOUR, range(12)),
        {"slot": "5m", "span": "1h"},
        {"slot": "hour"},
        "slots-overlap",
    ),
    "hours as days of a month": (
        slots(40, DAY, range(24), start=datetime(2025, 3, 1, tzinfo=UTC)),
        {"slot": "hour"},
        {"slot": "day", "span": "month"},
        "slots-overlap",
    ),
    "minutes as seconds": (
        slots(30, HOUR, range(60)),
        {"slot": "minute"},
        {"slot": "second"},
        "slots-sparse",
    ),
    "twenty minutes of a day as quarters": (
        slots(8, DAY, range(72)),
        {"slot": "20m", "span": "day"},
        {"slot": "15m", "span": "day"},
        "slots-sparse",
    ),
    "twenty minutes of a day as quarters, with holes": (
        slots(8, DAY, range(72), holes=3),
        {"slot": "20m", "span": "day"},
        {"slot": "15m", "span": "day"},
        "slots-sparse",
    ),
    "half-hours as quarters, from 1": (
        slots(8, DAY, range(1, 49)),
        {"slot": "30m", "span": "day", "first_slot": 1},
        {"slot": "15m", "span": "day", "first_slot": 1},
        "slots-sparse",
    ),
    "quarters of an hour as minutes": (
        slots(48, HOUR, range(4)),
        {"slot": "15m", "span": "hour"},
        {"slot": "minute"},
        "slots-sparse",
    ),
    "twenty minutes of an hour as quarters, with holes": (
        slots(48, HOUR, range(3), holes=4),
        {"slot": "20m", "span": "hour"},
        {"slot": "15m", "span": "hour"},
        "slots-sparse",
    ),
    "quarters of local days as minutes, one of 25 hours": (
        days("Europe/Berlin", 20, AUTUMN, lambda hours: 4 * hours),
        {"slot": "15m", "span": "day", "timezone": "Europe/Berlin"},
        {"slot": "minute", "span": "day", "timezone": "Europe/Berlin"},
        "slots-sparse",
    ),
    "hours from 1, some missing": (
        slots(20, DAY, range(1, 25), holes=2),
        {"slot": "hour", "first_slot": 1},
        {"slot": "hour"},
        "slots-shifted",
    ),
    "hours from 0, some missing": (
        slots(20, DAY, range(24), holes=2),
        {"slot": "hour"},
        {"slot": "hour", "first_slot": 1},
        "slots-shifted",
    ),
    "days of a month from 1, of which one shows it": (
        [
            {"d": datetime(2025, month, 1, tzinfo=UTC), "v": {str(k): 1.5 for k in range(1, 29)}}
            for month in range(1, 9)
        ],
        {"slot": "day", "span": "month", "first_slot": 1},
        {"slot": "day", "span": "month"},
        "slots-shifted",
    ),
    "day before month": (
        texts(300, DAY, "%d/%m/%Y %H:%M"),
        {"time_format": "%d/%m/%Y %H:%M"},
        {"time_format": "%m/%d/%Y %H:%M"},
        "time-format-unlikely",
    ),
    "month before day": (
        texts(300, DAY, "%Y-%m-%d"),
        {"time_format": "%Y-%m-%d"},
        {"time_format": "%Y-%d-%m"},
        "time-format-unlikely",
    ),
    "day before month, in the first days of one": (
        texts(200, HOUR, "%d/%m/%Y %H:%M", datetime(2025, 3, 1, tzinfo=UTC)),
        {"time_format": "%d/%m/%Y %H:%M"},
        {"time_format": "%m/%d/%Y %H:%M"},
        "time-format-unlikely",
    ),
    "a year of two digits before the day": (
        texts(300, DAY, "%y-%m-%d"),
        {"time_format": "%y-%m-%d"},
        {"time_format": "%d-%m-%y"},
        "time-format-unlikely",
    ),
    "local days as those of UTC": (
        days("Europe/Berlin", 30, AUTUMN, lambda hours: hours),
        {"slot": "hour", "timezone": "Europe/Berlin"},
        {"slot": "hour"},
        "zone-unlikely",
    ),
    "local days as those of another zone": (
        days("Europe/Berlin", 30, AUTUMN, lambda hours: hours),
        {"slot": "hour", "timezone": "Europe/Berlin"},
        {"slot": "hour", "timezone": "America/New_York"},
        "zone-unlikely",
    ),
    "local days of text, one of 25 hours, as those of UTC": (
        in_words(days("Europe/Berlin", 20, AUTUMN, lambda hours: 4 * hours), "Europe/Berlin"),
        {"slot": "15m", "span": "day", "time_format": "%d.%m.%Y", "timezone": "Europe/Berlin"},
        {"slot": "15m", "span": "day", "time_format": "%d.%m.%Y"},
        "zone-unlikely",
    ),
    "local days of text, one of 23 hours, as those of UTC": (
        in_words(days("Europe/Berlin", 40, SPRING, lambda hours: hours), "Europe/Berlin"),
        {"slot": "hour", "time_format": "%d.%m.%Y", "timezone": "Europe/Berlin"},
        {"slot": "hour", "time_format": "%d.%m.%Y"},
        "zone-unlikely",
    ),
    "local days of text as those of another zone": (
        in_words(days("America/New_York", 40, SPRING, lambda hours: hours), "America/New_York"),
        {"slot": "hour", "time_format": "%d.%m.%Y", "timezone": "America/New_York"},
        {"slot": "hour", "time_format": "%d.%m.%Y", "timezone": "Europe/Berlin"},
        "zone-unlikely",
    ),
    "hours of a clock as elapsed ones": (
        days("Europe/Berlin", 30, AUTUMN, lambda _: 24),
        {"slot": "hour", "timezone": "Europe/Berlin", "slot_time": "local"},
        {"slot": "hour", "timezone": "Europe/Berlin"},
        "days-unlikely",
    ),
    "elapsed hours as those of a clock": (
        days("Europe/Berlin", 30, AUTUMN, lambda hours: hours),
        {"slot": "hour", "timezone": "Europe/Berlin"},
        {"slot": "hour", "timezone": "Europe/Berlin", "slot_time": "local"},
        "days-unlikely",
    ),
    **{
        f"{right} as {wrong}": (
            samples(20, apart, list(range(0, 60 * step, step))),
            {"sample_time_unit": right},
            {"sample_time_unit": wrong},
            "samples-unit",
        )
        for right, wrong, apart, step in (
            ("+ms", "+s", HOUR, 60_000),
            ("+s", "+ms", HOUR, 60),
            ("+s", "+m", timedelta(minutes=1), 1),
            ("+m", "+h", HOUR, 1),
        )
    },
}


def _policy(documents: list[Document], keys: Document) -> Document:
    if "s" in documents[0]:
        return {**SAMPLES, **keys}
    return {**(SLOTS if "slot" in keys else READING), **keys}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_key_is_doubted_and_the_right_one_is_not(name: str) -> None:
    documents, right, wrong, code = CASES[name]
    assert doubted(documents, _policy(documents, wrong)) == code
    assert doubted(documents, _policy(documents, right)) is None


@pytest.mark.parametrize(
    "name", [it for it, case in CASES.items() if case[3] in ("slots-overlap", "slots-sparse")]
)
def test_documents_that_are_said_to_lie_so_are_not_doubted(name: str) -> None:
    documents, _, wrong, _ = CASES[name]
    assert doubted(documents, {**_policy(documents, wrong), "sparse_ok": True}) is None


def test_a_few_broken_documents_are_no_evidence() -> None:
    hours = slots(60, DAY, range(1, 24))
    hours[7]["v"]["24"] = 1.5  # nothing else speaks for keys from 1 on
    assert doubted(hours, {**SLOTS, "slot": "hour"}) is None
    dates = texts(60, HOUR, "%d/%m/%Y", datetime(2025, 3, 1, tzinfo=UTC))
    dates[7]["d"] = "12/31/2025"
    assert doubted(dates, {**READING, "time_format": "%d/%m/%Y"}) is None


def test_readings_of_the_first_of_each_month_are_not_taken_for_days() -> None:
    dates = [{"d": f"01/{month:02}/2025", "v": 1.5} for month in range(1, 13)]
    assert doubted(dates, {**READING, "time_format": "%d/%m/%Y"}) is None


def test_nor_are_those_of_many_series() -> None:
    firsts = [f"01/{month:02}/2025 08:00" for month in range(1, 13)]
    dates = [{"m": m, "d": first, "v": 1.5} for first in firsts for m in range(50)]
    assert doubted(dates, {**READING, "time_format": "%d/%m/%Y %H:%M"}) is None


def test_an_order_of_days_that_a_zone_skips_is_no_remedy() -> None:
    """There was no 02:05 on 10 March in New York."""
    times = [f"{month:02}/03/2024 02:{minute:02}" for month in range(1, 13) for minute in (5, 15, 25)]
    dates, form = [{"d": it, "v": 1.5} for it in times], "%m/%d/%Y %H:%M"
    assert doubted(dates, {**READING, "time_format": form}) == "time-format-unlikely"
    assert doubted(dates, {**READING, "time_format": form, "timezone": "America/New_York"}) is None


def test_days_that_begin_at_any_time_are_of_no_zone() -> None:
    starts = (datetime(2025, 7, 1, 3, tzinfo=UTC), datetime(2025, 7, 9, 4, tzinfo=UTC))
    found = [{"d": start, "v": [1.5] * 20} for start in starts]
    assert doubted(found, {**SLOTS, "slot": "hour", "sparse_ok": True}) is None


def test_one_day_without_a_document_is_no_evidence() -> None:
    assert doubted(slots(2, 2 * DAY, range(24)), {**SLOTS, "slot": "hour"}) is None
    assert doubted(slots(2, 20 * DAY, range(24)), {**SLOTS, "slot": "hour"}) == "slots-sparse"


@pytest.mark.parametrize(
    ("documents", "keys"),
    [
        (slots(60, DAY, range(32, 72)), {"slot": "15m", "span": "day"}),  # from eight to six
        (slots(8, HOUR, range(4)), {"slot": "minute", "span": "hour"}),
        ([*slots(40, DAY, range(72)), *slots(20, DAY, range(96), start=START + 40 * DAY)], {"slot": "15m"}),
        (slots(60, DAY, range(50)), {"slot": "15m"}),
    ],
)
def test_slots_that_are_left_free_at_the_end_may_be_right(documents: list[Document], keys: Document) -> None:
    assert doubted(documents, {**SLOTS, "span": "day", **keys}) is None


@pytest.mark.parametrize("lacking", [1, 3])
def test_text_days_that_lack_hours_on_other_days_are_of_no_zone(lacking: int) -> None:
    documents = in_words(days("UTC", 30, SPRING, lambda hours: hours), "UTC")
    for it in documents[12 : 12 + lacking]:
        it["v"] = it["v"][:23]
    assert doubted(documents, {**SLOTS, "slot": "hour", "time_format": "%d.%m.%Y"}) is None


def test_equal_numbers_of_other_types_are_one_series() -> None:
    documents = [{**it, "m": [1, 1.0][i % 2]} for i, it in enumerate(slots(8, DAY, range(24)))]
    assert doubted(documents, {**SLOTS, "slot": "hour"}) is None


def test_days_that_begin_when_clocks_skip_midnight_are_days() -> None:
    start = datetime(2025, 3, 6)  # noqa: DTZ001  (of a local clock)
    found = days("America/Havana", 6, start, lambda hours: hours)
    assert doubted(found, {**SLOTS, "slot": "hour", "timezone": "America/Havana"}) is None


@pytest.mark.parametrize(("unit", "times"), [("+ms", range(0, 4_000, 10)), ("+s", range(60))])
def test_short_bursts_are_no_wrong_unit(unit: str, times: range) -> None:
    """Sixty seconds once an hour look like sixty minutes: nothing tells which is meant."""
    assert doubted(samples(20, HOUR, list(times)), {**SAMPLES, "sample_time_unit": unit}) is None


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d/%m/%Y"])
@pytest.mark.parametrize("months", [6, 12])
def test_months_of_hours_are_no_days(form: str, months: int) -> None:
    """Documents that start with each month: swapped, they would start on the first days of one."""
    starts = [datetime(2025, month, 1, tzinfo=UTC).strftime(form) for month in range(1, months + 1)]
    found: list[Document] = [{"d": it, "v": {str(hour): 1.5 for hour in range(28 * 24)}} for it in starts]
    assert doubted(found, {**SLOTS, "slot": "hour", "span": "month", "time_format": form}) is None


@pytest.mark.parametrize(("form", "day"), [("%Y-%m-%d %H", 5), ("%d/%m/%Y %H", 1), ("%m/%d/%Y %H", 1)])
def test_hours_of_one_day_of_each_month_are_not_those_of_days(form: str, day: int) -> None:
    instants = [datetime(2025, month, day, hour, tzinfo=UTC) for month in range(1, 13) for hour in range(24)]
    found = [{"d": it.strftime(form), "v": 1.5} for it in instants]
    assert doubted(found, {**READING, "time_format": form}) is None


@pytest.mark.parametrize(("zone", "hour"), [("Europe/Berlin", 6), ("America/New_York", 18)])
def test_days_that_begin_at_six_are_of_the_zone_that_the_policy_names(zone: str, hour: int) -> None:
    """A gas day begins at six by one clock, which is midnight by another for most of the year."""
    found: list[Document] = []
    for number in range(300):
        day = datetime(2025, 3, 1) + number * DAY  # noqa: DTZ001  (of a local clock)
        first, last = ((day + it * DAY).replace(hour=hour, tzinfo=ZoneInfo(zone)) for it in (0, 1))
        begins, ends = first.astimezone(UTC), last.astimezone(UTC)
        found.append({"d": begins, "v": [1.5] * ((ends - begins) // HOUR)})
    assert doubted(found, {**SLOTS, "slot": "hour", "timezone": zone}) is None


_HOUR_OF_MS = [{"t": it, "v": 1.5} for it in range(0, 3_600_000, 600_000)]
#: Documents of many series at these hours, of which a sample has the first, the last and some between.
PARTS: dict[str, tuple[int, tuple[int, ...], Document, Document]] = {
    "samples": (250, (0, 1, 2, 1000), {"s": _HOUR_OF_MS}, {**SAMPLES, "sample_time_unit": "+ms"}),
    "slots": (240, (0, 1, 2, 3, 20, 21, 22, 40), {"v": [1.5] * 60}, {**SLOTS, "slot": "minute"}),
}


@pytest.mark.parametrize("name", PARTS)
def test_what_lies_between_parts_of_a_sample_is_no_gap(database: Database[Document], name: str) -> None:
    series, hours, held, keys = PARTS[name]
    policy = make_policy(**keys)
    database["c"].insert_many(
        [{"d": START + it * HOUR, "m": m, **held} for it in hours for m in range(series)]
    )
    database["c"].create_index("d")
    source = Source(database, policy)
    read = AsRead(sample(source), policy, source)
    assert not read.is_whole
    assert doubt_of(read, None) is None


_WIDTHS = [
    ("second", None, 60),
    ("minute", None, 60),
    ("hour", None, 24),
    ("30m", "day", 48),
    ("10s", "1h", 360),
]


@pytest.mark.proof
@settings(max_examples=examples(60))
@given(
    st.sampled_from(_WIDTHS),
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_documents_of_a_right_policy_are_never_doubted(
    width: tuple[str, str | None, int], gaps: list[int], every: int, random: Any
) -> None:
    slot, span, count = width
    length = {60: timedelta(minutes=1) if slot == "second" else HOUR, 360: HOUR}.get(count, DAY)
    at, documents = START, []
    for gap in (0, *gaps):  # each series has some documents that follow one another
        at += (1 + gap) * length
        for start in (at, at + length):
            held = {str(k): 1.5 for k in range(count) if random.random() < 1 / every}
            documents.append({"d": start, "v": held})
        at += length
    keys = {"slot": slot} if span is None else {"slot": slot, "span": span}
    assert doubted(documents, {**SLOTS, **keys}) is None
