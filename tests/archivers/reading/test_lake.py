"""Iceberg tables of archives: what readers of Iceberg see is what is archived, each reading once."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import bson
import polars as pl
import pytest
from pydantic import SecretStr
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import DayTransform
from pymongo.database import Database

from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.lake import catalog
from bucketwise.archivers.lake import catalog as rest
from bucketwise.archivers.lake.catalog import LakeTable
from bucketwise.archivers.lake.records import LakeDifference, LakeError, LakeReport
from bucketwise.config.policies import Policy
from bucketwise.config.tables import Lake, Store
from tests.archivers.builders import (
    CODEC,
    DAY0,
    LATER,
    Case,
    Reading,
    deletable,
    encode,
    insert,
    reading,
    samples,
    slots,
    timeseries,
)
from tests.archivers.faults import Crash, DyingStore, Steps, die_in_transactions
from tests.archivers.harness import Cycle, expected_rows, plain_row
from tests.conftest import ACCESS_KEY, REGION, SECRET_KEY
from tests.jobs.counting import CountingStore
from tests.tiers import tier

Document = dict[str, Any]
Rows = Counter[tuple[Any, ...]]
HOUR = timedelta(hours=1)
AFTER = timedelta(days=30)
OWN = Lake(namespace="market")
#: Whose parts `make test` registers: in them a value is a column, and so it is with all others.
FEW_MODELS = ("reading", "timeseries")


def in_catalog(properties: dict[str, str], namespace: str) -> Lake:
    secret = {key: SecretStr(value) for key, value in properties.items()}
    return Lake(catalog="ours", namespace=namespace, properties=secret)


def synced(cycle: Cycle, lake: Lake = OWN, *, whole: bool = False, **given: Any) -> LakeReport:
    """As a run does it, after the archive's own work."""
    return archive_of(cycle.context(**given)).sync_lake(lake, whole=whole)


def told(cycle: Cycle, lake: Lake = OWN) -> list[LakeDifference]:
    return archive_of(cycle.context()).lake_differences(lake)


def table_of(report: LakeReport, **properties: str) -> Table:
    """As anybody finds it who is told where its metadata lies."""
    assert report.metadata is not None
    return StaticTable.from_metadata(report.metadata, properties)


def rows_of(table: Table, policy: Policy) -> Rows:
    columns = [name.replace(".", "_") for name in (*policy.series_fields, "time", policy.value_fields[0])]
    found = table.scan(selected_fields=tuple(columns)).to_arrow().to_pylist()
    return Counter(
        plain_row(tuple(it[c] for c in columns[:-2]), *(it[c] for c in columns[-2:])) for it in found
    )


def rows_for_polars(report: LakeReport, policy: Policy) -> Rows:
    columns = [name.replace(".", "_") for name in (*policy.series_fields, "time", policy.value_fields[0])]
    assert report.metadata is not None
    found = pl.scan_iceberg(report.metadata, reader_override="pyiceberg").select(columns).collect().rows()
    return Counter(plain_row(row[:-2], *row[-2:]) for row in found)


def without(case: Case, documents: list[bytes]) -> Case:
    """The same case where only these documents are left; its readings by a plain loop over `slots`."""
    readings: list[Reading] = [
        ((it["meta"]["symbol"],), it["d"] + int(slot) * timedelta(minutes=1), float(value))
        for it in (bson.decode(raw, CODEC) for raw in documents)
        for slot, value in it["p"].items()
        if value is not None
    ]
    return Case(case.name, case.policy, documents, readings)


def by_hours(cycle: Cycle, hours: int = 20, step: int = 4) -> Cycle:
    """Archived by a run every few hours: several commits a day."""
    for hour in range(1, hours, step):
        cycle.run(DAY0 + AFTER + hour * HOUR)
    cycle.run(LATER)
    return cycle


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=tier(is_first=case.policy.model in FEW_MODELS, is_proof=True))
        for case in [*deletable(), timeseries()]
    ],
)
def test_readers_of_iceberg_see_what_is_archived(
    database: Database[Document], file_store: Store, case: Case
) -> None:
    if case.policy.model == "timeseries":
        case = case.with_archive(delete=False)
    cycle = Cycle(database, case, file_store).load()
    assert synced(cycle) == LakeReport()  # there is nothing yet
    cycle.run()
    report = synced(cycle)
    assert report.added > 0 == report.removed
    assert rows_of(table_of(report), case.policy) == expected_rows(case)
    assert rows_for_polars(report, case.policy) == expected_rows(case)
    assert synced(cycle) == synced(cycle, whole=True) == report._replace(added=0)
    assert told(cycle) == []


