"""Roll-ups of readings whose times are text: what all of them are is seen once, and may change meanwhile."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from bson import json_util
from pymongo import MongoClient
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from bucketwise.buckets.fields.isoforms import OF_UTC
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy
from bucketwise.rollups.changes.drain import Stream
from tests.rollups.changes.test_stream import DAY, FIRST, HOUR, NOW, mended, readings, windows
from tests.rollups.conftest import Bench

Document = dict[str, Any]


def text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def reading(number: int, time: str) -> Document:
    return {"_id": number, "symbol": "A", "d": time, "p": 1.0}


def load(bench: Bench, days: int = 6) -> Policy:
    """A reading each three hours, rolled up."""
    policy = readings(time_unit="iso")
    bench.database["ticks"].create_index("d")
    bench.database["ticks"].insert_many([reading(i, text(FIRST + i * 3 * HOUR)) for i in range(8 * days)])
    bench.roll_up(policy, NOW)
    return policy


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("when", ["before the stream is read", "before the texts are", "after that"])
def test_a_text_with_an_offset_that_comes_in_meanwhile_is_rolled_up_now_or_next(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Its own clock shows the day behind that of its instant. Both days are rolled up meanwhile."""
    policy = load(bench)
    ticks, late = bench.database["ticks"], FIRST + 3 * DAY - HOUR  # written two hours ahead
    ticks.insert_many([reading(900, text(late - HOUR)), reading(901, text(late + 2 * HOUR))])
    late_text = (late + 2 * HOUR).strftime("%Y-%m-%dT%H:%M:%S+02:00")
    look, drain = Source.look_at_texts, Stream.drain

    def come_in() -> None:
        if not ticks.find_one({"_id": 999}):
            ticks.insert_one(reading(999, late_text))

    def read_context(source: Source) -> None:
        if when == "before the texts are":
            come_in()
        look(source)
        assert source.looked.is_plain is (when == "after that" and not ticks.find_one({"_id": 999}))
        come_in()

    def draining(*args: Any, **more: Any) -> Any:
        if when == "before the stream is read":
            come_in()
        return drain(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Source, "look_at_texts", read_context)
        patch.setattr(Stream, "drain", draining)
        bench.roll_up(policy, NOW)
    report = mended(bench, policy)
    assert (windows(report) == (0, 0)) is (when == "before the stream is read")
    hour = bench.database["hourly"].find_one({"start": late})
    assert hour is not None and hour["count"] == 1


class _Finds(CommandListener):
    def __init__(self) -> None:
        self.filters: list[Any] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "find" and event.command["find"] == "ticks":
            self.filters.append(event.command["filter"])

    def succeeded(self, _event: CommandSucceededEvent) -> None: ...

    def failed(self, _event: CommandFailedEvent) -> None: ...


@pytest.mark.proof
def test_plain_texts_are_looked_at_once_however_many_days_there_are(bench: Bench, mongodb_uri: str) -> None:
    counts: list[int] = []
    for days in (2, 9):
        for name in ("ticks", "hourly", "daily", "bucketwise_progress"):
            bench.database[name].drop()
        policy = load(bench, days)
        for name in ("hourly", "daily", "bucketwise_progress"):
            bench.database[name].drop()
        finds = _Finds()
        with MongoClient[Document](mongodb_uri, tz_aware=True, event_listeners=[finds]) as client:
            report = Bench(client[bench.database.name]).roll_up(policy, NOW)
        assert report.readings == 8 * days
        told = [json_util.dumps(it) for it in finds.filters]
        assert sum(json.dumps(OF_UTC.plain.pattern) in it and '"$not"' in it for it in told) == 1
        assert not any(json.dumps(OF_UTC.offset.pattern) in it for it in told)  # none looks range by range
        counts.append(len(told))
    # What is live, where the next slice is: each asks for dates, then for texts. And the slice.
    assert counts[1] - counts[0] <= 7 * 7
