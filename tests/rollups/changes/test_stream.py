"""Late and changed readings, told by a real change stream: what they touch is mended, and nothing else."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from pymongo import MongoClient
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import OperationFailure
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from bucketwise.buckets.source import Source
from bucketwise.config.errors import BucketwiseError, InterruptedRun
from bucketwise.config.models import SamplesPolicy, make_policy
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.changes import late
from bucketwise.rollups.changes.collector import ChangeSet
from bucketwise.rollups.changes.drain import Stream
from bucketwise.rollups.changes.late import ChangeWatch
from bucketwise.rollups.rolling import rollup
from bucketwise.rollups.rolling.plan import RollupReport
from tests.rollups.conftest import Bench

Document = dict[str, Any]
Db = Database[Document]
FIRST = datetime(2021, 3, 1, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=it) for it in (1, 60, 3600, 86400))
NOW = FIRST + 40 * DAY  # everything is older than `recheck`
#: How many have readings, one each three hours, where a few are enough.
DAYS = 7
ROLLUP = {"hourly": "hourly", "daily": "daily", "percentiles": (50,)}


def readings(**more: Any) -> Policy:
    said: dict[str, Any] = {
        "name": "ticks",
        "collection": "ticks",
        "model": "reading",
        "time_field": "d",
        "series_fields": ("symbol",),
        "value_fields": ("p",),
        "rollup": ROLLUP,
    }
    return make_policy(**(said | more))


def slots() -> Policy:
    return readings(model="slots", slot="second")


def samples(**more: Any) -> Policy:
    return readings(
        model="samples",
        time_field=None,
        samples_field="samples",
        sample_time_field="time",
        start_field="first",
        end_field="last",
        **more,
    )


def overflowing() -> Policy:
    overflow = {
        "flag_field": "more",
        "collection": "extra",
        "ref_field": "bucket",
        "samples_field": "samples",
    }
    return samples(overflow=overflow)


def reading(number: int, at: datetime, price: float = 1.0) -> Document:
    return {"_id": number, "symbol": "A", "d": at, "p": price}


def bucket(number: int, at: datetime, count: int = 3, **more: Any) -> Document:
    times = [at + place * MINUTE for place in range(count)]
    held = [{"time": one, "p": 1.0} for one in times]
    return {"_id": number, "symbol": "A", "first": times[0], "last": times[-1], "samples": held, **more}


def minute(number: int, at: datetime) -> Document:
    return {"_id": number, "symbol": "A", "d": at, "p": {str(slot): 1.0 for slot in range(60)}}


def document_of(policy: Policy, number: int, at: datetime) -> Document:
    if policy.model == "reading":
        return reading(number, at)
    if policy.model == "slots":
        return minute(number, at)
    count = {"n": 3} if isinstance(policy, SamplesPolicy) and policy.count_field else {}
    return bucket(number, at, **count, **({"more": True} if policy.overflow else {}))


def load(bench: Bench, policy: Policy, days: int = 12) -> None:
    """A bucket each three hours, and roll them up."""
    times = [FIRST + number * 3 * HOUR for number in range(8 * days)]
    bench.database["ticks"].insert_many(document_of(policy, number, at) for number, at in enumerate(times))
    if policy.overflow:
        bench.database["extra"].insert_many(
            {"_id": number, "bucket": number, "samples": [{"time": at + MINUTE, "p": 2.0}]}
            for number, at in enumerate(times)
        )
    late = bench.roll_up(policy, NOW).late
    assert late is not None and (late.mode, late.spans, late.reason) == ("stream", [], None)


def mended(bench: Bench, policy: Policy) -> RollupReport:
    """Roll up, and see that it is right: a recomputation of all there is gives the same bytes."""
    report = bench.roll_up(policy, NOW)
    found = bench.raw("hourly"), bench.raw("daily")
    for name in ("hourly", "daily", "bucketwise_progress"):
        bench.database[name].rename(f"kept_{name}")
    bench.roll_up(policy, NOW)
    assert (bench.raw("hourly"), bench.raw("daily")) == found
    for name in ("hourly", "daily", "bucketwise_progress"):
        bench.database[f"kept_{name}"].rename(name, dropTarget=True)
    return report


def late_of(report: RollupReport) -> tuple[int, str | None]:
    assert report.late is not None
    assert report.late.mode == "stream"
    return report.late.events, report.late.reason


def windows(report: RollupReport) -> tuple[int, int]:
    return report.hourly.due, report.daily.due


def keep_images(database: Db, *names: str) -> None:
    for name in names:
        database.command({"collMod": name, "changeStreamPreAndPostImages": {"enabled": True}})


OLD = FIRST + 4 * DAY  # bucket 32
#: What a writer does, how many hours and days that touches, and which of the models can do it.
KNOWN: dict[str, tuple[Policy, Callable[[Db], object], tuple[int, int]]] = {
    "a reading comes": (readings(), lambda db: db["ticks"].insert_one(reading(999, OLD)), (1, 1)),
    "a value changes": (
        readings(),
        lambda db: db["ticks"].update_one({"_id": 32}, {"$set": {"p": 7.0}}),
        (1, 1),
    ),
    "two values of one day change": (
        readings(),
        lambda db: db["ticks"].update_many({"_id": {"$in": [32, 33]}}, {"$set": {"p": 7.0}}),
        (2, 1),
    ),
    "a slot is filled again": (
        slots(),
        lambda db: db["ticks"].update_one({"_id": 32}, {"$set": {"p.7": 7.0}, "$unset": {"p.8": 1}}),
        (1, 1),
    ),
    "a minute comes": (slots(), lambda db: db["ticks"].insert_one(minute(999, OLD + 30 * MINUTE)), (1, 1)),
    "a sample is added inside": (
        samples(),
        lambda db: db["ticks"].update_one(
            {"_id": 32}, {"$push": {"samples": {"time": OLD + MINUTE, "p": 9.0}}}
        ),
        (1, 1),
    ),
    "a sample changes": (
        samples(),
        lambda db: db["ticks"].update_one({"_id": 32}, {"$set": {"samples.1.p": 9.0}}),
        (1, 1),
    ),
    "a sample goes": (
        samples(),
        lambda db: db["ticks"].update_one({"_id": 32}, {"$pull": {"samples": {"time": OLD + MINUTE}}}),
        (1, 1),
    ),
    "overflow comes": (
        overflowing(),
        lambda db: db["extra"].insert_one(
            {"_id": 999, "bucket": 32, "samples": [{"time": OLD + MINUTE, "p": 5.0}]}
        ),
        (1, 1),
    ),
    "overflow changes": (
        overflowing(),
        lambda db: db["extra"].update_one({"_id": 32}, {"$set": {"samples.0.p": 5.0}}),
        (1, 1),
    ),
}


@pytest.mark.proof
@pytest.mark.in_turn(3)
@pytest.mark.parametrize("name", KNOWN)
def test_just_what_was_touched_is_looked_at(bench: Bench, name: str) -> None:
    policy, change, touched = KNOWN[name]
    load(bench, policy, DAYS)
    assert windows(bench.roll_up(policy, NOW)) == (0, 0), "where nothing changed, nothing is read"
    change(bench.database)
    report = mended(bench, policy)
    assert windows(report) == touched
    assert report.daily.written == touched[1]
    assert report.hourly.written == touched[0]
    assert late_of(report)[1] is None
    assert windows(bench.roll_up(policy, NOW)) == (0, 0)


#: Changes of which an event does not tell the time that the bucket covered before.
UNKNOWN: dict[str, tuple[Policy, Callable[[Db], object], tuple[int, int]]] = {
    "a reading goes": (readings(), lambda db: db["ticks"].delete_one({"_id": 32}), (1, 1)),
    "a reading moves": (
        readings(),
        lambda db: db["ticks"].update_one({"_id": 32}, {"$set": {"d": OLD + 2 * DAY + HOUR}}),
        (2, 2),
    ),
    "a reading is replaced by another time's": (
        readings(),
        lambda db: db["ticks"].replace_one({"_id": 32}, reading(32, OLD + 2 * DAY + HOUR)),
        (2, 2),
    ),
    "a bucket goes": (slots(), lambda db: db["ticks"].delete_one({"_id": 32}), (1, 1)),
    "overflow goes": (overflowing(), lambda db: db["extra"].delete_one({"_id": 32}), (1, 1)),
    "overflow is given to another bucket": (
        overflowing(),
        lambda db: db["extra"].update_one(
            {"_id": 32}, {"$set": {"bucket": 40, "samples.0.time": OLD + DAY + MINUTE}}
        ),
        (2, 2),
    ),
}


#: Of which pre-images are tried at each `make test`: what goes, what moves, what is another bucket's.
FEW_TOLD = ("a reading goes", "a reading moves", "overflow is given to another bucket")


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("images", "name"),
    [
        pytest.param(
            images,
            name,
            id=f"{'told by pre-images' if images else 'looked for'}-{name}",
            marks=[pytest.mark.proof] * (images and name not in FEW_TOLD),
        )
        for images in (False, True)
        for name in UNKNOWN
    ],
)
def test_a_change_that_hides_what_was_before_is_looked_for(bench: Bench, name: str, images: bool) -> None:
    policy, change, touched = UNKNOWN[name]
    if images:
        for collection in ("ticks", "extra"):
            bench.database.create_collection(collection)
            keep_images(bench.database, collection)
    load(bench, policy, DAYS)
    change(bench.database)
    report = mended(bench, policy)
    assert (report.hourly.written, report.daily.written) == touched
    events, reason = late_of(report)
    assert events == 1
    if images:
        assert reason is None
        assert windows(report) == touched
    else:
        assert reason is not None and "looked back over all that was live" in reason
        assert "changeStreamPreAndPostImages" in reason
        assert report.daily.due == DAYS
    assert windows(bench.roll_up(policy, NOW)) == (0, 0)


#: Updates of a bucket's end, which do not tell where that was before.
ENDS: dict[str, tuple[Document, tuple[int, int]]] = {
    "a sample more": (
        {"$push": {"samples": {"time": OLD + HOUR, "p": 9.0}}, "$set": {"last": OLD + HOUR}},
        (1, 1),
    ),
    "a sample less": (
        {"$pull": {"samples": {"time": OLD + 2 * MINUTE}}, "$set": {"last": OLD + MINUTE}},
        (1, 1),
    ),
    "another sample": (
        {"$set": {"samples.2": {"time": OLD + 70 * SECOND, "p": 9.0}, "last": OLD + 70 * SECOND}},
        (1, 1),
    ),
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("name", ENDS)
def test_a_bucket_whose_end_moves_is_looked_at_from_its_start_to_the_present(bench: Bench, name: str) -> None:
    policy, (change, written) = samples(), ENDS[name]
    load(bench, policy, DAYS)
    bench.database["ticks"].update_one({"_id": 32}, change)
    report = mended(bench, policy)
    assert (report.hourly.written, report.daily.written) == written
    assert report.daily.due == DAYS - 4
    assert late_of(report) == (1, None)


def test_new_readings_of_windows_to_come_are_no_events(bench: Bench) -> None:
    policy = readings()
    load(bench, policy, DAYS)
    bench.roll_up(policy, FIRST + DAYS * DAY)
    bench.database["ticks"].insert_many(
        [reading(1000 + n, FIRST + DAYS * DAY + n * MINUTE) for n in range(90)]
    )
    report = bench.roll_up(policy, FIRST + (DAYS + 1) * DAY)
    assert late_of(report) == (0, None)
    assert report.readings == 90, "the hours before stand: the day is merged from them"
    last = bench.database["daily"].find_one({"start": FIRST + (DAYS - 1) * DAY})
    assert last is not None and last["count"] == 8


@pytest.mark.proof
def test_deletes_of_an_archive_run_are_no_changes(bench: Bench) -> None:
    """They come in one transaction with a write to the books. Somebody else's transaction has none."""
    policy = readings()
    load(bench, policy)
    found = list(bench.database["ticks"].find({"_id": {"$lt": 20}}))

    def move(books: str) -> None:
        with bench.database.client.start_session() as session, session.start_transaction():
            for one in found:
                bench.database["ticks"].delete_one({"_id": one["_id"]}, session=session)
            receipt = {"_id": {"policy": "ticks", "name": books}, "kind": "delete", "collection": "ticks"}
            bench.database[books].insert_one(receipt, session=session)

    bench.database["archive"].insert_many(found)
    move("books")
    report = mended(bench, policy)
    assert late_of(report) == (0, None)
    assert windows(report) == (0, 0)
    found = list(bench.database["ticks"].find({"_id": {"$in": [40, 41]}}))
    move("others")
    report = mended(bench, policy)
    assert late_of(report)[0] == 2
    assert (report.hourly.written, report.daily.written) == (2, 1)


