"""The offline archive, from source to Parquet and back."""

from __future__ import annotations

import gc
import json
import math
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pymongo.database import Database

from bucketwise.archivers.moving.sweep import Filling
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.packing import Packed, pack
from bucketwise.buckets.source import Source
from bucketwise.config.errors import BucketwiseError, HaltedError
from bucketwise.config.tables import Store
from tests.archivers.builders import (
    DAY0,
    LATER,
    Case,
    deletable,
    encode,
    raw_documents,
    reading,
    samples,
    samples_overflow,
    slots,
    timeseries,
)
from tests.archivers.harness import Cycle, expected_rows, plain_row
from tests.archivers.states import States, all_archived

Document = dict[str, Any]
BY_NAME = {case.name: case for case in deletable()}


@pytest.fixture(params=sorted(BY_NAME))
def cycle(request: pytest.FixtureRequest, database: Database[Document], file_store: Store) -> Cycle:
    return Cycle(database, BY_NAME[request.param], file_store).load()


@pytest.fixture(params=sorted(BY_NAME))
def archived(request: pytest.FixtureRequest, prepared: States) -> Cycle:
    return prepared(BY_NAME[request.param], all_archived)


@pytest.mark.in_turn(2)
def test_what_expired_moves_and_comes_back_to_the_bit(cycle: Cycle) -> None:
    report = cycle.run()
    assert (report.buckets, report.deleted, report.left) == (len(cycle.case.documents),) * 2 + (0,)
    assert report.readings == len(cycle.case.readings)
    assert report.quarantined == []
    assert cycle.live() == []
    if cycle.policy.overflow:
        assert cycle.live_overflow() == []

    back = cycle.restore("back")
    assert raw_documents(cycle.database, "back") == sorted(cycle.case.documents)
    assert (back.buckets, back.readings) == (len(cycle.case.documents), len(cycle.case.readings))
    if cycle.policy.overflow:
        assert cycle.live_overflow() == sorted(cycle.case.overflow)
        assert back.overflow == len(cycle.case.overflow)


@pytest.mark.in_turn(2)
def test_the_columns_hold_every_reading_once(archived: Cycle) -> None:
    assert archived.rows() == expected_rows(archived.case)


