"""Readings that come late, change or go, at any time through the cycle: summaries stay right.

A ledger in plain Python knows what was written. After every run each hourly and daily summary is the one that
the ledger gives, there is no other, and a second run changes no byte.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from tests.acceptance.expected import DAY, HOUR
from tests.acceptance.world import MODES, SCAN, Mode, World
from tests.acceptance.written import (
    MODELS,
    Bucket,
    Document,
    Id,
    Reading,
    entries,
    instant,
    milliseconds,
)
from tests.jobs.command import ROOT
from tests.rollups.calendar_oracle import changes

ZONES = [
    "UTC", "Africa/Casablanca", "America/New_York", "America/Santiago", "America/St_Johns", "Asia/Gaza",
    "Asia/Kathmandu", "Asia/Kolkata", "Atlantic/Azores", "Australia/Lord_Howe", "Europe/Berlin",
    "Pacific/Apia", "Pacific/Chatham",
]  # fmt: skip
#: Hours after midnight of the first day: many of them beside another midnight.
HOURS = [0, 1, 2, 3, 11, 22, 23, 24, 25, 26, 46, 47, 48, 49, 70]
T = TypeVar("T")
Values = tuple[Any, Any]
Mark = tuple[int, Values]  # a tick of a bucket, and what is read there
Draft = tuple[int, int, list[Mark], list[list[Mark]]]  # series, hour, readings, overflow

NUMBERS = st.one_of(
    st.floats(-1e6, 1e6), st.integers(-1000, 1000), st.sampled_from([0.1, -1e9, 1e-9, math.nan, math.inf])
)
VALUES = st.tuples(st.one_of(NUMBERS, NUMBERS, NUMBERS, st.sampled_from([None, "n/a"])), NUMBERS | st.none())
TICKS = st.sampled_from([0, 59, 60, 1799, 1800, 3599]) | st.integers(0, 3599)
MARKS = st.lists(st.tuples(TICKS, VALUES), min_size=1, max_size=6)
EXTRAS = st.lists(st.lists(st.tuples(TICKS, st.tuples(NUMBERS, NUMBERS)), min_size=1, max_size=3), max_size=2)
DRAFTS = st.tuples(st.integers(1, 2), st.sampled_from(HOURS), MARKS, EXTRAS)
PICKS, BOOLS = st.integers(0, 999), st.booleans()


def acts(**arguments: tuple[st.SearchStrategy[Any], ...]) -> st.SearchStrategy[tuple[str, tuple[Any, ...]]]:
    """One of these methods of a `Story`, with its arguments."""
    return st.one_of(*(st.tuples(st.just(name), st.tuples(*some)) for name, some in arguments.items()))


WRITES = acts(
    insert=(DRAFTS,),
    push=(PICKS, MARKS, BOOLS),
    change=(PICKS, PICKS, VALUES, st.none() | TICKS, BOOLS),
    replace=(PICKS, DRAFTS),
    delete=(PICKS, PICKS, BOOLS, BOOLS),
    make_anew=(PICKS, MARKS),
    change_overflow=(PICKS, EXTRAS, BOOLS),
    write_again=(PICKS,),
    restore=(st.sampled_from(HOURS), st.sampled_from([1, 30]), PICKS, st.none() | VALUES),
    delete_series=(st.integers(1, 2),),
)
RUNS = acts(
    run=(st.sampled_from([0, 1, 7, 24, 30]), BOOLS),
    roll_up=(st.sampled_from([0, 1, 24]),),
    roll_up_again=(st.sampled_from(HOURS), st.sampled_from([1, 5, 30])),
    archive=(st.sampled_from([0, 1, 24]),),
    read=(),
)
STEPS = st.lists(st.tuples(st.lists(WRITES, min_size=2, max_size=6), RUNS), min_size=2, max_size=4)


class Story:
    """What an application writes, and the cycle that goes on meanwhile."""

    def __init__(self, world: World, zone: str, mode: Mode, day: date, hours: int) -> None:
        """From the day before `day` in the zone; the first run is `hours` later."""
        self.world, self.model = world, world.model
        self.extras = 0
        self.has_archived = False
        world.configure(zone, mode)
        local = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)) - DAY
        self.base = local.astimezone(UTC)
        self.now = self.base + hours * HOUR

    def play(self, drafts: list[Draft], steps: Sequence[tuple[Any, Any]]) -> None:
        for draft in drafts:
            self.insert(draft)
        self.run(hours=0, again=False)
        for writes, (run, how) in steps:
            for write, arguments in writes:
                getattr(self, write)(*arguments)
            getattr(self, run)(*how)
        self.world("unpin", now=self.now)
        self.now = max(self.now, self.base + 3 * DAY) + 10 * DAY
        self.run(hours=0, again=True)
        self.read()
        self.world("audit", now=self.now)
        self.world.check_superseded(self.now)
        assert not self.world.live or self.model.name == "timeseries"

    # Writing, late or not

    def bucket(self, draft: Draft, identity: Id) -> Bucket:
        series, hour, marks, extras = draft
        start = self.model.start(milliseconds(self.base + hour * HOUR), marks[0][0])
        bucket = Bucket(identity, series, start, [])
        for tick, values in marks if self.model.holds_many else marks[:1]:
            self.model.put(bucket.own, self.reading(start, tick, values))
        for some in extras if self.model.overflow else []:
            self.add_extra(bucket, some)
        return bucket

    def reading(self, start: int, tick: int, values: Values) -> Reading:
        return Reading(self.model.time(start, tick), values[: len(self.model.fields)])

    def add_extra(self, bucket: Bucket, some: list[Mark]) -> None:
        self.extras += 1
        held = bucket.extras.setdefault(self.extras, [])
        for tick, values in some:
            self.model.put(held, self.reading(bucket.start, tick, values))

    def pick(self, number: int) -> Bucket | None:
        """A copy of a live bucket that may be changed."""
        live = list(self.world.live.values())
        return live[number % len(live)].copy() if live and self.model.name != "timeseries" else None

    def insert(self, draft: Draft) -> None:
        series, hour, marks, extras = draft
        for some in [marks] if self.model.holds_many else [[mark] for mark in marks]:
            self.world.insert(self.bucket((series, hour, some, extras), self.world.new_id()))

    def push(self, number: int, marks: list[Mark], whole: bool) -> None:
        """More into a standing bucket; a slot that is there already is overwritten."""
        bucket = self.pick(number)
        if bucket and self.model.holds_many:
            for tick, values in marks:
                self.model.put(bucket.own, self.reading(bucket.start, tick, values))
            self.world.edit(bucket, whole)

    def change(self, number: int, at: int, values: Values, tick: int | None, whole: bool) -> None:
        """Another value; with `tick` another time as well."""
        bucket = self.pick(number)
        if bucket and bucket.own:
            old = bucket.own.pop(at % len(bucket.own))
            new = self.reading(bucket.start, tick or 0, values)
            self.model.put(bucket.own, Reading(old.at, new.values) if tick is None else new)
            self.world.edit(bucket, whole)

    def replace(self, number: int, draft: Draft) -> None:
        """Another bucket under the same `_id`: other series, other hour."""
        if bucket := self.pick(number):
            self.world.edit(self.bucket(draft, bucket.id), whole=True)

    def delete(self, number: int, at: int, reading: bool, whole: bool) -> None:
        """A bucket, or a reading of it."""
        bucket = self.pick(number)
        if bucket and reading and self.model.holds_many and bucket.own:
            bucket.own.pop(at % len(bucket.own))
            self.world.edit(bucket, whole)
        elif bucket:
            self.world.delete(bucket.id)

    def make_anew(self, number: int, marks: list[Mark]) -> None:
        """Somebody deletes a bucket, archived as well or not; a late upsert makes it anew."""
        if bucket := self.pick(number):
            self.world.delete(bucket.id)
            made = self.bucket((bucket.series, 0, marks, []), bucket.id)
            if self.model.holds_many:
                made = replace(made, start=bucket.start, own=[])
                for tick, values in marks:
                    self.model.put(made.own, self.reading(bucket.start, tick, values))
            self.world.insert(made)

    def change_overflow(self, number: int, extras: list[list[Mark]], more: bool) -> None:
        """More of it, or other; also none any more."""
        bucket = self.pick(number)
        if bucket and self.model.overflow:
            if not more:
                bucket.extras.clear()
            for some in extras:
                self.add_extra(bucket, some)
            self.world.edit(bucket, whole=False)

    def delete_series(self, series: int) -> None:
        """All that MongoDB 6.0 deletes from a time-series collection."""
        if self.model.name == "timeseries" and not self.has_archived:
            self.world.source.delete_many({"dev": series})
            for identity in [it.id for it in self.world.live.values() if it.series == series]:
                del self.world.live[identity]

    def gone(self) -> list[Id]:
        world = self.world
        return [it for it in world.archived if it not in world.live and it not in world.again]

    def write_again(self, number: int) -> None:
        """An archived bucket once more, as it was: it counts once."""
        if gone := self.gone():
            self.world.write_again(gone[number % len(gone)])

    def restore(self, hour: int, length: int, number: int, values: Values | None) -> None:
        """Into the source; then one of what came back is changed, or deleted: that is archived as it was."""
        since = self.base + hour * HOUR
        gone = self.gone()
        if gone:
            self.world.restore(since, since + length * HOUR, self.now)
        back = [it for it in gone if it in self.world.live]
        if back and values is None:
            self.world.delete(back[number % len(back)])
        elif back and values is not None:
            bucket = self.world.live[back[number % len(back)]].copy()
            bucket.own[:1] = [
                reading._replace(values=values[: len(self.model.fields)]) for reading in bucket.own[:1]
            ]
            self.world.edit(bucket, whole=False)

    # The cycle

    def run(self, hours: int, again: bool) -> None:
        self.now += hours * HOUR
        report = self.world.work("run", now=self.now)
        self.has_archived |= report["archive"]["buckets"] > 0
        self.world.check(self.now)
        if again:
            self.world.check_second_run(self.now)

    def roll_up(self, hours: int) -> None:
        self.now += hours * HOUR
        self.world.work("rollup", now=self.now)
        self.world.check(self.now)

    def roll_up_again(self, hour: int, length: int) -> None:
        since = self.base + hour * HOUR
        until = since + length * HOUR
        span = {"since": since.isoformat(), "until": until.isoformat()}
        report = self.world.work("rollup", codes=(0, 3), now=self.now, **span)
        assert report["exit_code"] == (3 if report["gone"] else 0)
        if not report["gone"]:  # else the next run hears of what was deleted; a range takes nothing for less
            self.world.check(self.now, lambda key, end: key[1] < until and end > since)

    def archive(self, hours: int) -> None:
        """By itself it archives what is rolled up, and leaves the windows of what goes right."""
        self.now += hours * HOUR
        before = set(self.world.archived)
        report = self.world.work("archive", now=self.now)
        self.has_archived |= report["buckets"] > 0
        gone = [self.world.archived[identity] for identity in set(self.world.archived) - before]
        times = [(instant(entry.at), entry.series) for entry in entries(self.model, gone)]
        self.world.check(
            self.now, lambda key, end: any(key[1] <= at < end and key[0] == series for at, series in times)
        )

    def read(self) -> None:
        self.world.check_readings(self.now)


def rotated(some: list[T], by: int) -> list[T]:
    return some[by % len(some) :] + some[: by % len(some)]


CASES = [(model, to) for model in MODELS for to in ("offline", "online")]


def _tries() -> list[Any]:
    """A story of each model, in turn with either archive; in the proofs some of each with both, and many in
    the runs of hours."""
    few = [(model, ("offline", "online")[at % 2]) for at, model in enumerate(MODELS)]
    short = [pytest.param(case, 1, id="-".join(case)) for case in few]
    more = [(10, pytest.mark.proof), (100, pytest.mark.soak)]
    return short + [
        pytest.param(it, count, id=f"{'-'.join(it)}-{count}", marks=mark)
        for count, mark in more
        for it in CASES
    ]


@pytest.mark.in_turn(1)
@pytest.mark.parametrize(("case", "examples"), _tries())
def test_summaries_stay_right(
    client: MongoClient[Document],
    mongodb_uri: str,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[str, str],
    examples: int,
) -> None:
    monkeypatch.setattr("os.fsync", lambda _file: None)
    at = CASES.index(case)

    @settings(
        max_examples=examples,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(
        mode=st.sampled_from(rotated(MODES, at)),
        zone=st.sampled_from(rotated(ZONES, at)),
        change=PICKS | st.none(),
        day=st.dates(date(2000, 1, 3), date(2037, 12, 24)),
        hours=st.sampled_from([12, 30, 60, 90, 130]),
        drafts=st.lists(DRAFTS, min_size=6, max_size=16, unique_by=repr),  # so the first is no simple one
        steps=STEPS,
    )
    def tell(
        mode: Mode, zone: str, change: int | None, day: date, hours: int, drafts: list[Draft], steps: Any
    ) -> None:
        """On `day`, or on one of those when the zone's clocks change."""
        model = MODELS[case[0]]
        days = [it.date() for it in changes(zone)] if change is not None else []
        on = days[(change or 0) % len(days)] if days else day
        world = World(client, mongodb_uri, model, case[1])
        try:
            scan = model.name == "timeseries"  # has no change streams
            story = Story(world, zone, SCAN if scan else mode, on, hours)
            story.play(drafts, steps)
        finally:
            world.close()

    tell()