@pytest.mark.proof
def test_where_the_bookmark_is_lost_it_says_so_and_looks_back_over_all_that_is_live(bench: Bench) -> None:
    policy = readings()
    load(bench, policy)
    bench.roll_up(policy, NOW)
    bench.database["ticks"].update_one({"_id": 32}, {"$set": {"p": 7.0}})
    books = bench.database["bucketwise_progress"]
    document = books.find_one({"_id": "ticks"})
    assert document is not None
    token = document["stream"]["token"]["_data"]
    token = f"{token[:2]}60000000{token[10:]}"  # the time of an event that this oplog does not hold
    books.update_one({"_id": "ticks"}, {"$set": {"stream.token._data": token}})
    report = mended(bench, policy)
    reason = late_of(report)[1]
    assert reason is not None and "cannot resume" in reason and "all that is live" in reason
    assert (report.hourly.written, report.daily.written) == (1, 1)
    assert late_of(bench.roll_up(policy, NOW)) == (0, None)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("how", ["dropped and made anew", "renamed", "another one renamed to it"])
def test_another_collection_of_the_same_name_is_looked_at_as_a_whole(bench: Bench, how: str) -> None:
    policy, ticks = readings(), bench.database["ticks"]
    load(bench, policy, DAYS)
    found = [one for one in ticks.find() if one["_id"] != 32]
    if how == "renamed":
        ticks.rename("elsewhere")
    else:
        bench.database["elsewhere"].insert_many(found)
        if how == "dropped and made anew":
            ticks.drop()
            ticks.insert_many(found)
        else:
            bench.database["elsewhere"].rename("ticks", dropTarget=True)
    report = bench.roll_up(policy, NOW)
    reason = late_of(report)[1]
    assert reason is not None and "the collection was dropped, renamed or restored" in reason
    # Nothing told that readings are gone: it may be an accident, and the summaries all that is left.
    gone = (8 * DAYS, DAYS) if how == "renamed" else (1, 1)
    assert (report.hourly.kept, report.daily.kept) == gone
    assert (report.hourly.written, report.daily.written) == (0, 0)


