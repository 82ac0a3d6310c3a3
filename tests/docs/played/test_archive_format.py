"""What the pages say of an archive's files, tried on files: queries, manifests, columns, the reader."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import bson
import duckdb
import pyarrow.parquet as pq
import pytest
from bson import Decimal128, Int64

from bucketwise.archivers.format.manifest import Manifest, Part
from tests.docs.pages import ROOT, Block, blocks, code, rows, section
from tests.jobs.place import MINUTES, POLICIES, START, Place
from tests.jobs.states import States, after

FORMAT, RECORDS, READING = (
    ROOT / "docs" / f"{it}.md" for it in ("archive-format", "archive-records", "reading-archives")
)
URL = "s3://acme-archive/market"
SAMPLES = """
[policies.probes]
collection = "probes"
model = "samples"
series_fields = ["meta.site", "meta.probe"]
value_fields = ["v.t", "v.h"]
nonnumeric_ok = ["v.t", "v.h"]
samples_field = "m"
sample_time_field = "at"
start_field = "from"
end_field = "to"
[policies.probes.overflow]
flag_field = "more"
collection = "probes_more"
ref_field = "of"
samples_field = "m"
[policies.probes.archive]
after = "30d"
to = "offline"
"""
Read = Callable[[Path, str, str], tuple[list[bytes], list[bytes]]]


def shown(*marks: str) -> list[Block]:
    found = [
        block
        for page in (FORMAT, RECORDS, READING)
        for block in blocks(page)
        if set(block.marks) & set(marks)
    ]
    assert found
    return found


def python(mark: str, store: Path) -> dict[str, Any]:
    """What a block of the page defines, run with the store's folder for its URL."""
    (block,) = shown(mark)
    defined: dict[str, Any] = {}
    exec(block.text.replace(URL, str(store)), defined)
    return defined


@pytest.fixture
def store(states: States) -> Path:
    """Three hours of ticks, archived."""
    return states.at("run").folder / "store"


@pytest.mark.proof
def test_duckdb_reads_it(store: Path) -> None:
    by_series, exact = shown("duckdb")
    connection = duckdb.connect()
    found = connection.execute(by_series.text.replace(URL, str(store))).fetchall()
    prices = [50 + second / 8 for second in range(60)]
    assert found == [("MDB", MINUTES * 60, 50.0, prices[-1], pytest.approx(math.fsum(prices) / 60))]
    (store / "ticks" / "data" / "dt=2018-06-30" / "stray.parquet").write_bytes(b"of a run at work")
    setting, counting = exact.text.replace(URL, str(store)).split(";\n", 1)
    connection.execute(setting)
    assert connection.execute(counting).fetchall() == [(MINUTES * 60,)]


@pytest.mark.proof
def test_polars_reads_it(store: Path) -> None:
    (row,) = python("polars", store)["result"].to_dicts()
    assert (row["symbol"], row["readings"]) == ("MDB", MINUTES * 60)
    assert row["p"] == pytest.approx(50 + 59 / 16)


@pytest.mark.proof
def test_pandas_reads_it(store: Path) -> None:
    found = python("pandas", store)["result"]
    assert found.loc["MDB", "count"] == MINUTES * 60
    assert found.loc["MDB", "mean"] == pytest.approx(50 + 59 / 16)


def odd_buckets() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Buckets of several layouts, over two days, with what columns can't carry, and their overflow."""
    odd = [1.5, math.nan, -0.0, Int64(2**60), 7, "none", None, Decimal128("1.10"), math.inf, True]
    main: list[dict[str, Any]] = []
    extra: list[dict[str, Any]] = []
    for number in range(24):
        start = START + timedelta(hours=2 * number)
        held = [
            {"at": start + timedelta(minutes=i), "v": {"t": odd[(number * i) % len(odd)], "h": i}}
            for i in range(number % 5)
        ]
        bounds: tuple[Any, ...] = (start, start + timedelta(hours=2))
        if number % 4 == 0:  # epoch seconds
            bounds = tuple(int(it.timestamp()) for it in bounds)
        named = {"_id": f"b{number}", "meta": {"site": "x", "probe": number % 3}, "note": "n" * number}
        main.append({**named, "from": bounds[0], "to": bounds[1], "m": held})
        if number % 6 == 0:
            main[-1]["more"] = True
            extra.append({"_id": number, "of": named["_id"], "m": [{"at": start, "v": {"t": 2.25}}]})
    return main, extra


