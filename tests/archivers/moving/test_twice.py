"""A bucket that one run meets again, since it has grown after its copy was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import bson
import pytest
from bson.objectid import ObjectId
from hypothesis import given
from hypothesis import strategies as st
from pymongo.database import Database

from bucketwise.archivers.context import Connections
from bucketwise.archivers.decisions import Outcome
from bucketwise.archivers.moving import copies as copied_buckets
from bucketwise.archivers.moving import offline as offline_run
from bucketwise.archivers.moving import sweep
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.archivers.writes import compare_all
from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.fields.times import as_ms
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, LATER, Case, encode, samples
from tests.archivers.harness import Cycle

Document = dict[str, Any]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def bucket(name: str | int, *moments: datetime) -> Document:
    return {
        "_id": name, "deviceid": 1, "sensorid": 3, "nsamples": len(moments), "sum": 1.0 * len(moments),
        "first": moments[0], "last": moments[-1],
        "samples": [{"val": 1.0, "time": at} for at in moments],
    }  # fmt: skip


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("in_memory", [1 << 20, 1], ids=["in memory", "in a file"])
@pytest.mark.parametrize("ending", [{"grace": 2 * DAY}, {"delete": False}, {}], ids=str)
def test_a_bucket_that_grows_after_its_copy(
    database: Database[Document],
    file_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    ending: Any,
    in_memory: int,
) -> None:
    """Nothing is double, while its copy waits or once it has gone, whichever commit comes first by name."""
    base = samples("dates")
    first = [bucket(f"a{i}", DAY0 + i * HOUR, DAY0 + (i + 0.5) * HOUR) for i in range(4)]
    second = [bucket("b0", DAY0 - DAY, DAY0 + DAY), bucket("b1", DAY0 + DAY + HOUR)]
    grown = bucket("a1", DAY0 + HOUR, DAY0 + 1.5 * HOUR, DAY0 + DAY + 2 * HOUR)
    case = Case(base.name, base.policy, [encode(it) for it in [*first, *second]], []).with_archive(**ending)
    cycle = Cycle(database, case, file_store).load()
    inner = sweep.Sweep.flush

    def flush(self: Any) -> None:
        moves = bool(self._filling._selected)
        inner(self)
        if moves:
            database["iot"].replace_one({"_id": "a1"}, grown)

    monkeypatch.setattr(sweep, "prefetch", lambda days, *_: days)  # the next day is read once it has grown
    monkeypatch.setattr(sweep, "MAX_READINGS", 4)
    monkeypatch.setattr(copied_buckets, "MOST_IN_MEMORY", in_memory)
    monkeypatch.setattr(sweep.Sweep, "flush", flush)
    report = cycle.run()
    monkeypatch.setattr(sweep.Sweep, "flush", inner)
    moments = [it["time"] for one in [first[0], grown, *first[2:], *second] for it in one["samples"]]
    expected = Counter((1, 3, at, 1.0) for at in moments)
    assert report.changed == 1
    assert not cycle.rows() - expected
    if ending:
        assert report.left == len(cycle.live()) == 6
    for days in (3, 6):
        cycle.run(LATER + days * DAY)
    assert cycle.rows() == expected
    assert len(cycle.live()) == (6 if "delete" in ending else 0)


@pytest.mark.parametrize("count", [2, 4])
def test_a_bucket_that_grows_while_its_copy_is_under_way_and_then_goes(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Its copy counts, as it was made: the newer one, that was read meanwhile, is not copied beside it. It
    comes up while the first copy is under way (of 2 buckets), or once the bucket was found to be gone."""
    base = samples("dates")
    first = [bucket(f"a{i}", DAY0 + i * HOUR, DAY0 + (i + 0.5) * HOUR) for i in range(count)]
    last = bucket("b1", DAY0 + DAY + HOUR)
    grown = bucket("a1", DAY0 + HOUR, DAY0 + 1.5 * HOUR, DAY0 + DAY + 2 * HOUR)
    case = Case(base.name, base.policy, [encode(it) for it in [*first, last]], []).with_archive()
    cycle = Cycle(database, case, file_store).load()
    collection, delete, flush = database["iot"], offline_run.OfflineRun._delete, sweep.Sweep.flush
    events = list[str]()

    def all_at_once(days: Any, *_: Any) -> Iterator[Any]:
        """The bucket has grown once the first day is read, and is found again on the second."""
        found = []
        for it in days:
            found.append(it)
            collection.replace_one({"_id": "a1"}, grown)
        assert sum(len(it.batch) for it in found) == count + 2
        yield from found

    def go(self: Any, *args: Any) -> Any:
        collection.delete_one({"_id": "a1"})
        events.append("delete")
        return delete(self, *args)

    def note(self: Any) -> None:
        if self._filling._selected:
            events.append("flush")
        flush(self)

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "MAX_READINGS", 4)
        patch.setattr(sweep, "prefetch", all_at_once)
        patch.setattr(sweep.Sweep, "flush", note)
        patch.setattr(offline_run.OfflineRun, "_delete", go)
        report = cycle.run()
    assert events.index("delete") == 2, "one commit was copied, and another was ready"
    for days in (3, 6):
        cycle.run(LATER + days * DAY)
    moments = [it["time"] for one in [*first, last] for it in one["samples"]]
    assert cycle.rows() == Counter((1, 3, at, 1.0) for at in moments)
    assert not cycle.live()
    assert (report.buckets, report.changed) == (count + 1, 0 if count == 2 else 1)


