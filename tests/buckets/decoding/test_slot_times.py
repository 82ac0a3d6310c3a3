"""Slots of any width and place: when they are, against `zoneinfo` one at a time; and the same bytes again."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.models import model_of
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from tests.buckets.batches import batch_of
from tests.buckets.decoding.test_clocks import ZONES
from tests.buckets.decoding.test_pack import check_round_trip
from tests.buckets.irregular import eager
from tests.buckets.oracle import Bucket
from tests.examples import examples

Document = dict[str, Any]
QUARTER, DAY = timedelta(minutes=15), timedelta(days=1)
KINDS: list[Document] = [
    {"slot": "30m", "span": "day"},
    {"slot": "30m", "span": "day", "first_slot": 1},
    {"slot_levels": ("hour",)},
    {"slot": "15m", "span": "week"},
    {"slot": "hour", "span": "month", "first_slot": 1},
    {"slot": "30m", "span": "day", "slot_time": "local"},
    {"slot": "30m", "span": "day", "slot_time": "local", "slot_keys": "clock"},
    {"slot": "hour", "span": "week", "slot_time": "local"},
    {"slot": "hour", "span": "month", "slot_time": "local"},
    {"slot": "day", "span": "week"},
    {"slot": "day", "span": "month", "first_slot": 1},
]
WIDTHS = {"15m": QUARTER, "30m": 2 * QUARTER, "hour": 4 * QUARTER, "day": DAY}
ROOM = {"day": 26, "week": 7 * 24 + 2, "month": 31 * 24 + 2}  # hours
near_changes = st.sampled_from(
    ["2025-03-09", "2025-03-30", "2025-10-26", "2025-11-02", "2018-11-04", "2011-12-29"]
)
days = st.dates(date(2005, 1, 1), date(2030, 1, 1)) | near_changes.map(date.fromisoformat)


def policy_of(kind: Document, zone: str) -> Policy:
    return make_policy(
        name="it", collection="it", model="slots", time_field="d", series_fields=(), value_fields=("p",),
        timezone=zone, **kind,
    )  # fmt: skip


def width_of(kind: Document) -> timedelta:
    return WIDTHS[kind.get("slot", "hour")]


def shown(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None)


def since(clock: datetime, zone: ZoneInfo) -> datetime:
    """The first quarter of an hour at which the clock shows this time, or a later one."""
    noon = clock.replace(tzinfo=UTC)
    return next(it for at in range(-60, 160) if shown(it := noon + at * QUARTER, zone) >= clock)


def first_days(kind: Document, day: date) -> tuple[date, date]:
    """The first day of a bucket, and the first behind it."""
    span = kind.get("span", "day")
    if span == "month":
        first = day.replace(day=1)
        return first, (first + timedelta(days=31)).replace(day=1)
    return day, day + timedelta(days=7 if span == "week" else 1)


def instant(kind: Document, day: date, place: int, zone: ZoneInfo) -> datetime | None:
    """When a slot begins; None where the bucket has none."""
    first, behind = (datetime.combine(it, time()) for it in first_days(kind, day))
    if kind.get("slot") != "day" and "slot_time" not in kind:
        found = since(first, zone) + place * width_of(kind)
        return found if found < since(behind, zone) else None
    clock = first + place * width_of(kind)
    found = since(clock, zone)
    if kind.get("slot") == "day":
        is_one = clock < behind and shown(found, zone).date() == clock.date()
    else:
        is_one = clock < behind and shown(found, zone) == clock
    return found if is_one else None


def key(kind: Document, place: int) -> str:
    if "slot_keys" in kind:
        hour, minute = divmod(place * width_of(kind) // timedelta(minutes=1), 60)
        return f"{hour:02}:{minute:02}"
    return str(place + kind.get("first_slot", 0))


def room(kind: Document) -> int:
    """So many slots may have a name."""
    span = kind.get("span", "day")
    hours = ROOM[span] - (2 if "slot_time" in kind else 0)
    return 31 if kind.get("slot") == "day" and span == "month" else timedelta(hours=hours) // width_of(kind)


class Case:
    """A document, and when its readings are; None where it lacks a slot."""

    def __init__(self, kind: Document, zone: str, day: date, places: list[int], *, as_array: bool) -> None:
        clock = ZoneInfo(zone)
        self.times = [instant(kind, day, place, clock) for place in places]
        start = since(datetime.combine(first_days(kind, day)[0], time()), clock)
        held: Any = {key(kind, place): place + 0.5 for place in places}
        if as_array:
            held = [place + 0.5 if place in places else None for place in range(max(places, default=-1) + 1)]
        self.bucket = Bucket(bson.encode({"_id": str(day), "d": start, "p": held}))


@st.composite
def case_lists(draw: st.DrawFn, kind: Document, zone: str) -> list[Case]:
    most = room(kind) - 1
    places = st.lists(st.integers(0, most) | st.integers(max(0, most - 5), most), max_size=5, unique=True)
    some = draw(st.lists(days, min_size=1, max_size=4, unique=True))
    return [Case(kind, zone, it, sorted(draw(places)), as_array=draw(st.booleans())) for it in some]


@pytest.mark.parametrize("kind", KINDS, ids=lambda it: " ".join(map(str, it.values())))
@settings(max_examples=examples(12))
@given(st.data(), st.sampled_from(ZONES))
def test_times(kind: Document, data: st.DataObject, zone: str) -> None:
    found = data.draw(case_lists(kind, zone))
    policy = policy_of(kind, zone)
    sound = [it for it in found if None not in it.times]
    with eager() if data.draw(st.booleans()) else nullcontext():
        decoded = decode(batch_of([it.bucket for it in found]), policy)
        if sound:
            check_round_trip(policy, [it.bucket for it in sound])
    assert sorted(decoded.units.tolist()) == [i for i, it in enumerate(found) if it in sound]
    for unit, at in zip(decoded.units.tolist(), range(len(sound)), strict=True):
        times = decoded.columns.time[decoded.columns.bucket == at].tolist()
        assert times == [int(it.timestamp() * 1000) for it in found[unit].times if it]


@pytest.mark.parametrize("kind", KINDS, ids=lambda it: " ".join(map(str, it.values())))
@settings(max_examples=examples(8))
@given(days, st.sampled_from(ZONES))
def test_a_query_finds_what_a_bucket_covers(kind: Document, day: date, zone: str) -> None:
    model = model_of(policy_of(kind, zone))
    clock = ZoneInfo(zone)
    places = [place for place in range(room(kind)) if instant(kind, day, place, clock)]
    times = [it for place in (places[:1] + places[-1:]) if (it := instant(kind, day, place, clock))]
    start, behind = (since(datetime.combine(it, time()), clock) for it in first_days(kind, day))
    assert model.covered(start, start) == tuple(int(it.timestamp() * 1000) for it in (start, behind))
    assert all(
        start <= it < behind and (it - start) // timedelta(milliseconds=1) <= model.reach_ms for it in times
    )