def irregular_buckets() -> list[dict[str, Any]]:
    """Each lacks something else, and ints stand among doubles: they are written as a union."""
    chance = random.Random(5)
    found: list[dict[str, Any]] = []
    for number in range(40):
        at = START + timedelta(hours=number)
        values = [1.5, 7, -0.0, None, {"note": "none"}]
        held: list[dict[str, Any]] = []
        for second in range(chance.randint(3, 9)):
            sample: dict[str, Any] = {"at": at + timedelta(seconds=second), "v": {"t": chance.choice(values)}}
            if chance.random() < 0.5:
                sample["v"]["h"] = second
            held.append(sample)
        named = {"_id": f"u{number}", "meta": {"site": "x", "probe": 1}, "note": "u" * 40}
        found.append({**named, "from": at, "to": at + timedelta(hours=1), "m": held})
    return found


@pytest.mark.proof
def test_its_own_reader_gives_the_documents(place: Place) -> None:
    place.write_config(SAMPLES)
    main, extra = odd_buckets()
    main += irregular_buckets()
    place.database.probes.insert_many(main)
    place.database.probes_more.insert_many(extra)
    assert place("run").code == 0
    assert place.database.probes.count_documents({}) == 0
    read: Read = python("reader", place.folder)["read"]
    found_main, found_extra = [], []
    (buckets_file,) = (place.folder / "store/probes/meta/buckets").iterdir()
    assert sum(len(row["units"]) for row in pq.read_table(buckets_file).to_pylist() if row["flag"]) >= 40
    for path in (place.folder / "store/probes/meta/manifests").iterdir():
        buckets, overflow = read(place.folder / "store", "probes", path.stem.partition("_")[2])
        found_main += buckets
        found_extra += overflow
    assert sorted(found_main) == sorted(bson.encode(document) for document in main)
    assert sorted(found_extra) == sorted(bson.encode(document) for document in extra)


@pytest.mark.proof
def test_its_own_reader_follows_the_first_row(store: Path) -> None:
    (file,) = (store / "ticks/meta/buckets").iterdir()
    groups = pq.read_table(file).to_pylist()
    assert all(len(row["rows"]) == len(row["units"]) and row["readings"] > 1 for row in groups)
    buckets, _ = python("reader", ROOT)["read"](store, "ticks", file.stem)  # which compares the digest
    assert len(buckets) == MINUTES


@pytest.mark.proof
def test_a_signature_is_as_it_says(place: Place) -> None:
    key = "a key of thirty-two characters, or more"
    place.config.write_text(place.config.read_text().replace("[store]", f'[store]\nsigning_key = "{key}"'))
    assert place("run").code == 0
    check: Callable[[bytes, str], bool] = python("signature", place.folder)["check"]
    (path,) = (place.folder / "store/ticks/meta/manifests").iterdir()
    data = path.read_bytes()
    assert check(data, key)
    assert not check(data, key[::-1])
    assert not check(data.replace(b'"ticks"', b'"tacks"'), key)