@pytest.mark.proof
def test_every_change_of_the_archive_is_one_snapshot(database: Database[Document], file_store: Store) -> None:
    case = slots("minute").with_archive(grace=timedelta(days=300))
    cycle = by_hours(Cycle(database, case, file_store).load())
    report = synced(cycle)
    table = table_of(report)
    assert rows_of(table, case.policy) == expected_rows(case)
    before = {it.file_path for (it) in files_in(table)}

    assert cycle.compact().commits > 1
    report = synced(cycle)
    assert report.removed == len(before) > report.added > 0
    table = table_of(report)
    assert rows_of(table, case.policy) == expected_rows(case)
    assert len(table.metadata.snapshots) == 2

    changed = bson.decode(case.documents[0], CODEC)
    changed["p"]["0"] = 1234.0
    documents = [encode(changed), *case.documents[1:]]
    database["slots"].replace_one({"_id": changed["_id"]}, changed)
    cycle.run(LATER + timedelta(days=1))
    report = synced(cycle)
    assert rows_of(table_of(report), case.policy) == expected_rows(without(case, documents))

    cycle.erase({"meta.symbol": "ORCL"})
    report = synced(cycle)
    left = [raw for raw in documents if bson.decode(raw, CODEC)["meta"]["symbol"] != "ORCL"]
    assert rows_of(table_of(report), case.policy) == expected_rows(without(case, left))
    assert len(table_of(report).metadata.snapshots) == 4

    cycle.erase({"meta.symbol": "MDB"})
    report = synced(cycle)
    table = table_of(report)
    assert (report.added, rows_of(table, case.policy)) == (0, Counter())
    assert table.current_snapshot() is not None
    assert told(cycle) == []


def files_in(table: Table) -> Iterator[Any]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        yield from (it.data_file for it in manifest.fetch_manifest_entry(table.io))


def test_what_the_table_says_of_itself(database: Database[Document], file_store: Store) -> None:
    case = reading()
    cycle = Cycle(database, case, file_store).load()
    cycle.run()
    table = table_of(synced(cycle))
    schema = table.schema()
    assert [(it.name, str(it.field_type), it.required) for it in schema.fields] == [
        ("symbol", "string", False),
        ("time", "timestamptz", False),
        ("p", "double", False),
        ("q", "double", False),
    ]
    (partition,) = table.spec().fields
    assert isinstance(partition.transform, DayTransform)
    assert partition.source_id == schema.find_field("time").field_id
    assert [it.source_id for it in table.sort_order().fields] == [1, 2]
    assert table.properties["gc.enabled"] == "false"
    assert table.location() == f"{file_store.url}/ticks/iceberg"
    held = {
        path.relative_to(cycle.root).as_posix(): path.stat().st_size
        for path in (cycle.root / "ticks/data").rglob("*.parquet")
    }
    files = list(files_in(table))
    assert {it.file_path.removeprefix(f"{file_store.url}/"): it.file_size_in_bytes for it in files} == held
    assert sum(it.record_count for it in files) == sum(expected_rows(case).values())
    # Nothing but times is bounded: an erased series would outlive its erasure there.
    assert {key for it in files for key in (*it.lower_bounds, *it.upper_bounds)} == {2}
    for path in (cycle.root / "ticks/iceberg").rglob("*"):
        assert path.is_dir() or not any(name in path.read_bytes() for name in (b"MDB", b"ORCL"))


@pytest.mark.proof
def test_days_are_pruned(database: Database[Document], file_store: Store) -> None:
    cycle = Cycle(database, reading(), file_store).load()
    cycle.run()
    table = table_of(synced(cycle))
    since = datetime(2018, 7, 2, tzinfo=UTC)
    scan = table.scan(f"time >= '{since.isoformat()}'")
    (task,) = scan.plan_files()
    assert "/dt=2018-07-02/" in task.file.file_path
    later = [it for it in reading().readings if it[1] >= since]
    assert scan.to_arrow().num_rows == len(later) > 0
    assert len(list(table.scan().plan_files())) == 3