#: Stories that were told wrongly once, by what is in them: the first drafts, and the steps.
ONCE: dict[str, tuple[list[Draft], list[tuple[Any, Any]]]] = {
    "what came back is another bucket by now": (
        [(1, 24, [(234, (1.5, 2.5))], [])],
        [
            ([], ("run", (30, False))),
            (
                [("restore", (24, 1, 0, (100, 836))), ("replace", (0, (2, 26, [(15, (3.5, 4.5))], [])))],
                ("roll_up", (24,)),
            ),
        ],
    ),
}


@pytest.mark.parametrize(
    ("case", "mode", "name"),
    [
        pytest.param(
            case, mode, name, id=f"{'-'.join(case)}-{at}-{name}",
            marks=[pytest.mark.proof] * ((number, at) not in ((0, 1), (19, 1))),
        )
        for number, case in enumerate(CASES)
        if case[0] != "timeseries"  # where nothing is replaced
        for at, mode in enumerate(MODES)
        for name in ONCE
    ],
)  # fmt: skip
def test_stories_of_the_past(
    client: MongoClient[Document],
    mongodb_uri: str,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[str, str],
    mode: Mode,
    name: str,
) -> None:
    monkeypatch.setattr("os.fsync", lambda _file: None)
    world = World(client, mongodb_uri, MODELS[case[0]], case[1])
    try:
        Story(world, "UTC", mode, date(2017, 7, 2), 90).play(*ONCE[name])
    finally:
        world.close()