@pytest.mark.proof
def test_a_run_cut_off_hears_of_the_same_changes_again(bench: Bench) -> None:
    policy = readings()
    load(bench, policy)
    bench.database["ticks"].update_many({"_id": {"$in": [16, 32, 48]}}, {"$set": {"p": 7.0}})

    def stop() -> None:
        if bench.slices:
            raise InterruptedRun("stopped")

    with pytest.raises(InterruptedRun):
        bench.roll_up(policy, NOW, check=stop)
    report = mended(bench, policy)
    assert (report.hourly.written, report.hourly.unchanged) == (2, 1)
    assert late_of(bench.roll_up(policy, NOW)) == (0, None)


def test_a_first_run_cut_off_misses_no_change_made_since(bench: Bench) -> None:
    policy = readings()
    bench.database["ticks"].insert_many([reading(n, FIRST + n * DAY) for n in range(5)])
    asked: list[int] = []

    def stop() -> None:
        asked.append(1)
        if len(asked) == 3:
            bench.database["ticks"].update_one({"_id": 0}, {"$set": {"p": 7.0}})
            raise InterruptedRun("stopped")

    with pytest.raises(InterruptedRun):
        bench.roll_up(policy, NOW, check=stop)
    report = mended(bench, policy)
    assert late_of(report) == (1, None)