@pytest.mark.parametrize("kind", ["offline", "online"])
def test_an_id_that_is_taken_again_as_its_bucket_is_found_to_be_gone(
    database: Database[Document], file_store: Store, kind: str
) -> None:
    """What counts once the run has ended is what summaries were made of: they are not made again."""
    grace = {"grace": 2 * DAY}
    base = samples("dates")
    first = encode(bucket("a1", DAY0, DAY0 + HOUR))
    case = Case(base.name, base.policy, [first], [])
    case = case.online().with_archive(**grace) if kind == "online" else case.with_archive(**grace)
    cycle = Cycle(database, case, file_store).load()
    second = bucket("a1", DAY0 + 2 * HOUR)

    def counting() -> list[Document]:
        reader = archived_reader(Connections(database, cycle.store), cycle.policy)
        archived = [it for batch in reader.batches(as_ms(DAY0), as_ms(DAY0 + DAY)) for it in batch.main]
        return [bson.decode(it) for it in sorted([*cycle.live(), *archived])]

    summarised: list[list[Document]] = []

    def rolled_up(
        _start: int, _end: int, *, force: bool = False, leaving: Sequence[tuple[int, int]] = ()
    ) -> bool:
        if force and not leaving and not summarised:
            database["iot"].insert_one(dict(second))
            summarised.append(counting())
        return True

    assert cycle.run().left == 1
    database["iot"].delete_one({"_id": "a1"})
    cycle.run(LATER + 3 * DAY, through=as_ms(LATER), rolled_up=rolled_up)
    assert [counting()] == summarised
    for days in (6, 9):
        cycle.run(LATER + days * DAY)
    assert [it["nsamples"] for it in counting()] == [1]
    assert not cycle.live()


