"""The whole cycle on real readings through the command line, held against plain Python over the CSV."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import bson
import duckdb
import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from bucketwise.config.tables import Store
from tests.acceptance import readings as real
from tests.acceptance.readings import ORIGINS, Document, Origin, Reading
from tests.acceptance.shapes import SHAPES
from tests.conftest import s3_client
from tests.jobs.command import CommandLine

NOW = "2026-01-01T00:00:00Z"  # well past all of them
RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)

LAYOUTS = {
    "reading": 'model = "reading"\ntime_field = "at"',
    "slots": 'model = "slots"\ntime_field = "at"\nslot = "{slot}"',
    "sized": 'model = "samples"\nsamples_field = "samples"\nsample_time_field = "time"\n'
    'start_field = "first"\nend_field = "last"\ncount_field = "nsamples"',
    "hourly": 'model = "samples"\nsamples_field = "measurements"\nsample_time_field = "timestamp"\n'
    'start_field = "start_date"\nend_field = "end_date"\ncount_field = "transaction_count"\n'
    'sum_fields = {value = "sum_value"}',
    "timeseries": 'model = "timeseries"\ntime_field = "at"',
}


def documents(kind: str, origin: Origin) -> Iterator[Document]:
    """The readings as buckets of a kind."""
    rows = rows_of(kind, origin)
    if kind in SHAPES:
        return SHAPES[kind].make(rows)
    if kind == "slots":
        return real.as_slots(rows, origin.slot)
    makers = {"sized": real.as_sized_samples, "hourly": real.as_hourly_samples}
    return makers.get(kind, real.as_readings)(rows)


def rows_of(kind: str, origin: Origin) -> list[Reading]:
    """What the buckets of a kind hold."""
    rows = origin.of(kind)
    if kind == "hours":  # the first of each hour, as if on the hour
        first: dict[tuple[str, datetime], Reading] = {}
        for it in sorted(rows, key=lambda row: row[:2]):
            hour = it.time.replace(minute=0, second=0)
            first.setdefault((it.series, hour), it._replace(time=hour))
        return list(first.values())
    if kind in ("identified_readings", "nested", "padded", "seconds", "places", "inside", "identified"):
        by_time = {(it.series, it.time): it for it in reversed(rows)}
        return sorted(by_time.values(), key=lambda row: row[:2])
    return rows


@dataclass(frozen=True)
class Program:
    """Bucketwise at work with one policy file."""

    bucketwise: CommandLine
    config: Path

    def __call__(self, *arguments: str) -> Document:
        """Its JSON."""
        keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        given = [*arguments, "--config", str(self.config), "--now", NOW, "--json"]
        ran = self.bucketwise(*given, cwd=self.config.parent, **keys)
        assert ran.code == 0, ran
        return ran.json


def policy(kind: str, to: str, origin: Origin) -> str:
    names = list(origin.of(kind)[0].values)
    keys, series = LAYOUTS.get(kind, "").replace("{slot}", origin.slot), "rig"
    if kind in SHAPES:
        shape = SHAPES[kind]
        keys, series = shape.keys, shape.series
        names = [f"v.*.{name}" for name in names] if shape.values == "{starred}" else names
    fields = ", ".join(map(json.dumps, names))
    name = f"{kind}_{to}"
    target = f'collection = "{name}_archive"\n' if to == "online" else ""
    return f"""
[policies.{name}]
collection = "{name}"
{keys}
series_fields = ["{series}"]
value_fields = [{fields}]

[policies.{name}.rollup]
hourly = "{name}_hourly"
daily = "{name}_daily"
percentiles = [50, 99]

[policies.{name}.archive]
after = "30d"
to = "{to}"
{target}"""


def write_config(path: Path, uri: str, database: str, store: Store, policies: list[str]) -> Path:
    endpoint = f'endpoint_url = "{store.endpoint_url}"\n' if store.endpoint_url else ""
    region = f'region = "{store.region}"\n' if store.region else ""
    head = f'[mongodb]\nuri = "{uri}"\ndatabase = "{database}"\n\n[store]\nurl = "{store.url}"\n'
    path.write_text(head + endpoint + region + "".join(policies))
    return path


def load(database: Database[Document], name: str, documents: Iterable[Document]) -> None:
    if name.startswith("timeseries"):
        database.create_collection(name, timeseries={"timeField": "at", "metaField": "rig"})
    database[name].insert_many(list(documents))


def raw(database: Database[Document], name: str) -> list[bytes]:
    """The documents' bytes. Of a native time-series collection, whose server gives the fields in any order:
    in the order of their names."""
    found: Any = database.get_collection(name, codec_options=RAW).find()
    if name.startswith("timeseries"):
        return sorted(bson.encode(dict(sorted(document.items()))) for document in found)
    return sorted(bytes(document.raw) for document in found)


def deviation(values: list[float]) -> float:
    """The population's. From the first value on, so that of equal values it is 0."""
    apart = [value - values[0] for value in values]
    mean = math.fsum(apart) / len(apart)
    return math.sqrt(math.fsum((it - mean) ** 2 for it in apart) / len(apart))