@pytest.mark.proof
def test_from_outside(client: MongoClient[Document], mongodb_uri: str) -> None:
    """Load, run, write late, run, compare: by processes of their own, over a day of 23 hours."""
    world = World(client, mongodb_uri, MODELS["samples-dates"], "offline")
    try:
        world.configure("Europe/Berlin", MODES[1])
        start = datetime(2021, 3, 27, 23, tzinfo=UTC)

        def write(hours: range, late: float) -> None:
            for hour in hours:
                at = milliseconds(start + hour * HOUR)
                some = [Reading(at + tick * 60_000, (hour + tick / 64 + late,)) for tick in range(0, 60, 7)]
                world.insert(Bucket(world.new_id(), hour % 2, at, some))

        def ran(now: datetime) -> Document:
            given = ["--config", str(world.folder / "bucketwise.toml"), "--now", now.isoformat(), "--json"]
            command = [sys.executable, "-m", "bucketwise", "run", *given]
            done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, check=True)
            report: Document = json.loads(done.stdout)["policies"][0]
            return report

        write(range(72), 0)
        now = start + 3 * DAY
        assert ran(now)["archive"]["deleted"] > 0
        world.check(now)
        write(range(3, 60, 9), 0.3)
        now += DAY
        assert ran(now)["rollup"]["daily"]["written"] > 0
        world.check(now)
        before = world.everything()
        assert ran(now)["archive"]["parts"] == 0
        assert world.everything() == before
    finally:
        world.close()