@pytest.mark.proof
def test_a_dry_run_foresees_and_moves_no_bookmark(bench: Bench) -> None:
    policy = readings()
    load(bench, policy)
    bench.database["ticks"].update_one({"_id": 32}, {"$set": {"p": 7.0}})
    before = list(bench.database["bucketwise_progress"].find())
    for _ in range(2):
        report = bench.roll_up(policy, NOW, dry_run=True)
        assert (report.hourly.written, report.daily.written) == (1, 1)
    assert list(bench.database["bucketwise_progress"].find()) == before
    assert mended(bench, policy).hourly.written == 1


@pytest.mark.proof
def test_a_given_range_leaves_the_bookmark_alone(bench: Bench) -> None:
    policy = readings()
    load(bench, policy)
    bench.database["ticks"].update_many({"_id": {"$in": [32, 48]}}, {"$set": {"p": 7.0}})
    assert bench.roll_up(policy, NOW, since=OLD, until=OLD + HOUR).late is None
    report = mended(bench, policy)
    assert (report.hourly.written, report.hourly.unchanged) == (1, 1)


@pytest.mark.proof
def test_changes_of_many_buckets_are_gathered_in_bounded_pieces(bench: Bench) -> None:
    policy = readings()
    bench.database["ticks"].insert_many([reading(n, FIRST + n * 3 * MINUTE) for n in range(2600)])
    bench.roll_up(policy, NOW)
    bench.database["ticks"].update_many({}, {"$inc": {"p": 1.0}})
    report = mended(bench, policy)
    assert late_of(report) == (2600, None)
    assert report.hourly.written == report.hourly.due == 130