@pytest.mark.in_turn(2)
def test_nothing_large_that_a_run_makes_refers_to_itself(cycle: Cycle) -> None:
    """The program seldom looks for such: columns and documents would stay until then."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        cycle.run()
        cycle.restore("back")
        gc.collect()
        held = _bytes_held(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert held < 10_000  # the code of expressions, and what a cursor was asked for


def _bytes_held(objects: list[object]) -> int:
    """By these, and by what they refer to that the collector does not look at."""
    found, waiting, held = set(map(id, objects)), list(gc.get_referents(*objects)), 0
    while waiting:
        if id(it := waiting.pop()) in found or gc.is_tracked(it):
            continue
        found.add(id(it))
        if isinstance(it, BytesIO):
            held += it.getbuffer().nbytes
        elif isinstance(it, bytes | bytearray):
            held += len(it)
        elif isinstance(it, pa.Buffer):
            held += it.size
        elif isinstance(size := getattr(it, "nbytes", None), int):  # of numpy and Arrow
            held += size
        waiting += gc.get_referents(it)
    return held


def test_the_next_day_is_fetched_while_one_is_worked_on(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle = Cycle(database, samples("epoch"), file_store).load()
    days: list[int] = []
    is_asked_for = threading.Event()
    ending, measure = Source.ending, Filling.measure

    def noted(source: Source, start_ms: int, end_ms: int, also: Document | None = None) -> Iterator[Batch]:
        days.append(start_ms)
        if len(days) == 2:
            is_asked_for.set()
        return ending(source, start_ms, end_ms, also)

    def waiting(filling: Filling, buckets: BucketSet) -> None:
        assert is_asked_for.wait(60)
        measure(filling, buckets)

    monkeypatch.setattr(Source, "ending", noted)
    monkeypatch.setattr(Filling, "measure", waiting)
    assert cycle.run().deleted == len(cycle.case.documents)
    assert len({day // DAY_MS for day in days}) == len(days) > 1


@pytest.mark.in_turn(2)
def test_a_second_run_does_nothing(archived: Cycle) -> None:
    before, receipts = archived.listing(), _receipts(archived)
    report = archived.run()
    assert (report.buckets, report.deleted, report.left, report.parts, report.bytes) == (0, 0, 0, 0, 0)
    assert archived.listing() == before
    assert _receipts(archived) == receipts


def _receipts(cycle: Cycle) -> list[bytes]:
    return raw_documents(cycle.database, "bucketwise_receipts")


@pytest.mark.in_turn(2)
def test_a_dry_run_counts_and_changes_nothing(cycle: Cycle) -> None:
    report = cycle.run(dry_run=True, fence=0)
    assert (report.buckets, report.readings) == (len(cycle.case.documents), len(cycle.case.readings))
    assert cycle.live() == sorted(cycle.case.documents)
    assert cycle.listing() == {}


def test_what_readers_of_parquet_see(prepared: States) -> None:
    case = samples("epoch")
    cycle = prepared(case, all_archived)
    glob = str(cycle.root / "iot" / "data" / "**" / "*.parquet")
    values = [value for _, _, value in case.readings if value is not None]
    wanted = (len(values), math.fsum(values), min(values), max(values))
    days = {at.date().isoformat() for _, at, _ in case.readings}

    table_of = f"read_parquet('{glob}', hive_partitioning = true)"
    with duckdb.connect() as reader:
        query = f"SELECT count(*), sum(val), min(val), max(val) FROM {table_of}"
        assert reader.execute(query).fetchone() == wanted
        found = reader.execute(f"SELECT DISTINCT CAST(dt AS VARCHAR) FROM {table_of}").fetchall()
        assert {day for (day,) in found} == days
        query = f"SELECT count(*) FROM {table_of} WHERE dt != CAST(epoch_ms(epoch_ms(time)) AS DATE)"
        assert reader.execute(query).fetchone() == (0,)

    frame = pl.scan_parquet(glob, hive_partitioning=True).collect()
    assert (frame.height, frame["val"].sum(), frame["val"].min(), frame["val"].max()) == wanted
    assert {str(day) for day in frame["dt"].unique()} == days

    table = pd.read_parquet(cycle.root / "iot" / "data")
    assert (len(table), table["val"].sum(), table["val"].min(), table["val"].max()) == wanted
    assert set(table["dt"].astype(str)) == days
    assert str(table["time"].dtype) == "datetime64[us, UTC]"


@pytest.mark.in_turn(2)
def test_how_the_parts_are_written(archived: Cycle) -> None:
    policy = archived.policy
    data = archived.root / policy.name / "data"
    files = [path for path in data.rglob("*") if path.is_file()]
    assert files and all(path.suffix == ".parquet" for path in files)
    for path in files:
        metadata = pq.ParquetFile(path).metadata
        group = metadata.row_group(0)
        columns = [group.column(i) for i in range(group.num_columns)]
        assert all(column.compression == "ZSTD" for column in columns)
        assert all(column.has_column_index and column.has_offset_index for column in columns)
        names = [column.path_in_schema for column in columns]
        keys = [name.replace(".", "_") for name in policy.series_fields] + ["time"]
        declared = [names[it.column_index] for it in metadata.row_group(0).sorting_columns]
        assert declared == keys
        table = pq.read_table(path, partitioning=None).select(keys).to_pylist()
        rows = [tuple(row.values()) for row in table]
        assert rows == sorted(rows)


@pytest.mark.parametrize("which", ["main", "extra"])
def test_a_copy_that_gives_another_bit_halts_the_run(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """The files lie there as they were written: it is the documents that differ."""

    def flipping(buckets: BucketSet) -> Packed:
        packed = pack(buckets)
        at = [group.overflow for group in packed.groups].index(which == "extra")
        skeleton = packed.groups[at].skeleton
        changed = skeleton[:4] + bytes([skeleton[4] ^ 1]) + skeleton[5:]
        packed.groups[at] = replace(packed.groups[at], skeleton=changed)
        return packed

    monkeypatch.setattr("bucketwise.archivers.format.writing.pack", flipping)
    cycle = Cycle(database, samples_overflow(), file_store).load()
    live = cycle.live(), cycle.live_overflow()
    with pytest.raises(HaltedError, match="does not contain the documents that were exported"):
        cycle.run()
    assert (cycle.live(), cycle.live_overflow()) == live
    assert not list(cycle.root.glob("*/meta/manifests/*"))


def test_texts_that_several_series_share_are_written_once(
    database: Database[Document], file_store: Store
) -> None:
    fields = ("site", "sensor", "no")
    policy = reading().policy.model_copy(update={"series_fields": fields, "value_fields": ("p",)})
    documents = [
        encode(
            {
                "_id": i,
                "site": f"site {i % 2}",
                "sensor": f"sensor {i % 6}",
                "no": 7,
                "d": DAY0,
                "p": i / 8,
            }
        )
        for i in range(60)
    ]
    cycle = Cycle(database, Case("shared", policy, documents, []), file_store).load()
    cycle.run()
    (path,) = (cycle.root / policy.name / "data").rglob("*.parquet")
    group = pq.ParquetFile(path).metadata.row_group(0)
    assert ["RLE_DICTIONARY" in group.column(i).encodings for i in range(3)] == [True, True, False]
    assert all(group.column(i).is_stats_set for i in range(3))
    found = pq.read_table(path, partitioning=None).select(["site", "sensor"]).to_pylist()
    assert Counter(map(str, found)) == Counter(
        str({"site": f"site {i % 2}", "sensor": f"sensor {i % 6}"}) for i in range(60)
    )


def test_page_checksums_are_on(prepared: States) -> None:
    """Every bit of the pages is covered: a flip anywhere in them is an error to who checks."""
    cycle = prepared(slots("second"), all_archived)
    path = max((cycle.root / "slots" / "data").rglob("*.parquet"), key=lambda it: it.stat().st_size)
    data = path.read_bytes()
    group = pq.ParquetFile(path).metadata.row_group(0)
    spots = []
    for i in range(group.num_columns):
        column = group.column(i)
        end = column.data_page_offset + column.total_compressed_size
        spots += [end - 1, end - 5] if not column.has_dictionary_page else []
    noticed = 0
    for spot in spots:
        path.write_bytes(data[:spot] + bytes([data[spot] ^ 4]) + data[spot + 1 :])
        try:
            pq.ParquetFile(path, page_checksum_verification=True).read()
        except Exception:  # noqa: BLE001  # whichever error the reader gives
            noticed += 1
    assert noticed == len(spots) > 0


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("name", ["moto", "rclone"])
def test_the_same_on_object_stores(
    name: str, request: pytest.FixtureRequest, database: Database[Document]
) -> None:
    settings: Store = request.getfixturevalue(f"{name}_store")
    cycle = Cycle(database, samples_overflow(), settings).load()
    cycle.run()
    assert cycle.live() == cycle.live_overflow() == []
    before = cycle.listing()
    assert cycle.run().buckets == 0
    assert cycle.listing() == before
    cycle.restore("back")
    assert raw_documents(database, "back") == sorted(cycle.case.documents)
    assert cycle.live_overflow() == sorted(cycle.case.overflow)


@pytest.mark.in_turn(2)
def test_no_secret_is_in_a_manifest(archived: Cycle) -> None:
    manifests = list((archived.root / archived.policy.name / "meta" / "manifests").glob("*.json"))
    assert manifests
    for path in manifests:
        text = path.read_text()
        assert json.loads(text)["database"] == archived.database.name
        for word in ("mongodb://", "127.0.0.1", "password", "secret", "uri", "endpoint"):
            assert word not in text.replace("documents_sha256", "")


def test_time_series_are_exported_and_kept(database: Database[Document], file_store: Store) -> None:
    case = timeseries()
    cycle = Cycle(database, case, file_store).load()
    live = cycle.live()
    report = cycle.run()
    assert (report.buckets, report.deleted, report.left) == (200, 0, 200)
    assert "transactions" in next(iter(report.reasons))
    assert cycle.live() == live
    assert cycle.rows() == expected_rows(case)
    before = cycle.listing()
    again = cycle.run()
    assert (again.buckets, again.parts, again.deleted, again.left) == (0, 0, 0, 200)
    assert cycle.listing() == before


def test_since_and_until_narrow(database: Database[Document], file_store: Store) -> None:
    cycle = Cycle(database, reading(), file_store).load()
    since = LATER.replace(month=6, day=30, hour=12)
    until = LATER.replace(month=7, day=1, hour=7)
    inside = [at for _, at, _ in cycle.case.readings if since <= at < until]
    report = cycle.run(since=since, until=until)
    assert report.buckets == report.deleted == len(inside)
    assert {row[1] for row in cycle.rows()} == set(inside)
    cycle.run()
    assert cycle.live() == []
    assert cycle.rows() == expected_rows(cycle.case)


def test_what_has_not_expired_stays(database: Database[Document], file_store: Store) -> None:
    """The last reading decides, to the millisecond."""
    cycle = Cycle(database, samples("dates"), file_store).load()
    latest = max(at for _, at, _ in cycle.case.readings)
    report = cycle.run(latest + timedelta(days=30))
    assert report.deleted < len(cycle.case.documents)
    assert latest not in {row[2] for row in cycle.rows()}
    kept = len(cycle.live())
    assert kept >= 1
    cycle.run(latest + timedelta(days=30, milliseconds=1))
    assert latest in {row[2] for row in cycle.rows()}


@pytest.mark.proof
def test_a_longer_after_keeps_what_was_copied(database: Database[Document], file_store: Store) -> None:
    """Copied under `after = 30d` and kept; then `after` grows, and what is young again stays."""
    kept = Cycle(database, reading().with_archive(delete=False), file_store).load()
    kept.run()
    longer = Cycle(database, reading().with_archive(after=timedelta(days=3650)), file_store, fence=kept.fence)
    assert longer.run().deleted == 0
    assert longer.live() == sorted(kept.case.documents)
    shorter = Cycle(database, reading(), file_store, fence=longer.fence)
    before = shorter.listing()
    assert shorter.run().deleted == len(kept.case.documents)
    assert shorter.listing() == before


def test_since_and_until_narrow_what_earlier_runs_copied(
    database: Database[Document], file_store: Store
) -> None:
    copied = Cycle(database, reading().with_archive(delete=False), file_store).load()
    copied.run()
    narrow = Cycle(database, reading(), file_store, fence=copied.fence)
    until = LATER.replace(month=7, day=1)
    narrow.run(until=until)
    assert len(narrow.live()) == sum(at >= until for _, at, _ in narrow.case.readings)


def test_series_that_the_column_cannot_hold_are_left(prepared: States) -> None:
    """One archive is one table: after whole numbers, a word can't go into the column."""
    case = samples("epoch")
    cycle = prepared(case, all_archived)
    odd = {
        "_id": "odd", "deviceid": "a word", "sensorid": 3, "nsamples": 0, "sum": 0, "first": 0, "last": 0,
        "samples": [],
    }  # fmt: skip
    cycle.database["iot"].insert_one(odd)
    report = cycle.run()
    assert [(it.id, it.field) for it in report.quarantined] == [("odd", "deviceid")]
    assert len(cycle.live()) == 1
    assert cycle.rows() == expected_rows(case)