def test_a_catalog_of_pyiceberg(database: Database[Document], file_store: Store, tmp_path: Path) -> None:
    case = slots("minute")
    cycle = Cycle(database, case, file_store).load()
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    lake = in_catalog(properties, "a.b")
    assert told(cycle, lake) == []
    cycle.run()
    report = synced(cycle, lake)
    table = SqlCatalog("ours", uri=properties["uri"]).load_table(("a", "b", "slots"))
    assert rows_of(table, case.policy) == expected_rows(case)
    assert told(cycle, lake) == []
    # Another archive takes the same name: nothing of it is touched.
    (tmp_path / "other").mkdir()
    other = Cycle(database, case, Store(url=(tmp_path / "other").as_uri()))
    with pytest.raises(LakeError, match=r"another archive's: give .lake. another namespace or catalog"):
        synced(other, lake)
    # The catalog in MongoDB goes on with the table, and in one that has none it is made.
    assert synced(cycle) == report._replace(added=0)
    properties["uri"] = f"sqlite:///{tmp_path}/later.db"
    later = synced(cycle, in_catalog(properties, "a.b"))
    assert later.added == report.added
    assert rows_of(table_of(later), case.policy) == expected_rows(case)


def test_a_catalog_that_never_answers_is_not_waited_for(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "SECONDS", 0.2)
    cycle = Cycle(database, slots("minute"), file_store).load()
    cycle.run()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for more in ({"type": "rest"}, {}, {"type": "rest", "credential": "bob:secret"}):
            lake = in_catalog({"uri": url, **more}, "a")
            with pytest.raises(LakeError, match="timed out"):
                synced(cycle, lake)
        ((_, message, is_behind),) = told(cycle, lake)
        assert ("timed out" in message, is_behind) == (True, True)