def test_a_ttl_index_takes_raw_data_and_summaries_stay(bench: Bench) -> None:
    """What MongoDB deletes by age is no change of the readings, nor where it is half through a window."""
    policy = readings()
    load(bench, policy)
    before = bench.raw("hourly"), bench.raw("daily")
    bench.database["ticks"].create_index("other", expireAfterSeconds=3600)
    bench.database["ticks"].delete_many({"d": {"$lt": OLD + 7 * HOUR}})
    report = bench.roll_up(policy, NOW)
    assert (late_of(report)[1], windows(report)) == (None, (0, 0))
    # A late reading beside it doesn't make half a day of a day: it is merged with the hours that stand.
    bench.database["ticks"].insert_one(reading(999, OLD + 20 * HOUR))
    report = bench.roll_up(policy, NOW)
    assert (report.hourly.written, report.daily.written, report.daily.kept) == (1, 1, 0)
    changed = [document for document in bench.raw("daily").values() if document not in before[1].values()]
    assert [bson.decode(document)["count"] for document in changed] == [8 + 1]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("archives", [False, True])
@pytest.mark.parametrize("since", [FIRST, OLD], ids=["the oldest", "in their midst"])
def test_readings_that_are_deleted_are_taken_out_of_the_summaries(
    bench: Bench, archives: bool, since: datetime
) -> None:
    """But for the oldest, where the policy archives nothing: something else may remove raw data by age."""
    archive = {"after": timedelta(days=90), "to": "online", "collection": "archive"}
    policy = readings(archive=archive if archives else None)
    load(bench, policy)
    bench.database["ticks"].delete_many({"d": {"$gte": since, "$lt": since + DAY}})
    report = bench.roll_up(policy, NOW)
    kept = since == FIRST and not archives
    assert (report.hourly.deleted, report.daily.deleted) == ((0, 0) if kept else (8, 1))
    assert (report.hourly.kept, report.daily.kept) == ((8, 1) if kept else (0, 0))


def test_a_policy_that_insists_on_a_stream_says_what_it_lacks(bench: Bench) -> None:
    bench.database.create_collection("ticks", timeseries={"timeField": "d", "metaField": "symbol"})
    bench.database["ticks"].insert_many([reading(n, FIRST + n * HOUR) for n in range(5)])
    late = bench.roll_up(readings(model="timeseries"), NOW).late
    assert late is not None and late.mode == "scan" and "time-series" in str(late.reason)


def test_an_unreadable_stream_is_scanned_for_or_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OperationFailure("not authorized", 13)

    bench.database["ticks"].insert_one(reading(1, FIRST))
    monkeypatch.setattr(Database, "watch", refuse)
    late = bench.roll_up(readings(), NOW).late
    assert late is not None and late.mode == "scan" and "not authorized" in str(late.reason)
    with pytest.raises(BucketwiseError, match=r"late_data.*the user is not authorized"):
        bench.roll_up(readings(rollup={**ROLLUP, "late_data": "stream"}), NOW)


@pytest.mark.proof
def test_an_archive_run_asks_whether_windows_have_changed_since(bench: Bench) -> None:
    policy = readings()
    load(bench, policy)

    def has_changed(watch: ChangeWatch, at: datetime) -> bool:
        return watch.has_changed(to_ms(at), to_ms(at) + 1, lambda: None)

    watch = ChangeWatch(bench.database, policy, "books")
    assert not has_changed(watch, OLD)
    bench.database["ticks"].update_one({"_id": 32}, {"$set": {"p": 7.0}})
    assert has_changed(watch, OLD + 23 * HOUR), "another reading of the same day"
    assert not has_changed(watch, OLD + DAY)
    assert has_changed(watch, OLD), "nobody has mended it"
    bench.database["ticks"].delete_one({"_id": 40})
    assert has_changed(watch, OLD + 5 * DAY), "nothing tells which it was"
    before = bench.database["bucketwise_progress"].find_one({"_id": "ticks"})
    assert has_changed(ChangeWatch(bench.database, policy, "books"), OLD)
    assert bench.database["bucketwise_progress"].find_one({"_id": "ticks"}) == before
    bench.roll_up(policy, NOW)
    assert not has_changed(ChangeWatch(bench.database, policy, "books"), OLD)
    scanning = readings(rollup={**ROLLUP, "late_data": "scan"})
    assert has_changed(ChangeWatch(bench.database, scanning, "books"), OLD), "nothing can tell"