def test_series_of_mixed_types_are_sorted_as_declared(
    database: Database[Document], file_store: Store
) -> None:
    policy = reading().policy
    names: list[Any] = [2.5, 1, 10, 9, "b", "B", True, "10", 3]
    for kind in (names, [2.5, 1, 10, 9, 3]):
        database["ticks"].insert_many(
            [{"_id": f"{kind}{i}{n}", "symbol": name, "d": LATER.replace(year=2017, minute=n), "p": 1.0 * i}
             for i, name in enumerate(kind) for n in range(3)]
        )  # fmt: skip
        case = Case("mixed", policy.model_copy(update={"name": f"mixed{len(kind)}"}), [], [])
        cycle = Cycle(database, case, file_store)
        cycle.run()
        for path in (cycle.root / case.policy.name / "data").rglob("*.parquet"):
            group = pq.ParquetFile(path).metadata.row_group(0)
            rows = [tuple(row.values()) for row in pq.read_table(path, partitioning=None).to_pylist()]
            keys = [row[:2] for row in rows]
            if group.sorting_columns:
                assert keys == sorted(keys)
            if len(kind) == 5:
                assert group.sorting_columns


@pytest.mark.in_turn(2)
def test_a_reading_is_where_it_says(archived: Cycle) -> None:
    """The part's folder is the UTC day of each of its readings."""
    for path in (archived.root / archived.policy.name / "data").rglob("*.parquet"):
        days = {str(at.date()) for at in pq.read_table(path, partitioning=None)["time"].to_pylist()}
        assert days == {path.parent.name.removeprefix("dt=")}