@pytest.mark.proof
def test_s3_needs_no_setting_of_its_own(database: Database[Document], moto_store: Store) -> None:
    case = samples("epoch")
    cycle = Cycle(database, case, moto_store).load()
    cycle.run()
    report = synced(cycle)
    assert moto_store.endpoint_url is not None
    table = table_of(
        report,
        **{"s3.endpoint": moto_store.endpoint_url, "s3.region": REGION},
        **{"s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY},
    )
    assert rows_of(table, case.policy) == expected_rows(case)


def with_fields(case: Case, **changes: Any) -> Case:
    return replace(case, policy=case.policy.model_copy(update=changes))


@pytest.mark.proof
def test_columns_come_and_none_changes_its_type(database: Database[Document], file_store: Store) -> None:
    cycle = Cycle(database, with_fields(reading(), value_fields=("p",)), file_store).load()
    cycle.run(DAY0 + AFTER + 24 * HOUR)
    synced(cycle)
    cycle.case = reading()
    cycle.run(DAY0 + AFTER + 40 * HOUR)
    report = synced(cycle)
    table = table_of(report)
    assert table.schema().column_names == ["symbol", "time", "p", "q"]
    archived = [it for it in reading().readings if it[1] < DAY0 + 40 * HOUR]
    assert rows_of(table, cycle.policy) == Counter(plain_row(*it) for it in archived)
    q = table.scan(selected_fields=("q",)).to_arrow()["q"]
    assert 0 < q.null_count < len(q)

    cycle.case = with_fields(reading(), series_fields=("symbol", "q"), value_fields=("p",))
    cycle.run()
    before = cycle.listing()
    with pytest.raises(LakeError, match=r"column q is double in the table, and (long|string) in the parts"):
        synced(cycle)
    assert cycle.listing() == before
    (found,) = told(cycle)
    assert found.is_behind
    assert rows_of(table_of(report), cycle.policy)


def dying(cycle: Cycle, monkeypatch: pytest.MonkeyPatch, die_at: int) -> bool:
    """Whether the sync died at that step."""
    steps = Steps(die_at)
    with monkeypatch.context() as patch:
        die_in_transactions(patch, steps)
        try:
            store = DyingStore(cycle.store, steps)
            synced(cycle, store=store, check=lambda: steps.step("check"))
        except (Crash, LakeError):
            pass
    return steps.died


@pytest.mark.proof
def test_a_sync_that_dies_anywhere_is_healed_by_the_next(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = slots("minute")
    cycle = Cycle(database, case, file_store).load()
    for hour in range(1, 20):  # each sync finds another commit, or some that were merged
        cycle.run(DAY0 + AFTER + hour * HOUR)
        if hour % 3 == 0:
            assert cycle.compact().commits
        is_dead = dying(cycle, monkeypatch, 5 * hour - 4)
        report = synced(cycle)
        live = cycle.live()
        archived = without(case, [raw for raw in case.documents if raw not in live])
        assert rows_of(table_of(report), case.policy) == expected_rows(archived)
        assert told(cycle) == []
        assert synced(cycle)[:2] == (0, 0)
        if not is_dead:
            break
    assert not is_dead and hour > 3


def test_readers_of_the_folder_find_the_last_metadata_after_a_crash_as_well(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died once the table was noted, and before that was told in the folder."""
    cycle = Cycle(database, slots("minute"), file_store).load()
    cycle.run()
    with monkeypatch.context() as patch:
        patch.setattr(LakeTable, "point", lambda *_: None)
        synced(cycle)
    report = synced(cycle)
    assert (
        StaticTable.from_metadata((cycle.root / "slots/iceberg").as_uri()).metadata_location
        == report.metadata
    )


@pytest.mark.proof
def test_what_others_did_to_a_table_is_told_and_mended(
    database: Database[Document], file_store: Store, tmp_path: Path
) -> None:
    case = slots("minute")
    cycle = by_hours(Cycle(database, case, file_store).load())
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    lake = in_catalog(properties, "market")
    synced(cycle, lake)
    table = SqlCatalog("ours", uri=properties["uri"]).load_table(("market", "slots"))
    first, second, *_ = files_in(table)
    with table.transaction() as work, work.update_snapshot().overwrite() as update:
        update.delete_data_file(first)
    table.add_files([second.file_path], check_duplicate_files=False)
    found = told(cycle, lake)
    assert [it.is_behind for it in found] == [False, False]
    assert "parts that it lacks: 1, such as" in found[0].message and first.file_path in found[0].message
    assert "files that it lists twice: 1, such as" in found[1].message
    report = synced(cycle, lake)
    assert (report.added, report.removed) == (2, 1)
    assert rows_of(table_of(report), case.policy) == expected_rows(case)
    assert told(cycle, lake) == []

    table = table.refresh()
    table.delete()
    table.append(table.scan().to_arrow())
    assert "parts that it lacks" in told(cycle, lake)[0].message
    assert rows_of(table_of(synced(cycle, lake)), case.policy) == expected_rows(case)

    for path in (cycle.root / "slots/iceberg/metadata").iterdir():
        path.unlink()
    assert "it can't be read" in told(cycle, lake)[0].message
    with pytest.raises(LakeError, match=r"FileNotFoundError.*The archive is whole without it"):
        synced(cycle, lake)
    report = synced(cycle)  # the catalog of its own makes the table anew
    assert rows_of(table_of(report), case.policy) == expected_rows(case)
    assert told(cycle) == []


def commit_and_sync(cycle: Cycle, number: int) -> Counter[str]:
    """What the store is asked for the sync after a run with one new commit."""
    document = {"_id": 1000 + number, "symbol": "MDB", "d": DAY0 + number * HOUR, "p": 1.0}
    insert(cycle.database, "ticks", [encode(document)])
    cycle.run()
    store = CountingStore(cycle.store)
    assert synced(cycle, store=store).added == 1
    return store.asked


@pytest.mark.proof
@pytest.mark.parametrize(("syncs", "kept"), [(16, 4), pytest.param(60, 20, marks=pytest.mark.proof)])
def test_a_sync_costs_what_has_changed_and_leaves_no_garbage(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch, syncs: int, kept: int
) -> None:
    monkeypatch.setattr(catalog, "SNAPSHOTS", kept)
    case = Case("ticks", reading().policy, [], [])
    cycle = Cycle(database, case, file_store)
    asked = [commit_and_sync(cycle, number) for number in range(syncs)]
    sums = [it["get_bytes"] + it["put_bytes"] + it["head"] + it["list"] for it in asked]
    merged = max(sums)  # once in a while small manifests become one
    assert merged < 50
    assert median(sums[-5:]) <= median(sums[kept + 2 : kept + 7]) + 1, sums
    report = synced(cycle)
    table = table_of(report)
    snapshots = table.metadata.snapshots
    assert len(snapshots) == kept
    named = {it.manifest_list for it in snapshots}
    named |= {manifest.manifest_path for it in snapshots for manifest in it.manifests(table.io)}
    named |= {report.metadata or "", *(it.metadata_file for it in table.metadata.metadata_log)}
    folder = cycle.root / "ticks/iceberg/metadata"
    there = {path.as_uri() for path in folder.iterdir()} - {(folder / "version-hint.text").as_uri()}
    assert there == named
    assert rows_of(StaticTable.from_metadata(folder.parent.as_uri()), case.policy).total() == syncs