@pytest.mark.proof
def test_a_run_that_lost_its_lease_as_it_slept_writes_nothing(bench: Bench) -> None:
    """It has read what another run has mended since, and the change stream would not tell of it again."""
    policy = readings()
    load(bench, policy)
    bench.database["ticks"].update_one({"_id": 32}, {"$set": {"p": 7.0}})
    other = Bench(bench.database)

    def lost(_session: ClientSession) -> None:
        bench.database["ticks"].update_one({"_id": 32}, {"$set": {"p": 8.0}})
        assert other.roll_up(policy, NOW).hourly.written == 1
        raise BucketwiseError("the lease is lost")

    with pytest.raises(BucketwiseError, match="the lease is lost"):
        bench.roll_up(policy, NOW, guard=lost)
    report = mended(bench, policy)
    assert (report.hourly.written, report.hourly.unchanged) == (0, 0)


class Commands(CommandListener):
    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def started(self, event: CommandStartedEvent) -> None:
        self.names[event.command_name] += 1

    def succeeded(self, _event: CommandSucceededEvent) -> None: ...

    def failed(self, _event: CommandFailedEvent) -> None: ...


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("policy", [readings(), slots()], ids=["reading", "slots"])
def test_a_run_that_finds_nothing_new_asks_little_however_many_days_are_live(
    bench: Bench, mongodb_uri: str, policy: Policy
) -> None:
    load(bench, policy)
    seen = Commands()
    with MongoClient[Document](mongodb_uri, tz_aware=True, event_listeners=[seen]) as client:
        report = Bench(client[bench.database.name]).roll_up(policy, NOW)
    assert windows(report) == (0, 0)
    del seen.names["getMore"]  # where the first reply of the stream does not tell of the mark yet
    archive = 2  # whose span is asked for
    assert seen.names == {
        "find": 3
        + archive,  # progress and counts, quarantine, buckets without a time: no window is over since
        "count": 2,  # estimates of the summaries
        "listCollections": 1,
        "update": 2,  # mark, progress
        "aggregate": 1,  # the stream
        "killCursors": 1,
        "endSessions": 1,
    }