def test_no_folder_for_names_that_wait(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run fails, and the next one does the work."""
    cycle = Cycle(database, samples("dates").with_archive(delete=False), file_store).load()
    monkeypatch.setattr(copied_buckets, "MOST_IN_MEMORY", 1)
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.tempdir", "/nowhere")
        with pytest.raises(FileNotFoundError, match="/nowhere"):
            cycle.run()
    assert cycle.run().left == len(cycle.live()) == len(cycle.case.documents)
    assert cycle.archived() == cycle.live()


@given(data=st.data(), in_memory=st.sampled_from([1, 100, 1 << 20]))
def test_names_that_wait(data: st.DataObject, in_memory: int) -> None:
    """Of some buckets: those in an earlier commit whose time theirs overlaps, and that stayed, or that
    is not settled."""
    ids = st.integers(0, 40).map(lambda number: ObjectId(f"{number:024x}")) | st.integers(0, 9)
    span = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted)
    copies = data.draw(
        st.lists(st.tuples(span, st.lists(ids, min_size=1, max_size=20, unique=True)), max_size=6)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copied_buckets, "MOST_IN_MEMORY", in_memory)
        waiting = copied_buckets.CopiedBuckets()
    stay, settled = data.draw(st.lists(st.booleans(), min_size=6, max_size=6)), 0
    with closing(waiting):
        for number, ((first, last), names) in enumerate(copies):
            batch = Batch.of(Docs.of([bson.encode({"_id": name}) for name in names]))
            before = [
                {name for (low, high), held in some if low <= last and high >= first for name in held}
                for some in ([copies[i] for i in range(settled) if stay[i]], copies[settled:number])
            ]
            found = waiting.staying(batch, first, last), waiting.unsettled(batch, first, last)
            assert [it.tolist() for it in found] == [[name in some for name in names] for some in before]
            waiting.begin(batch, first, last)
            while settled <= number and data.draw(st.booleans()):
                waiting.settle(stay=stay[settled])
                settled += 1


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("days", [100, 900], ids=["due", "not due yet"])
def test_one_that_moves_where_nothing_is_deleted_counts_once(
    database: Database[Document], file_store: Store, days: int
) -> None:
    """Also once somebody else has deleted it, and others that stayed where they were."""
    base = samples("dates")
    documents = [bucket(f"a{i}", DAY0 + i * HOUR, DAY0 + (i + 0.5) * HOUR) for i in range(6)]
    case = Case(base.name, base.policy, [encode(it) for it in documents], []).with_archive(delete=False)
    cycle = Cycle(database, case, file_store).load()
    cycle.run()
    (receipt,) = database["bucketwise_receipts"].find({"kind": "offline"})
    source = database[case.policy.collection]
    elsewhere = bucket("a1", DAY0 + days * DAY, DAY0 + days * DAY + HOUR)
    source.replace_one({"_id": "a1"}, elsewhere)
    source.delete_one({"_id": "a2"})
    now = LATER + 400 * DAY
    for _ in range(2):
        cycle.run(now)
    (state,) = database["bucketwise_receipts"].find(
        {"kind": "offline", "state": "open", "days": receipt["days"]}
    )
    assert state["buckets"] == 5 and state["live"] != receipt["live"]
    source.delete_one({"_id": "a1"})
    for _ in range(2):
        cycle.run(now)
    held = [bson.decode(it) for it in cycle.archived()]
    assert Counter(it["_id"] for it in held)["a1"] == (1 if days == 100 else 0)
    assert {it["_id"] for it in held} >= {"a0", "a2", "a3", "a4", "a5"}
    before = list(database["bucketwise_receipts"].find())
    cycle.run(now)
    assert list(database["bucketwise_receipts"].find()) == before  # what has gone is looked at once


def test_copies_of_originals_that_no_run_meets_are_compared_once_in_a_while(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is broken, and stays as it was archived, is not met beside the others."""
    base = samples("dates")
    documents = [bucket(f"a{i}", DAY0 + i * HOUR, DAY0 + (i + 0.5) * HOUR) for i in range(3)]
    case = Case(base.name, base.policy, [encode(it) for it in documents], []).with_archive(delete=False)
    cycle = Cycle(database, case, file_store).load()
    cycle.run()
    database[case.policy.collection].update_one({"_id": "a1"}, {"$set": {"samples": "broken"}})
    compared = list[datetime]()

    def counting(*given: Any) -> Outcome:
        compared.append(now)
        return compare_all(*given)

    monkeypatch.setattr(offline_run, "compare_all", counting)
    begin = LATER + DAY
    for now in (begin, begin, begin + DAY, begin + 31 * DAY):
        cycle.run(now)
    assert compared == [begin, begin + 31 * DAY]
    assert {bson.decode(it)["_id"] for it in cycle.archived()} == {"a0", "a1", "a2"}