def assert_summaries(
    database: Database[Document], name: str, readings: list[Reading], span: timedelta
) -> None:
    """Every summary equals one computed from the readings, and there is no other."""
    windows: dict[tuple[str, datetime], list[Reading]] = defaultdict(list)
    for reading in readings:
        start = reading.time.replace(minute=0, second=0, microsecond=0)
        if span == timedelta(days=1):
            start = start.replace(hour=0)
        windows[reading.series, start].append(reading)
    found = {(doc["rig"], doc["start"]): doc for doc in database[name].find()}
    assert set(found) == set(windows)
    for (series, start), held in windows.items():
        summary = found[series, start]
        assert summary["_id"] == {"series": {"rig": series}, "start": start}
        assert summary["end"] - start == span
        assert summary["count"] == len(held)
        times = [reading.time for reading in held]
        begin, last = min(times), max(times)
        for field in held[0].values:
            values = [reading.values[field] for reading in held]
            it = summary[field]
            assert (it["count"], it["min"], it["max"]) == (len(values), min(values), max(values))
            assert it["sum"] == pytest.approx(math.fsum(values), rel=1e-12, abs=0)
            assert it["avg"] == pytest.approx(math.fsum(values) / len(values), rel=1e-12)
            assert it["stddev"] == pytest.approx(deviation(values), rel=1e-9, abs=1e-12)
            assert (it["first_at"], it["last_at"]) == (begin, last)
            assert it["first"] in {r.values[field] for r in held if r.time == begin}
            assert it["last"] in {r.values[field] for r in held if r.time == last}
            ordered = sorted(values)
            for key, share in (("p50", 0.5), ("p99", 0.99)):
                exact = ordered[math.ceil(share * len(ordered)) - 1]
                assert it[key] == pytest.approx(exact, rel=0.01)


def assert_table(folder: Path, readings: list[Reading]) -> None:
    """DuckDB reads all parts as one table that gives the CSV's figures per series and day."""
    expected: dict[tuple[str, str], list[Reading]] = defaultdict(list)
    for reading in readings:
        expected[reading.series, reading.time.date().isoformat()].append(reading)
    fields = list(readings[0].values)
    told = "".join(f', count("{it}"), min("{it}"), max("{it}"), sum("{it}")' for it in fields)
    with duckdb.connect() as connection:
        rows = connection.execute(
            f"select rig, dt::varchar, count(*), epoch_ms(min(time)), epoch_ms(max(time)){told} "
            f"from read_parquet('{folder}/**/*.parquet', hive_partitioning = true) group by all"
        ).fetchall()
    assert {(row[0], row[1]) for row in rows} == set(expected)
    for series, day, count, first, last, *figures in rows:
        held = expected[series, day]
        times = [int(reading.time.timestamp() * 1000) for reading in held]
        assert (count, first, last) == (len(held), min(times), max(times))
        for place, field in enumerate(fields):
            values = [reading.values[field] for reading in held]
            numbers, low, high, total = figures[4 * place : 4 * place + 4]
            assert (numbers, low, high) == (len(values), min(values), max(values))
            assert total == pytest.approx(math.fsum(values), rel=1e-9)


def nothing_done(report: Document) -> None:
    for it in report["policies"]:
        rolled, archived = it["rollup"], it["archive"]
        assert (rolled["hourly"]["written"], rolled["daily"]["written"]) == (0, 0), it
        counts = {name: archived[name] for name in ("buckets", "parts", "bytes", "deleted", "quarantined")}
        assert not any(counts.values()), it


def run_cycle(
    bucketwise: CommandLine,
    tmp_path: Path,
    database: Database[Document],
    uri: str,
    store: Store,
    kinds: list[tuple[str, str]],
    origin: Origin,
) -> dict[str, list[bytes]]:
    """Load, `run`, and check all that doesn't depend on the archive; gives what was loaded."""
    loaded, policies = {}, []
    for kind, to in kinds:
        policies.append(policy(kind, to, origin))
        load(database, f"{kind}_{to}", documents(kind, origin))
        loaded[f"{kind}_{to}"] = raw(database, f"{kind}_{to}")
    config = write_config(tmp_path / "bucketwise.toml", uri, database.name, store, policies)
    command = Program(bucketwise, config)
    report = command("run")
    by_name = {it["policy"]: it for it in report["policies"]}
    for kind, to in kinds:
        name = f"{kind}_{to}"
        rows = rows_of(kind, origin)
        assert by_name[name]["archive"]["readings"] == len(rows)
        assert by_name[name]["archive"]["buckets"] == len(loaded[name])
        left = len(loaded[name]) if kind == "timeseries" else 0
        assert database[name].count_documents({}) == left
        assert by_name[name]["archive"]["left"] == left
        assert_summaries(database, f"{name}_hourly", rows, timedelta(hours=1))
        assert_summaries(database, f"{name}_daily", rows, timedelta(days=1))
        back = command("restore", "-p", name, "--to", f"{name}_back")["policies"][0]
        assert (back["buckets"], back["readings"]) == (len(loaded[name]), len(rows))
        assert raw(database, f"{name}_back") == loaded[name]
    nothing_done(command("run"))
    assert command("audit")["policies"]
    return loaded


