"""Documents whose times no policy can read are not read as something else; what they may mean as well is
asked."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import bson
import pytest
from bson import ObjectId

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.inferring.guess import Guess, guess

Document = dict[str, Any]
START = datetime(2025, 6, 3, tzinfo=UTC)
MINUTE, HOUR, DAY = (timedelta(minutes=it) for it in (1, 60, 1440))
TIMES = [START + it * 20 * MINUTE for it in range(150)]
HALVES = [START + it * 30 * MINUTE for it in range(5 * 48)]


def made_at(at: datetime, number: int = 0) -> ObjectId:
    return ObjectId(int(at.timestamp()).to_bytes(4, "big") + number.to_bytes(8, "big"))


def inferred(documents: list[Document]) -> Guess:
    """Documents that were written one by one, long after their readings."""
    ids = (made_at(START + 40 * DAY + it * 7 * MINUTE, it) for it in range(len(documents)))
    raw = [bson.encode({"_id": id, **it}) for id, it in zip(ids, documents, strict=True)]
    return guess("it", "it", Docs.of(raw), [], None)


def of_both(times: list[datetime], rest: Callable[[datetime], Document]) -> list[Document]:
    return [{"dev": dev, **rest(at), "v": i / 7} for i, at in enumerate(times) for dev in ("a", "b")]


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0)


REFUSED: dict[str, tuple[list[Document], str]] = {
    "a time of day that lacks digits": (
        of_both(TIMES, lambda at: {"dt": int(f"{at:%Y%m%d}"), "tm": int(f"{at:%H%M%S}")}),
        '"tm" seems to tell where in the day of "dt"',
    ),
    "days since 1899": (
        of_both(TIMES, lambda at: {"date": (at - datetime(1899, 12, 30, tzinfo=UTC)) / DAY}),
        '"date" seems to tell times',
    ),
    "minutes since 1970": (
        of_both(TIMES, lambda at: {"epoch_min": int(at.timestamp()) // 60}),
        '"epoch_min" seems to tell times',
    ),
    "quarters of a year": (
        of_both([START + it * 91 * DAY for it in range(8)], lambda at: {"q": f"Q{at.month // 3} {at:%Y}"}),
        '"q" seems to tell times',
    ),
    "weeks": (
        of_both([START + it * 7 * DAY for it in range(8)], lambda at: {"wk": f"{at:%G-W%V}"}),
        '"wk" seems to tell times',
    ),
    "a year and its months": (
        [
            {"dev": dev, "year": year, **{f"{START.replace(month=it):%b}": it / 4 for it in range(1, 13)}}
            for year in range(2019, 2025)
            for dev in ("a", "b")
        ],
        '"year" seems to tell times',
    ),
    "a pair of time and value": (
        of_both(TIMES, lambda at: {"value": [at.timestamp(), "1.5"]}),
        '"value" seems to tell times',
    ),
    "a date and an hour": (
        of_both(TIMES[::3], lambda at: {"date": _midnight(at), "hour": at.hour}),
        '"hour" seems to tell where in the day of "date"',
    ),
    "a date and a time of day": (
        of_both(TIMES, lambda at: {"date": _midnight(at), "t": f"{at:%H:%M}"}),
        '"t" seems to tell where in the day of "date"',
    ),
    "a day and its half-hours, from 1": (
        of_both(HALVES, lambda at: {"d": f"{at:%Y-%m-%d}", "p": at.hour * 2 + at.minute // 30 + 1}),
        '"p" seems to tell where in the day of "d"',
    ),
    "an hour and a minute": (
        of_both(TIMES, lambda at: {"h": at.replace(minute=0), "m": at.minute}),
        '"m" seems to tell where in the hour of "h"',
    ),
    "an array of the parts of a date": (
        of_both(TIMES, lambda at: {"time": [at.year, at.month, at.day, at.hour, at.minute]}),
        '"time" seems to tell times',
    ),
    "a date as JSON has it": (
        of_both(TIMES, lambda at: {"ts": {"$date": int(at.timestamp()) * 1000}}),
        '"$date" seems to tell times',
    ),
    "seconds as text with a fraction": (
        of_both(TIMES, lambda at: {"ts": f"{at.timestamp():.3f}"}),
        '"ts" seems to tell times',
    ),
    "hours since 1970": (
        of_both(TIMES[::3], lambda at: {"x": int(at.timestamp()) // 3600}),
        '"x" seems to tell times',
    ),
    "a field for each interval": (
        [
            {
                "dev": dev,
                "d": START + day * DAY,
                "s": {f"{at:%H:%M}-{at + 30 * MINUTE:%H:%M}": 1.5 for at in HALVES[:48]},
            }
            for day in range(9)
            for dev in ("a", "b")
        ],
        '"s.00:00-00:30" to "s.23:30-00:00" seem to be places',
    ),
    "samples whose seconds begin anywhere": (
        [
            {"d": START + day * DAY, "s": [{"t": (it * 37) % 60 / 4, "v": it / 7} for it in range(9)]}
            for day in range(9)
        ],
        '"t" of samples tells no times since 1970',
    ),
    "a field for each hour": (
        [
            {"dev": dev, "d": START + day * DAY, **{f"h{it:02}": it / 4 + day for it in range(24)}}
            for day in range(9)
            for dev in ("a", "b")
        ],
        '"h00" to "h23" seem to be places',
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_times_that_no_policy_reads_are_not_told_by_others(name: str) -> None:
    documents, why = REFUSED[name]
    found = inferred(documents)
    assert found.policy is None, found.policy
    assert why in found.evidence[0]


@pytest.mark.parametrize(
    "more",
    [
        lambda at: {"firmware": "1.2.3", "fcnt": at.hour * 3 + at.minute // 20},
        lambda at: {"msg": f"{at.hour * 3 + at.minute // 20:04x}-41-e8", "t": at.hour / 3},
        lambda at: {"note": "since 2019", "min": at.hour // 4, "max": at.hour // 4 + 3},
    ],
)
def test_ids_tell_times_where_nothing_else_does(more: Callable[[datetime], Document]) -> None:
    found = inferred(of_both(TIMES[:60], more))
    assert found.policy is not None, found.evidence
    assert (found.policy.time_field, found.asked) == ("_id", False)


@pytest.mark.parametrize("lasts", [1, 2])
def test_object_ids_of_another_field_may_tell_the_time(lasts: int) -> None:
    """Each of its own, or shared by the readings of one instant."""
    times = [TIMES[it // lasts] for it in range(120)]
    documents = [
        {"dev": "ab"[i % 2], "sensor_ref": made_at(START, i % 40), "oid": made_at(at), "v": i / 7}
        for i, at in enumerate(times)
    ]
    found = inferred(documents)
    assert [it.policy.time_field for it in found.ways] == ["_id", "oid"]
    assert {it.policy.model_dump()["time_unit"] for it in found.ways} == {"objectid"}
    numbered = [bson.encode({"_id": i, **it}) for i, it in enumerate(documents)]
    alone = guess("it", "it", Docs.of(numbered), [], None)
    assert alone.policy is not None
    assert (alone.policy.time_field, alone.asked) == ("oid", False)
    assert "ObjectIds" in alone.notes.questions["time_field"][0]


def _of_things(name: str, apart: timedelta, things: tuple[int, ...]) -> Iterator[Document]:
    for i, at in enumerate(TIMES[:40]):
        for place, thing in enumerate(things):
            yield {"at": at + place * apart, name: thing, "v": (i * 37 + place) % 101 / 4}


@pytest.mark.parametrize(
    ("documents", "series"),
    [
        (list(_of_things("haus", 9 * MINUTE, (11, 17))), ("haus",)),
        (list(_of_things("zaehler", timedelta(seconds=5), (4711, 4712, 4720))), ("zaehler",)),
        (list(_of_things("n", 5 * MINUTE, (1, 2, 3, 4))), ("n",)),  # in turn, and evenly all together
        ([{"cp": f"c{i % 2}", **it} for it in _of_things("n", MINUTE, (1, 2)) for i in (0, 1)], ("cp", "n")),
        (
            [
                {**it, "haus": 1 + i % 3, "top": 1 + i // 3 % 2}
                for i, it in enumerate(_of_things("x", timedelta(seconds=7), (1, 2, 3, 4, 5, 6)))
            ],
            ("haus", "top"),
        ),
    ],
)
def test_whole_numbers_that_name_a_thing_are_asked_about(
    documents: list[Document], series: tuple[str, ...]
) -> None:
    documents = [{key: it for key, it in one.items() if key != "x"} for one in documents]
    found = inferred(documents)
    assert found.asked
    assert set(found.ways[0].policy.series_fields) == set(series)
    assert found.ways[0].policy.value_fields == ("v",)
    assert set(found.ways[1].policy.value_fields) == {"v", *series} - {"cp"}


def test_samples_of_a_thing_come_evenly() -> None:
    documents = [
        {
            "start": at + 6 * MINUTE * thing,
            "thing": thing + 6,
            "s": [{"t": at + (6 * thing + it * 20) * MINUTE, "v": it * thing / 4} for it in range(5)],
        }
        for at in TIMES[::5]
        for thing in (0, 1, 2)
    ]
    found = inferred(documents)
    assert [it.policy.series_fields for it in found.ways] == [("thing",), ()]


CHANCE = random.Random(3)


@pytest.mark.parametrize("held", [lambda i: i // 9, lambda _: CHANCE.randrange(4), lambda i: i % 20])
def test_whole_numbers_that_are_measured_are_values(held: Callable[[int], int]) -> None:
    """They change now and then, or by chance; or there are too many of them for their readings."""
    times = [at + timedelta(seconds=i * i % 97) for i, at in enumerate(TIMES[:60])]
    found = inferred([{"at": at, "n": held(i), "v": i / 7} for i, at in enumerate(times)])
    assert found.policy is not None
    assert (found.policy.value_fields, found.asked) == (("n", "v"), False)


def test_whole_numbers_that_never_change_are_no_values() -> None:
    documents = of_both(TIMES[:30], lambda at: {"at": at, "qos": 0, "fw": 3, "rate": 0.5})
    found = inferred(documents)
    assert found.policy is not None
    assert found.policy.value_fields == ("rate", "v")
    assert any('"qos", "fw" is the same' in it for it in found.notes.questions["value_fields"])
    alone = inferred(
        [{key: it for key, it in one.items() if key in ("at", "dev", "fw")} for one in documents]
    )
    assert alone.policy is not None
    assert alone.policy.value_fields == ("fw",)


@pytest.mark.parametrize(
    ("lasts", "width"), [((68, 71, 70, 69, 70, 66, 70, 70), "20m"), ((0, 1, 3, 2, 2, 1), "6h")]
)
def test_the_last_slot_of_all_documents_tells_how_many_there_are(lasts: tuple[int, ...], width: str) -> None:
    documents = [
        {
            "m": m,
            "d": START + day * DAY,
            "v": {str(it): 1.5 for it in {0, last // 2, last - 1, last} if it >= 0},
        }
        for day, last in enumerate(lasts)
        for m in ("a", "b")
    ]
    found = inferred(documents)
    assert found.policy is not None
    told = found.policy.model_dump(include={"slot", "span", "first_slot", "sparse_ok"}, exclude_unset=True)
    assert (told, found.asked) == ({"slot": width, "span": "day"}, False)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        (lambda at: {"date": _midnight(at), "ts": f"{at:%Y-%m-%dT%H:%M:%SZ}"}, "ts"),
        (lambda at: {"day": _midnight(at), "taken": at}, "taken"),
        (lambda at: {"date": _midnight(at) - 2 * HOUR, "x": int(at.timestamp())}, "x"),
        (lambda at: {"at": at, "created": _midnight(at)}, "at"),
    ],
)
def test_a_day_is_no_time_where_another_field_tells_more(
    more: Callable[[datetime], Document], field: str
) -> None:
    found = inferred(of_both(TIMES, more))
    assert found.policy is not None
    assert (found.policy.time_field, found.asked) == (field, False)


@pytest.mark.parametrize(
    ("form", "formats"),
    [("%y%m%d%H%M", {"%y%m%d%H%M", "%s"}), ("%d/%m/%Y", {"%d/%m/%Y %I:%M %p", "%m/%d/%Y %I:%M %p"})],
)
def test_all_forms_that_texts_may_have_are_shown(form: str, formats: set[str]) -> None:
    times = [START.replace(day=3 + it % 5, hour=it, minute=20) for it in range(9, 15)]
    clock = {"time": "%I:%M %p"} if "I" in max(formats) + min(formats) else {}
    documents = of_both(
        times, lambda at: {"date": f"{at:{form}}", **{key: f"{at:{it}}" for key, it in clock.items()}}
    )
    assert {it.policy.model_dump()["time_format"] for it in inferred(documents).ways} == formats


def test_numbers_that_are_times_of_unusual_years_are_asked_about() -> None:
    found = inferred(
        of_both(TIMES, lambda at: {"ts": int((at - datetime(2000, 1, 1, tzinfo=UTC)).total_seconds())})
    )
    assert "of the years 1995 to 1995. Is that right?" in found.notes.questions["time_field"][0]


def _sampled(place: Callable[[int], Document], count: int) -> list[Document]:
    return [
        {"dev": dev, "d": START + day * DAY, "s": [{**place(it), "v": it * day / 7} for it in range(count)]}
        for day in range(8)
        for dev in ("a", "b")
    ]


@pytest.mark.parametrize(("first", "count", "width"), [(0, 96, "15m"), (1, 48, "30m"), (1, 24, None)])
def test_numbers_of_samples_are_places(first: int, count: int, width: str | None) -> None:
    found = inferred(_sampled(lambda it: {"hour": it + first}, count))
    assert found.policy is not None
    told = found.policy.model_dump(exclude_unset=True)
    assert (told["model"], told.get("slot"), told["value_fields"]) == ("slots", width, ("s.*.v",))


def test_fractions_count_seconds_or_what_fills_the_time() -> None:
    found = inferred(_sampled(lambda it: {"t": it / 4}, 1_200))
    assert [it.policy.model_dump()["sample_time_unit"] for it in found.ways] == ["+m", "+s"]


@pytest.mark.parametrize(
    ("zone", "month"), [("Europe/Berlin", 3), ("Europe/Berlin", 10), ("America/New_York", 3)]
)
def test_days_of_text_with_an_hour_more_or_less_tell_when_clocks_were_changed(zone: str, month: int) -> None:
    documents = []
    for day in range(1, 32):
        starts = [datetime(2025, month, day, tzinfo=ZoneInfo(zone)) + it * DAY for it in (0, 1)]
        begin, end = (it.astimezone(UTC) for it in starts)
        documents += [
            {"m": m, "tag": f"{starts[0]:%d.%m.%Y}", "v": [1.5] * ((end - begin) // HOUR)} for m in ("a", "b")
        ]
    found = inferred(documents)
    zones = {it.policy.timezone for it in found.ways}
    assert zone in zones
    assert len(zones) < 10
    assert not zones & {
        "UTC",
        "Asia/Tokyo",
        "America/New_York" if month == 3 and "/B" in zone else "Europe/Berlin",
    } - {zone}


@pytest.mark.parametrize(("step", "units"), [(10, ["+m", "+s"]), (100, ["+s", "+ms"])])
def test_buckets_far_from_each_other_do_not_tell_their_unit(step: int, units: list[str]) -> None:
    documents = [
        {"from": START + day * 5 * HOUR, "s": [{"t": it * step, "kw": it % 7 / 4} for it in range(30 + day)]}
        for day in range(12)
    ]
    found = inferred(documents)
    assert [it.policy.model_dump()["sample_time_unit"] for it in found.ways] == units


def test_numbered_devices_are_read_once_a_day_and_orders_have_a_number() -> None:
    days = [START + it * DAY for it in range(20)]
    found = inferred([{"day": at, "device_id": it, "kwh": it / 7} for at in days for it in range(1, 25)])
    assert found.policy is not None
    assert found.policy.series_fields == ("device_id",)
    found = inferred([{"no": f"2025-{1000 + i}", "createdAt": at, "v": i / 7} for i, at in enumerate(TIMES)])
    assert found.policy is not None
    assert found.policy.time_fields == ("createdAt",)
    assert '"no" is another one in each document' in found.notes.questions["series_fields"][0]