@pytest.mark.proof
@pytest.mark.parametrize("moment", ["before it is listed", "after the last mark"])
def test_a_bucket_that_goes_while_a_run_looks_is_told_to_this_run_or_the_next(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its delete does not say where it was: that it was live is known."""
    policy = readings()
    bench.database["ticks"].insert_one(reading(-1, FIRST - 9 * DAY))  # raw data is not cleared away by age
    load(bench, policy)
    bench.database["ticks"].insert_one(reading(1000, FIRST + 20 * DAY))
    bench.roll_up(policy, NOW)
    bench.database["ticks"].insert_one(reading(1001, FIRST + 21 * DAY))
    list_days, drain, drained = late.live_days, Stream.drain, []

    def go() -> None:
        bench.database["ticks"].delete_one({"_id": 1000})

    def hooked_list(source: Source) -> Any:
        if moment == "before it is listed":
            go()
        return list_days(source)

    def hooked_drain(*given: Any, **named: Any) -> ChangeSet:
        found = drain(*given, **named)
        drained.append(found)
        if len(drained) == 2 and moment == "after the last mark":
            go()
        return found

    with monkeypatch.context() as meddling:
        meddling.setattr(late, "live_days", hooked_list)
        meddling.setattr(Stream, "drain", hooked_drain)
        bench.roll_up(policy, NOW)
    assert len(drained) == 2 and bench.database["ticks"].find_one({"_id": 1000}) is None
    mended(bench, policy)
    assert bench.database["daily"].find_one({"start": FIRST + 20 * DAY}) is None


@pytest.mark.parametrize("much", [1, 10_000])
def test_a_run_that_has_written_much_reads_past_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, much: int
) -> None:
    monkeypatch.setattr(rollup, "MANY_WRITTEN", much)
    load(bench, readings())
    progress = bench.database["bucketwise_progress"].find_one({"_id": "ticks"})
    assert progress is not None
    with bench.database.watch(start_after=progress["stream"]["token"], max_await_time_ms=50) as stream:
        event = stream.try_next()
        if event is not None and event["documentKey"]["_id"] == {"summaries": "ticks"}:  # their count
            event = stream.try_next()
    if much == 1:
        assert event is None or event["ns"]["coll"] == "bucketwise_progress"
    else:
        assert event is not None and event["ns"]["coll"] == "hourly"


@pytest.mark.parametrize("at", [FIRST + MINUTE, NOW + DAY + MINUTE], ids=["late", "new"])
def test_what_comes_in_while_much_is_written_is_told_to_the_next_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, at: datetime
) -> None:
    """It comes into a slice that has been read already."""
    policy = readings()
    load(bench, policy)
    monkeypatch.setattr(rollup, "MANY_WRITTEN", 1)
    bench.database["ticks"].insert_many([reading(500, FIRST), reading(501, NOW + DAY)])

    slices = iter(("late", "new"))

    def come(_what: str, _count: int, _share: float | None = None) -> None:
        if next(slices) == ("late" if at < NOW else "new"):
            bench.database["ticks"].insert_one(reading(502, at))

    bench.roll_up(policy, NOW + 5 * DAY, progress=come)
    bench.roll_up(policy, NOW + 5 * DAY)
    (hour,) = bench.database["hourly"].find({"start": at - MINUTE})
    assert hour["count"] == (3 if at < NOW else 2)


@pytest.mark.proof
def test_a_look_back_leaves_out_what_was_not_live(bench: Bench) -> None:
    """One late reading of long ago is live, and all between it and the last days is archived."""
    policy = readings()
    load(bench, policy)
    middle = {"_id": {"$gte": 8, "$lt": 72}}
    bench.database["archive"].insert_many(bench.database["ticks"].find(middle))
    with bench.database.client.start_session() as session, session.start_transaction():
        bench.database["ticks"].delete_many(middle, session=session)
        bench.database["books"].insert_one({"kind": "delete", "collection": "ticks"}, session=session)
    assert windows(bench.roll_up(policy, NOW)) == (0, 0)
    bench.database["ticks"].delete_many({"_id": {"$in": [3, 90]}})
    report = mended(bench, policy)
    assert (report.hourly.written, report.daily.written) == (2, 2)
    assert report.daily.due == 1 + 3


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("how", ["a range", "a run cut off", "a run cut off in a slice"])
def test_a_bucket_that_moved_and_went_is_looked_for_where_it_was_met_meanwhile(
    bench: Bench, how: str
) -> None:
    """Neither event says where the bucket was in between, and a summary of it is there."""
    policy = readings(rollup={**ROLLUP, "recheck": 400 * DAY})  # what goes did not go by its age
    bench.database["ticks"].insert_many([reading(1, FIRST + 9 * DAY), reading(2, FIRST + 20 * DAY)])
    bench.roll_up(policy, NOW)
    bench.database["ticks"].update_one({"_id": 1}, {"$set": {"d": FIRST}})

    def stop(_session: ClientSession | None = None) -> None:
        if bench.database["hourly"].count_documents({"start": FIRST}):
            raise InterruptedRun("stopped")

    if how == "a range":
        bench.roll_up(policy, NOW, since=FIRST, until=FIRST + DAY)
    else:
        meanwhile: dict[str, Any] = {"check": stop} if how == "a run cut off" else {"guard": stop}
        with pytest.raises(InterruptedRun):
            bench.roll_up(policy, NOW, **meanwhile)
    assert FIRST in bench.starts("hourly")
    bench.database["ticks"].delete_one({"_id": 1})
    bench.roll_up(policy, NOW)
    assert bench.starts("hourly") == [FIRST + 20 * DAY]


def test_a_stream_that_is_opened_while_writes_come_in_has_a_token(bench: Bench) -> None:
    """The server gives none beside the first events."""
    policy = slots()
    written = bench.database[policy.collection]
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            written.insert_one({})

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    try:
        stream = Stream(policy, Source(bench.database, policy), "books")
        assert all(stream.token_now() for _ in range(60))
    finally:
        stop.set()
        for writer in writers:
            writer.join()
