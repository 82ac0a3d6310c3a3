"""Slices that are read by several at once, in shares, and ahead of what is written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo.collation import Collation
from pymongo.database import Database

from bucketwise.buckets.bson.raw import LOSSLESS
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.buckets.layouts.groups import Unions
from bucketwise.buckets.source import Source
from bucketwise.config.errors import InterruptedRun
from bucketwise.config.policies import Policy
from bucketwise.rollups.rolling.plan import none_restored
from bucketwise.rollups.rolling.slices import (
    ArchivedHalf,
    SliceReader,
    SliceRequest,
    SliceStates,
    read,
    shares,
)
from tests.buckets import handmade as bson_of
from tests.buckets.handmade import Value
from tests.buckets.strategies import anything
from tests.examples import examples
from tests.rollups.conftest import Bench
from tests.rollups.rolling.test_rollup import DAY, FIRST, NOW, policy_of, tick, ticks

Document = dict[str, Any]
AT = datetime(2021, 3, 26, 10, tzinfo=UTC)
bounds = st.lists(
    st.one_of(
        st.integers(-9, 9),
        st.floats(),
        st.text(max_size=3),
        st.sampled_from(["$s", "", "A", "a", "ä", None, True, b"b", ObjectId(b"0123456789ab"), AT]),
        st.sampled_from([{}, {"$s": 1}, {"a": 1}, [], [1, "a"]]),
    ),
    max_size=4,
)
held = st.lists(st.one_of(st.none(), anything), min_size=1, max_size=12)  # None: the field is missing


def _document(number: int, value: Value | None, *, nested: bool) -> RawBSONDocument:
    fields = [("_id", bson_of.int32(number)), ("d", bson_of.date(FIRST_MS + 10**13))]
    if value is not None:
        fields.append(("m", bson_of.sub(("s", value))) if nested else ("s", value))
    return RawBSONDocument(bson_of.document(*fields), LOSSLESS)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("kind", ["plain", "indexed", "sparse", "collated"])
def test_shares_hold_each_bucket_once(database: Database[Document], kind: str) -> None:
    """Whatever stands in the field, and whatever the bounds are, in whatever order."""
    collated = {"collation": Collation("en", strength=1)} if kind == "collated" else {}
    collection = database.create_collection("ticks", **cast(Any, collated))
    if kind in ("indexed", "sparse"):
        for field in ("s", "m.s"):
            collection.create_index([(field, 1), ("d", 1)], sparse=kind == "sparse")

    @settings(max_examples=examples(15))
    @given(held, bounds, st.booleans())
    def each_is_there_once(values: list[Value | None], cuts: list[Any], nested: bool) -> None:
        collection.delete_many({})
        raw = database.get_collection("ticks", codec_options=LOSSLESS)
        raw.insert_many(cast(Any, [_document(i, it, nested=nested) for i, it in enumerate(values)]))
        policy = policy_of(series_fields=("m.s" if nested else "s",))
        source = Source(database, policy)
        met = Counter(
            batch.main.decode_id(i)
            for share in shares(cuts)
            for batch in source.batches(FIRST_MS, LAST_MS + 1, share.query(policy))
            for i in range(len(batch))
        )
        assert met == Counter(range(len(values)))

    each_is_there_once()


class Elsewhere:
    """Slices are read by threads, as other processes would; and how many were under way."""

    def __init__(
        self, bench: Bench, policy: Policy, pool: ThreadPoolExecutor, workers: int, memory: int
    ) -> None:
        self._bench, self._policy, self._pool = bench, policy, pool
        self.reader = SliceReader(self._read, workers, memory)
        self.asked: list[SliceRequest] = []
        self.under_way = self.most = 0
        self._unions = Unions()

    def _read(self, asked: SliceRequest) -> Future[SliceStates]:
        database, policy = self._bench.database, self._policy
        archive = Source(database, policy, "archive")
        self.asked.append(asked)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        half = ArchivedHalf(archive.batches, none_restored)
        return self._pool.submit(read, Source(database, policy), half, policy, asked, self._unions)

    def wrote(self, *_: object) -> None:
        self.under_way -= 1


@contextmanager
def elsewhere(bench: Bench, policy: Policy, workers: int, memory: int = 10**9) -> Iterator[Elsewhere]:
    with ThreadPoolExecutor(workers) as pool:
        yield Elsewhere(bench, policy, pool, workers, memory)


def existing(bench: Bench) -> dict[bytes, bytes]:
    return bench.raw("hourly") | bench.raw("daily")


@pytest.mark.proof
def test_read_by_several_it_is_what_one_reads(bench: Bench) -> None:
    """Live and archived, sound and broken, late ones and ranges, with much memory and with none: the same
    summaries, to the byte, and the same report."""

    @settings(max_examples=examples(4))
    @given(st.integers(2, 250), st.integers(1, 6), st.integers(2, 5), st.integers(0, 3), st.data())
    def equal(count: int, days: int, workers: int, bad: int, data: st.DataObject) -> None:
        again, memory = data.draw(st.booleans()), data.draw(st.sampled_from([10**9, 4 * workers]))
        found = ticks(count, days)
        odd: list[Any] = [None, 5, 5.5, {"a": 1}, ["no series"], math.inf]
        found += [{**tick(10_000 + i, "", FIRST + i * DAY), "symbol": it} for i, it in enumerate(odd)]
        found += [{"_id": f"bad {i}", "symbol": "S1", "d": FIRST, "p": 1, "book": 1} for i in range(bad)]
        policy, reports, summaries = policy_of("Europe/Berlin"), [], []
        for reads in (1, workers):
            bench.database.client.drop_database(bench.database.name)
            bench.database["archive"].insert_many(found[: count // 2])
            bench.database["ticks"].insert_many(found[count // 2 :])
            with elsewhere(bench, policy, reads, memory) as there:
                given_: dict[str, Any] = {} if reads == 1 else {"reader": there.reader}
                told = [bench.roll_up(policy, NOW, **given_)]
                bench.database["ticks"].insert_one(tick(20_000, "late", FIRST))
                if again:
                    told.append(bench.roll_up(policy, NOW, since=FIRST, until=FIRST + DAY, **given_))
                told.append(bench.roll_up(policy, NOW, **given_))
            for report in told:
                report.late = None  # its bookmark is of that database
                report.quarantined.sort(key=lambda it: repr(it.id))
            reports.append(told)
            summaries.append(existing(bench))
        assert summaries[0] and summaries[0] == summaries[1]
        assert reports[0] == reports[1]

    equal()


def test_one_slice_is_cut_for_several_and_many_are_not(bench: Bench) -> None:
    policy = policy_of()
    bench.database["ticks"].insert_many(ticks(300))
    with elsewhere(bench, policy, 3) as there:
        bench.roll_up(policy, NOW - DAY, reader=there.reader)
        assert len(there.asked) > 3 and all(not it.share.query(policy) for it in there.asked)
        there.asked.clear()
        bench.database["ticks"].insert_one(tick(9000, "S1", FIRST + timedelta(hours=1)))
        bench.roll_up(policy, NOW - DAY, since=FIRST, until=FIRST + timedelta(hours=2), reader=there.reader)
        queries = [it.share.query(policy) for it in there.asked]
    assert len({str(it.edges) for it in there.asked}) == 1
    assert len(queries) == 3 and all(queries), "a share each, by the series that the summaries know"
    assert [bool(it.share.low) for it in there.asked] == [False, True, True], "the first has the archive"


def test_so_many_are_under_way_and_no_more(bench: Bench) -> None:
    policy = policy_of()
    bench.database["ticks"].insert_many(ticks(600, days=6))
    with elsewhere(bench, policy, 2) as there:
        bench.roll_up(policy, NOW, reader=there.reader, progress=there.wrote)
    assert there.most == 4


@pytest.mark.parametrize(("workers", "memory", "size", "most"), [
    (1, 0, 10**9, 1), (4, 10**9, 0, 8), (4, 10**9, 1, 8), (4, 1000, 200, 5), (4, 1000, 5000, 1),
])  # fmt: skip
def test_memory_bounds_how_many_are_under_way(workers: int, memory: int, size: int, most: int) -> None:
    assert SliceReader(lambda _asked: Future(), workers, memory).max_in_flight(size) == most


def test_what_is_under_way_keeps_no_run_from_stopping(bench: Bench) -> None:
    """A read that never comes to its end is given up when the run is asked to stop."""
    bench.database["ticks"].insert_many(ticks(50))
    asked: list[SliceRequest] = []

    def never(it: SliceRequest) -> Future[SliceStates]:
        asked.append(it)
        return Future()

    def stop() -> None:
        if len(asked) == 4:
            raise InterruptedRun("stopped")

    with pytest.raises(InterruptedRun):
        bench.roll_up(policy_of(), NOW, reader=SliceReader(never, 2, 10**9), check=stop)
    assert len(asked) == 4


def test_a_share_asks_for_literals() -> None:
    """A text that begins with $ is no field."""
    policy = policy_of(series_fields=("symbol", "exchange"))
    first, last = shares(["$p"])
    assert first.query(policy) == {"$and": [{"$expr": {"$lt": ["$symbol", {"$literal": "$p"}]}}]}
    assert last.query(policy) == {"$and": [{"$expr": {"$gte": ["$symbol", {"$literal": "$p"}]}}]}
    assert shares([])[0].query(policy) is None
