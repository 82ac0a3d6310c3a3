"""Any bucket is found by its `_id`, and what has to be read for it is bounded."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import bson
import pytest
from bson.codec_options import CodecOptions
from bson.objectid import ObjectId
from pymongo.database import Database

from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.kinds import offline as offline
from bucketwise.archivers.kinds.evidence import Searched
from bucketwise.buckets.fields.times import DAY_MS, as_ms
from bucketwise.config.tables import Store
from bucketwise.jobs.explain.buckets import ExplainedBucket, ExplainQuery, ExplainResult, explained_buckets
from tests.archivers.builders import CODEC, DAY0, Case, deletable, encode, reading, samples, timeseries
from tests.archivers.harness import Cycle, in_turn

Document = dict[str, Any]
#: UUIDs stay binary, as extended JSON gives them.
AS_GIVEN: CodecOptions[Document] = CodecOptions(tz_aware=True)


def asked(cycle: Cycle, identity: Any, at: datetime | None = None) -> ExplainResult:
    return answer_to(cycle, ExplainQuery(identity, has_identity=True, at=None if at is None else as_ms(at)))


def answer_to(cycle: Cycle, question: ExplainQuery) -> ExplainResult:
    context = cycle.context()
    return explained_buckets(context, archive_of(context).evidence, question, None)


def found(cycle: Cycle, identity: Any, at: datetime | None = None) -> ExplainedBucket:
    (only,) = asked(cycle, identity, at).buckets
    return only


@pytest.mark.proof
@pytest.mark.parametrize(("case", "to"), in_turn(deletable(), ["offline", "online"]))
def test_each_bucket_of_each_model(
    database: Database[Document], file_store: Store, case: Case, to: str
) -> None:
    """`_id`s of any type, given as people give them; what it holds follows from the whole."""
    cycle = Cycle(database, case if to == "offline" else case.online(), file_store).load()
    ids = [bson.decode(it, AS_GIVEN)["_id"] for it in case.documents][:9]
    assert {found(cycle, it).fate.state for it in ids} == {"live"}
    before = [found(cycle, it) for it in ids]
    cycle.run()
    after = [found(cycle, it) for it in ids]
    assert {it.fate.state for it in after} == {"archived" if to == "offline" else "online"}
    for one, other in zip(before, after, strict=True):
        assert (one.id, one.series, one.first, one.last, one.readings) == (
            other.id, other.series, other.first, other.last, other.readings,
        )  # fmt: skip
        assert [it.event for it in other.history][-1] == "deleted"


def test_an_instant_finds_what_covers_it(database: Database[Document], file_store: Store) -> None:
    case = samples("dates")
    cycle = Cycle(database, case, file_store).load()
    told = [bson.decode(it, CODEC) for it in case.documents]
    at = next(it["first"] for it in told if it["nsamples"] > 5) + timedelta(seconds=1)
    wanted = [it["_id"] for it in told if it["first"] <= at <= it["last"]]
    assert wanted
    for _ in range(2):
        answer = answer_to(cycle, ExplainQuery(at=as_ms(at)))
        assert [it.id for it in answer.buckets] == wanted
        cycle.run()


def test_measurements_of_native_time_series(database: Database[Document], file_store: Store) -> None:
    case = timeseries()
    cycle = Cycle(database, case, file_store).load()
    cycle.run()
    one = found(cycle, bson.decode(case.documents[3], CODEC)["_id"])
    assert (one.fate.state, one.fate.action) == ("both", None)
    assert "native time-series" in str(one.fate.rule)


def _many(database: Database[Document], file_store: Store, days: int) -> Cycle:
    """A commit a day; each bucket's ObjectId is of its day."""
    documents = []
    for day in range(days):
        at = DAY0 + timedelta(days=day)
        identity = ObjectId.from_datetime(at)
        documents.append(encode({"_id": identity, "symbol": "A", "d": at, "p": 1.5, "q": 1.5}))
        documents.append(encode({"_id": f"day-{day}", "symbol": "A", "d": at, "p": 1.5, "q": 1.5}))
    case = Case("many", reading().policy, documents, [])
    cycle = Cycle(database, case, file_store).load()
    for day in range(days):
        cycle.run(until=DAY0 + timedelta(days=day + 1))
    return cycle


@pytest.mark.proof
def test_few_commits_are_read(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle = _many(database, file_store, 6)
    assert found(cycle, "day-0").fate.state == "archived", "all are read, as there are few"
    assert asked(cycle, "nobody").searched == Searched(6, 6)
    monkeypatch.setattr(offline, "MOST_COMMITS", 5)
    answer = asked(cycle, "day-0")
    assert (answer.buckets, answer.searched) == ([], Searched(0, 6))
    assert found(cycle, "day-0", DAY0).fate.state == "archived", "its day is named"
    assert asked(cycle, "day-0", DAY0 + timedelta(days=3)).searched == Searched(1, 6)
    assert found(cycle, ObjectId.from_datetime(DAY0 + timedelta(days=2))).fate.state == "archived"
    unknown = ObjectId.from_datetime(DAY0 + timedelta(days=3, seconds=1))
    assert asked(cycle, unknown).searched == Searched(3, 6), "its day, and those beside it"


def test_a_history_reads_no_more_than_the_days_it_touches(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle = _many(database, file_store, 4)
    read: list[str] = []
    get = cycle.store.get_sound

    def note(key: str, *given: Any, **named: Any) -> Any:
        read.append(key)
        return get(key, *given, **named)

    monkeypatch.setattr(cycle.store, "get_sound", note)
    assert found(cycle, "day-2", DAY0 + timedelta(days=2)).fate.state == "archived"
    days = {key.split("/")[2] for key in read if "/data/" in key}
    assert days == {f"dt={(DAY0 + timedelta(days=2)):%Y-%m-%d}"}
    assert as_ms(DAY0) % DAY_MS == 0