def fetch(store: Store, bucket_client: Any, into: Path) -> dict[str, int]:
    """Copy a bucket to a folder; every key with its size."""
    bucket, _, prefix = store.url.removeprefix("s3://").partition("/")
    sizes = {}
    for page in bucket_client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for found in page.get("Contents", ()):
            key = found["Key"].removeprefix(prefix).lstrip("/")
            target = into / key
            target.parent.mkdir(parents=True, exist_ok=True)
            bucket_client.download_file(bucket, found["Key"], str(target))
            sizes[key] = found["Size"]
    return sizes


def _few_some_and_all() -> list[Any]:
    """The first readings of few series, of each series, and all of them in the runs of hours."""
    few = pytest.param(ORIGINS[0].first(300, series=3), id=f"few of {ORIGINS[0].name}")
    some = [pytest.param(it.first(300), id=it.name, marks=pytest.mark.proof) for it in ORIGINS]
    return [few, *some, *(pytest.param(it, id=f"all of {it.name}", marks=pytest.mark.soak) for it in ORIGINS)]


@pytest.fixture(params=_few_some_and_all())
def origin(request: pytest.FixtureRequest) -> Origin:
    found: Origin = request.param
    return found


def _rows_and_ways() -> list[Any]:
    """Every third shape, each way."""
    return [
        pytest.param(
            list(SHAPES)[part::3],
            origin,
            to,
            id=f"{origin.name}-{to}-{part}",
        )
        for origin in ORIGINS
        for to in ("offline", "online")
        for part in range(3)
    ]


@pytest.mark.proof
@pytest.mark.parametrize(("shapes", "origin", "to"), _rows_and_ways())
def test_further_shapes(
    shapes: list[str],
    origin: Origin,
    to: str,
    bucketwise: CommandLine,
    tmp_path: Path,
    database: Database[Document],
    mongodb_uri: str,
) -> None:
    few = origin.first(24, series=4)
    (tmp_path / "store").mkdir()
    store = Store(url=f"file://{tmp_path}/store")
    run_cycle(bucketwise, tmp_path, database, mongodb_uri, store, [(kind, to) for kind in shapes], few)
    for kind in shapes if to == "offline" else ():
        assert_table(tmp_path / "store" / f"{kind}_offline" / "data", rows_of(kind, few))


@pytest.mark.proof
def test_offline_archive_in_a_folder(
    bucketwise: CommandLine,
    tmp_path: Path,
    database: Database[Document],
    mongodb_uri: str,
    origin: Origin,
) -> None:
    kinds = [(kind, "offline") for kind in origin.kinds(LAYOUTS)]
    (tmp_path / "store").mkdir()
    store = Store(url=f"file://{tmp_path}/store")
    run_cycle(bucketwise, tmp_path, database, mongodb_uri, store, kinds, origin)
    for kind, _ in kinds:
        assert_table(tmp_path / "store" / f"{kind}_offline" / "data", origin.of(kind))


@pytest.mark.proof
def test_online_archive(
    bucketwise: CommandLine,
    tmp_path: Path,
    database: Database[Document],
    mongodb_uri: str,
    origin: Origin,
) -> None:
    kinds = [(kind, "online") for kind in origin.kinds(LAYOUTS) if kind != "timeseries"]
    (tmp_path / "store").mkdir()
    store = Store(url=f"file://{tmp_path}/store")
    loaded = run_cycle(bucketwise, tmp_path, database, mongodb_uri, store, kinds, origin)
    for name, documents in loaded.items():
        assert raw(database, f"{name}_archive") == documents
        options = database.command("collStats", f"{name}_archive")["wiredTiger"]["creationString"]
        assert "block_compressor=zstd" in options


@pytest.mark.proof
@pytest.mark.parametrize("server", ["moto", "rclone"])
def test_offline_archive_in_s3(
    server: str,
    bucketwise: CommandLine,
    tmp_path: Path,
    database: Database[Document],
    mongodb_uri: str,
    origin: Origin,
    request: pytest.FixtureRequest,
) -> None:
    store: Store = request.getfixturevalue(f"{server}_store")
    kinds = [("slots", "offline")]  # the others go the same way, and into a folder
    run_cycle(bucketwise, tmp_path, database, mongodb_uri, store, kinds, origin)
    assert store.endpoint_url is not None
    fetch(store, s3_client(store.endpoint_url), tmp_path / "fetched")
    for kind, _ in kinds:
        assert_table(tmp_path / "fetched" / f"{kind}_offline" / "data", origin.of(kind))