@pytest.mark.proof
@after("run")
def test_a_receipt_has_the_fields_that_are_explained(place: Place) -> None:
    said = {code(row[0]) for row in rows(section(RECORDS, "Receipts"))}
    found = [set(it) for it in place.database.bucketwise_receipts.find({"kind": "delete"})]
    assert len(found) == 2  # offline and online
    erasing = ("erase", "-p", "ticks", "--series", "symbol=nobody", "--reason", "why", "--confirm", "ticks")
    assert place(*erasing).code == 0
    assert place("hold", "add", "case-17", "--reason", "why").code == 0
    others = {"kind": {"$in": ["erase", "hold"]}}
    found += [set(it) for it in place.database.bucketwise_receipts.find(others)]
    place.write_config(
        POLICIES.replace('hourly = "365d"', 'archive = "31d"') + '[policies.iot.retain]\narchive = "31d"\n'
    )
    for now in ("2018-09-02T00:00:00Z", "2018-09-10T00:00:00Z"):
        assert place("hold", "release", "case-17", "--reason", "over").code in (0, 2)
        assert place("run", now=now).code == 0
    ends = {"kind": {"$in": ["expire", "tombstones", "release"]}}
    ended = [set(it) for it in place.database.bucketwise_receipts.find(ends)]
    assert len(ended) == 6  # a release of each policy
    rare = {"lost", "versions", "recorded", "digests", "is_baseline", "removed", "added"}
    assert set.union(*found, *ended) == said - rare


def test_a_manifest_has_the_keys_that_are_explained(store: Path) -> None:
    said = [code(row[0]) for row in rows(section(FORMAT, "Manifests"))]
    assert said == list(Manifest.model_fields)
    (path,) = (store / "ticks/meta/manifests").iterdir()
    manifest = json.loads(path.read_bytes())
    assert list(manifest) == said
    told = re.search(r"\| `parts` \| ([^|]*) \|", section(FORMAT, "Manifests"))
    assert told
    assert set(re.findall(r"`(\w+)`", told[1])) - {"dt"} == set(Part.model_fields) - {"dt"}
    assert manifest["signature"] is None
    unsealed = path.read_bytes().replace(manifest["sha256"].encode(), b"0" * 64)
    assert hashlib.sha256(unsealed).hexdigest() == manifest["sha256"]


def test_the_columns_are_those_that_are_explained(store: Path) -> None:
    (buckets,) = (store / "ticks/meta/buckets").iterdir()
    said = [code(row[0]) for row in rows(section(FORMAT, "Buckets files")) if len(row) == 3 and "`" in row[0]]
    assert said == pq.read_schema(buckets).names
    (part,) = store.glob("ticks/data/dt=2018-06-30/*.parquet")
    schema = pq.read_schema(part)
    assert schema.names == ["symbol", "time", "p"]
    assert [schema.field(name).nullable for name in schema.names] == [False, False, True]
    assert [str(schema.field(name).type) for name in schema.names] == [
        "string",
        "timestamp[us, tz=UTC]",
        "double",
    ]
    group = pq.ParquetFile(part).metadata.row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    assert {column.compression for column in columns} == {"ZSTD"}
    assert all(column.has_offset_index for column in columns)
    assert "DELTA_BINARY_PACKED" in columns[1].encodings
    assert [column.column_index for column in group.sorting_columns] == [0, 1]


def test_a_commit_is_named_as_explained(store: Path) -> None:
    (path,) = (store / "ticks/meta/manifests").iterdir()
    number, first, last, fence, digest = path.stem.split("_")
    manifest = json.loads(path.read_bytes())
    assert len(number) == 10 and int(number) == manifest["sequence"]
    assert date.fromisoformat(first) == date.fromisoformat(last) == START.date()
    assert int(fence.removeprefix("f")) == manifest["fence"]
    (section,) = manifest["sections"]
    assert section["documents_sha256"].startswith(digest)
    assert len(digest) == 16


@pytest.mark.proof
def test_what_was_taken_out_is_plain_bson(place: Place) -> None:
    """A bucket that changes while its copy waits for the grace leaves the commit."""
    place.write_config(POLICIES.replace('to = "offline"', 'to = "offline"\ngrace = "1d"'))
    assert place("run", "-p", "ticks").code == 0
    before = place.database.get_collection("ticks").find_one({"d": START})
    assert before is not None
    place.database.ticks.update_one({"_id": before["_id"]}, {"$set": {"p.0": 1.25}})
    assert place("run", "-p", "ticks").code in (0, 3)
    (path,) = (place.folder / "store/ticks/meta/superseded").glob("*.bson")
    assert path.suffix == ".bson"
    assert {it["_id"] for it in bson.decode_all(path.read_bytes())} == {before["_id"]}