def test_plain_row_tells_nan() -> None:
    assert plain_row(("a",), LATER, float("nan")) == ("a", LATER, "nan")


def test_restoring_by_range_and_series(prepared: States) -> None:
    cycle = prepared(samples("dates"), all_archived)
    since, until = LATER.replace(month=6, day=30, hour=3), LATER.replace(month=6, day=30, hour=9)
    cycle.restore("back", since=since, until=until, series={"deviceid": "1001"})
    found = {document["_id"]: document for document in cycle.database["back"].find()}
    inside = [
        at
        for document in found.values()
        for at in (sample["time"] for sample in document["samples"])
        if since <= at < until
    ]
    wanted = [at for series, at, _ in cycle.case.readings if since <= at < until and series[0] == 1001]
    assert sorted(inside) == sorted(wanted)
    assert {document["deviceid"] for document in found.values()} == {1001}


@pytest.mark.parametrize("to", ["iot", "back"])
def test_old_overflow_does_not_join_a_changed_bucket(prepared: States, to: str) -> None:
    """A bucket was restored and got other overflow since: its own document is the one that was archived."""
    cycle = prepared(samples_overflow(), all_archived)
    assert cycle.policy.overflow is not None
    cycle.restore("iot")
    overflow = cycle.database[cycle.policy.overflow.collection]
    reference = cycle.policy.overflow.ref_field
    (first,) = overflow.find().sort("_id", 1).limit(1)
    overflow.delete_many({reference: first[reference]})
    overflow.insert_one({**first, "_id": "other"})
    changed = cycle.live_overflow()
    with pytest.raises(BucketwiseError, match=r"1 of \d+ buckets were not restored"):
        cycle.restore(to)
    assert cycle.live_overflow() == changed
