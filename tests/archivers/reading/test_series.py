"""`--series` is pushed down: what can't hold a series is not opened, and what holds one is always found."""

from __future__ import annotations

import json
import math
import struct
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import bson
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.archivers.format import parquet
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.parquet import read_rows
from bucketwise.archivers.format.series import HeldSeries, RowFilter, are_exact
from bucketwise.archivers.reading.readings import Readings
from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.buckets.packing import Rows
from bucketwise.config.errors import UsageError
from bucketwise.config.models import make_policy
from bucketwise.config.tables import Store
from tests.archivers.builders import CODEC, DAY0, HOUR, MINUTE, Case, encode, insert, offline, raw_documents
from tests.archivers.harness import Cycle, in_turn
from tests.archivers.reading.test_readings import CASES, STATES, readings, rows_of, ticks, wanted
from tests.archivers.states import State, States
from tests.examples import examples

Document = dict[str, Any]
EVER = RowFilter(FIRST_MS, LAST_MS + 1)
#: When something of the hour has expired, and nothing of the next.
EXPIRED = timedelta(days=30)


class Opened:
    """A store that tells which files of commits were read, and how often."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.keys: list[str] = []
        self.size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        data = self.inner.get_bytes(key, size)
        if key.endswith(".parquet"):
            self.keys.append(key)
            self.size += len(data)
        return data

    def get_sound(self, key: str, _is_sound: Callable[[bytes], bool], size: int | None = None) -> bytes:
        return self.get_bytes(key, size)

    @property
    def parts(self) -> list[str]:
        return [key for key in self.keys if "/data/" in key]


def opened(cycle: Cycle) -> Opened:
    """From now on, of this cycle's store."""
    store = Opened(cycle.store)
    cycle.store = store
    return store


TEXTS = st.sampled_from(["", "a", "B", "1", "2.5", "true", "ä", "x,y"]) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5
)
#: Series values of many types; some are one to MongoDB, and some have one text.
VALUES: st.SearchStrategy[Any] = st.one_of(
    TEXTS,
    st.integers(-3, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3).map(bson.Int64),
    st.sampled_from([1.0, 2.5, -0.0, 1e300, 2.0**63, 5e-324]),
    st.booleans(),
    st.sampled_from([bson.ObjectId(b"\0" * 12), uuid.UUID(int=7), DAY0, b"a"]),
    st.fixed_dictionaries({}, optional={"a": st.integers(0, 2), "b": TEXTS}),
)


def whole(value: Any) -> Any:
    """As series have it: whole numbers are ints."""
    is_whole = isinstance(value, float) and value.is_integer() and -(2**63) <= value < 2**63
    return int(value) if is_whole else value


def text(value: Any) -> str:
    """What `--series` calls a value."""
    if isinstance(value, str):
        return value
    value = whole(value)
    if isinstance(value, dict | bool | int | float):
        return json.dumps(value, sort_keys=True)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def decoded(value: Any) -> Any:
    """As a document gives it back."""
    return bson.decode(encode({"v": value}), CODEC)["v"]


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(VALUES, VALUES), max_size=40), st.lists(TEXTS, max_size=5))
def test_a_filter_hides_nothing_that_is_there(series: list[tuple[Any, Any]], others: list[str]) -> None:
    told = [(whole(one), whole(other)) for one, other in series]
    held = HeldSeries.of(told, ["a", "b.c"], is_exact=True)
    again = HeldSeries.model_validate_json(held.model_dump_json())
    for one, other in series:
        for found in (held, again):
            for asked in ({"a": text(one)}, {"b.c": text(other)}, {"a": text(one), "b.c": text(other)}, {}):
                assert found.may_hold(asked)
    if not series:
        assert not any(held.may_hold({"a": it}) for it in others)


@pytest.mark.parametrize(("count", "most"), [(1, 0.02), (100, 0.02), (1_200, 0.02), (5_000, 0.5)])
def test_a_filter_is_small_and_tells_much(count: int, most: float) -> None:
    held = HeldSeries.of([(i,) for i in range(count)], ["a"], is_exact=True)
    assert len(held.bits) <= 2048
    assert all(held.may_hold({"a": str(i)}) for i in range(count))
    assert sum(held.may_hold({"a": str(i)}) for i in range(10**6, 10**6 + 5_000)) <= most * 5_000
    assert not held.may_hold({"a": "none", "b": "0"}) or count == 5_000


def test_a_filter_of_too_many_says_nothing() -> None:
    held = HeldSeries.of([(i,) for i in range(6_001)], ["a"], is_exact=True)
    assert (held.bits, held.may_hold({"a": "-"})) == ("", True)


@pytest.mark.parametrize(
    ("values", "kind", "is_exact"),
    [
        (["a", ""], "string", True),
        (["7", 7], "string", False),
        ([DAY0], "string", False),
        ([1, -(2**63)], "int64", True),
        ([True], "bool", True),
        ([1, 2.5, 1e300, 2**53], "double", True),
        ([0.5, 2**53 + 1], "double", False),
    ],
)
def test_columns_are_exact_where_they_give_a_series_as_it_was(
    values: list[Any], kind: str, is_exact: bool
) -> None:
    assert are_exact([(it, "x") for it in values], {"a": kind, "b": "string"}) is is_exact


COLUMNS = {
    "int64": st.integers(-5, 5) | st.sampled_from([-(2**63), 2**63 - 1]),
    "bool": st.booleans(),
    "double": st.integers(-3, 3) | st.sampled_from([0.5, 1e300, -(2.0**70)]),
    "string": TEXTS,
}


@settings(max_examples=examples(60))
@given(st.data(), st.lists(st.sampled_from(sorted(COLUMNS)), max_size=2))
def test_rows_of_a_series_are_all_found(data: st.DataObject, kinds: list[str]) -> None:
    """In groups of a few rows, so that statistics have a say."""
    types = {f"f{i}.x": kind for i, kind in enumerate(kinds)}
    series = data.draw(
        st.lists(st.tuples(*map(COLUMNS.__getitem__, kinds)), min_size=1, max_size=12, unique_by=repr)
    )
    of_row = sorted(data.draw(st.lists(st.integers(0, len(series) - 1), min_size=1, max_size=40)))
    numbers = data.draw(st.lists(st.none() | st.floats(), min_size=len(of_row), max_size=len(of_row)))
    given = Rows(
        series=series,
        row_series=np.array(of_row, dtype=np.int32),
        time=np.arange(len(of_row), dtype=np.int64) * 7,
        values={"p": np.array([math.nan if it is None else it for it in numbers])},
        present={"p": np.array([it is not None for it in numbers])},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "ROW_GROUP", 3)
        file = parquet.write_part(given, slice(None), types)
    asked = []
    for _ in range(data.draw(st.integers(0, 2))):
        names = data.draw(st.sets(st.sampled_from(sorted(types)))) if types else set()
        about = data.draw(st.sampled_from(series))
        asked.append(
            {name: data.draw(st.just(text(about[list(types).index(name)])) | TEXTS) for name in names}
        )
    start, end = sorted(data.draw(st.tuples(st.integers(-1, 300), st.integers(-1, 300))))
    expected = [
        (series[one], 7 * i, _bits(number))
        for i, (one, number) in enumerate(zip(of_row, numbers, strict=True))
        if start <= 7 * i < end
        and (
            not asked
            or any(
                all(text(series[one][list(types).index(name)]) == it for name, it in some.items())
                for some in asked
            )
        )
    ]
    found = [
        (rows.series[one], time, _bits(value if there else None))
        for rows in read_rows(file, types, ["p"], RowFilter(start, end, asked))
        for one, time, value, there in zip(
            rows.row_series.tolist(),
            rows.time.tolist(),
            rows.values["p"].tolist(),
            rows.present["p"].tolist(),
            strict=True,
        )
    ]
    assert found == expected
    assert [tuple(map(type, one)) for one, *_ in found] == [tuple(map(type, one)) for one, *_ in expected]


def _bits(value: float | None) -> bytes | None:
    return None if value is None else b"nan" if math.isnan(value) else struct.pack("<d", value)


def test_groups_of_other_series_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP", 100)
    rows = Rows(
        series=[(i, f"s{i:03}") for i in range(100)],
        row_series=np.repeat(np.arange(100, dtype=np.int32), 10),
        time=np.arange(1000, dtype=np.int64),
        values={"p": np.arange(1000.0)},
        present={"p": np.ones(1000, dtype=np.bool_)},
    )
    types = {"a": "int64", "b": "string"}
    file = parquet.write_part(rows, slice(None), types)
    read: list[int] = []
    method = pq.ParquetFile.read_row_group

    def reading(self: pq.ParquetFile, at: int, **how: Any) -> Any:
        read.append(at)
        return method(self, at, **how)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", reading)
    for asked, groups in [
        ([{"a": "57"}], [5]),
        ([{"b": "s099"}], [9]),
        ([{"a": "57"}, {"b": "s099"}], [5, 9]),
        ([{"a": "57", "b": "s099"}], []),
        ([{"a": "x"}], []),
    ]:
        read.clear()
        count = sum(len(it.time) for it in read_rows(file, types, ["p"], EVER._replace(series=asked)))
        assert (read, count) == (groups, 10 * len(groups))


HOURS = 40


def of_each_hour(hours: int = HOURS) -> Case:
    """Each hour is of a series of its own."""
    return ticks(
        [
            {"_id": hour * 10 + n, "symbol": f"S{hour}", "d": DAY0 + hour * HOUR + n * MINUTE, "p": n / 4}
            for hour in range(hours)
            for n in range(3)
        ]
    )


@pytest.fixture(scope="module")
def disjoint(client: MongoClient[Document], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cycle]:
    """Many commits of disjoint series; its tests only read them."""
    database = client[f"test_{uuid.uuid4().hex[:12]}"]
    cycle = Cycle(database, of_each_hour(), Store(url=tmp_path_factory.mktemp("disjoint").as_uri())).load()
    for hour in range(HOURS):
        cycle.run(DAY0 + EXPIRED + (hour + 1) * HOUR)
    assert len(list(cycle.store.list("ticks/meta/manifests/"))) == HOURS
    yield cycle
    client.drop_database(database.name)


@pytest.mark.proof
def test_readings_of_one_series_open_one_part_among_many(disjoint: Cycle) -> None:
    store = opened(disjoint)
    found = rows_of(readings(disjoint, series={"symbol": "S31"}))
    assert found == [("S31", DAY0 + 31 * HOUR + n * MINUTE, n / 4) for n in range(3)]
    assert [key.split("/")[1] for key in store.keys] == ["data"]  # and no buckets file
    assert rows_of(readings(disjoint, series={"symbol": "nobody"})) == []
    assert len(store.keys) <= 1 + HOURS // 20


@pytest.mark.proof
def test_restore_of_one_series_opens_one_commit_among_many(disjoint: Cycle) -> None:
    store = opened(disjoint)
    assert disjoint.restore(series={"symbol": "S31"}).buckets == 3
    assert [bson.decode(it)["_id"] for it in raw_documents(disjoint.database, "back")] == [310, 311, 312]
    assert len(set(store.parts)) == 1
    assert len(store.keys) <= 4  # its part and its buckets file, and once more for other versions
    whole = sum(it.size for it in store.list("ticks/") if it.key.endswith(".parquet"))
    assert store.size < whole / 10


@pytest.mark.proof
def test_merged_commits_tell_their_series(database: Database[Document], file_store: Store) -> None:
    cycle = Cycle(database, of_each_hour(20), file_store).load()
    for hour in range(20):
        cycle.run(DAY0 + EXPIRED + (hour + 1) * HOUR)
    assert cycle.compact().into == 1
    store = opened(cycle)
    for hour in (0, 11, 19):
        found = rows_of(readings(cycle, series={"symbol": f"S{hour}"}))
        assert found == [(f"S{hour}", DAY0 + hour * HOUR + n * MINUTE, n / 4) for n in range(3)]
    assert len(store.keys) == 3
    assert rows_of(readings(cycle)) == sorted(wanted(cycle.case), key=lambda row: row[1])


def test_a_manifest_that_tells_nothing_hides_nothing(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeldSeries, "of", lambda *_of, **_how: None)
    cycle = Cycle(database, of_each_hour(5), file_store).load()
    cycle.run()
    (file,) = (cycle.root / "ticks/meta/manifests").iterdir()
    data = json.loads(file.read_bytes())
    assert data["sections"][0].pop("series") is None
    manifest = Manifest.model_validate(data)
    assert manifest.may_hold(cycle.policy, {"symbol": "nobody"})
    assert not manifest.has_rows_of(cycle.policy)
    assert [row[-1] for row in rows_of(readings(cycle, series={"symbol": "S3"}))] == [0, 0.25, 0.5]
    assert cycle.restore(series={"symbol": "S3"}).buckets == 3


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("case", "state"), in_turn(CASES[::2], STATES, many=3))
def test_rows_tell_what_documents_do(prepared: States, case: Case, state: State) -> None:
    """Of each series and of all, whatever the archive is in the middle of."""
    cycle = prepared(case, state)
    names = case.policy.series_names
    for one in {series for series, _, _ in case.readings} | {None}:
        asked = dict(zip(names, map(text, one), strict=True)) if one is not None else {}
        found = rows_of(readings(cycle, series=asked))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Manifest, "has_rows_of", lambda *_: False)
            patch.setattr(Manifest, "sections_with", lambda it, *_: [True] * len(it.sections))
            assert found == rows_of(readings(cycle, series=asked))
        assert sorted(map(repr, found)) == sorted(
            repr(row) for row, n in wanted(case).items() for _ in range(n) if one is None or row[:-2] == one
        )


def test_who_puts_a_bucket_back_by_hand_has_it_once(database: Database[Document], file_store: Store) -> None:
    """No receipt tells of it: it is live as it was archived."""
    cycle = Cycle(database, of_each_hour(3), file_store).load()
    cycle.run()
    insert(database, "ticks", cycle.case.documents[3:5])
    for asked in ({}, {"symbol": "S1"}, {"symbol": "S0"}):
        found = rows_of(readings(cycle, series=asked))
        assert len(found) == (3 if asked else 9)
        assert len(set(found)) == len(found)


@pytest.mark.proof
def test_what_ties_across_commits_is_in_the_order_of_ids(
    database: Database[Document], file_store: Store
) -> None:
    """Rows don't tell `_id`s, so documents have to."""
    documents: list[Document] = [
        {"_id": i, "symbol": "S", "d": DAY0 + (i % 2) * MINUTE, "p": float(i)} for i in (5, 3, 8, 1, 2)
    ]
    cycle = Cycle(database, ticks([]), file_store)
    for document in documents:
        database["ticks"].insert_one(document)
        cycle.run()
    for asked in ({}, {"symbol": "S"}):
        assert [row[-1] for row in rows_of(readings(cycle, series=asked))] == [2, 8, 1, 3, 5]


def test_another_layout_is_read_from_the_documents(database: Database[Document], file_store: Store) -> None:
    """The filter is of series as they were read then; values too may lie elsewhere now."""
    case = ticks(
        [{"_id": i, "symbol": f"S{i}", "place": f"P{i}", "d": DAY0, "p": 1.0, "q": 2.0} for i in range(4)]
    )
    cycle = Cycle(database, case, file_store).load()
    cycle.run()
    other = case.policy.model_copy(update={"series_fields": ("place",)})
    more = case.policy.model_copy(update={"value_fields": ("q", "p")})
    found = rows_of(Readings(database, other, cycle.store, series={"place": "P2"}))
    assert found == [("P2", DAY0, 1.0)]
    store = opened(cycle)
    assert rows_of(Readings(database, more, cycle.store, series={"symbol": "S2"})) == [("S2", DAY0, 2.0)]
    assert any("buckets" in key for key in store.keys)


def gateways(*documents: Document) -> Case:
    """Buckets whose samples tell of which sensor they are."""
    policy = make_policy(
        name="g", collection="g", model="samples", series_fields=("gateway", "s.*.sensor"),
        value_fields=("v",), samples_field="s", sample_time_field="t", start_field="a", end_field="z",
        archive=offline(),
    )  # fmt: skip
    return Case("g", policy, list(map(encode, documents)), [])


def gateway(sensors: dict[str, int], start: datetime = DAY0, gateway: str = "G") -> Document:
    samples = [{"sensor": it, "t": start + n * MINUTE, "v": float(n)} for it, n in sensors.items()]
    times = [start + n * MINUTE for n in sensors.values()]
    return {"_id": "x", "gateway": gateway, "a": min(times), "z": max(times), "s": samples}


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("to", ["offline", "online"])
def test_a_bucket_without_samples_is_of_no_sensor_and_comes_back(
    database: Database[Document], file_store: Store, to: str
) -> None:
    empty = {"_id": "y", "gateway": "G", "a": DAY0, "z": DAY0 + MINUTE, "s": []}
    case = gateways(gateway({"one": 0, "two": 2}), empty)
    cycle = Cycle(database, case.online() if to == "online" else case, file_store).load()
    assert cycle.run().deleted == 2
    for name, since, until, expected in (
        ("all", None, None, "xy"),
        ("begin", DAY0, DAY0 + MINUTE, "x"),
        ("later", DAY0 + MINUTE, DAY0 + 2 * MINUTE, "y"),
    ):
        assert cycle.restore(name, since=since, until=until).buckets == len(expected)
        assert sorted(it["_id"] for it in database[name].find()) == [*expected]
    assert cycle.restore(series={"sensor": "one"}).buckets == 1


def test_versions_of_other_sensors_belong_to_the_bucket(
    database: Database[Document], file_store: Store
) -> None:
    """A late upsert has none of the sensor that is asked for, and is a version of its bucket all the same."""
    cycle = Cycle(database, gateways(), file_store)
    for document in (gateway({"one": 1, "two": 2}), gateway({"three": 3})):
        insert(database, "g", [encode(document)])
        assert cycle.run().deleted == 1
    assert rows_of(readings(cycle, series={"sensor": "three"})) == [("G", "three", DAY0 + 3 * MINUTE, 3.0)]
    assert cycle.restore(series={"sensor": "one"}).versions == 1
    (back,) = (bson.decode(it, CODEC) for it in raw_documents(database, "back"))
    assert [it["sensor"] for it in back["s"]] == ["one", "two", "three"]


def test_an_id_of_two_series_is_two_buckets(database: Database[Document], file_store: Store) -> None:
    """They can't be versions of each other, so each comes back where its series is asked for."""
    cycle = Cycle(database, ticks([]), file_store)
    for symbol in ("A", "B"):
        database["ticks"].insert_one({"_id": 1, "symbol": symbol, "d": DAY0, "p": 1.0})
        assert cycle.run().deleted == 1
    for symbol in ("A", "B"):
        assert rows_of(readings(cycle, series={"symbol": symbol})) == [(symbol, DAY0, 1.0)]
        assert cycle.restore(symbol, series={"symbol": symbol}).buckets == 1
        assert [bson.decode(it)["symbol"] for it in raw_documents(database, symbol)] == [symbol]


@pytest.mark.proof
@pytest.mark.parametrize("count", [3, pytest.param(60, marks=pytest.mark.proof)])
@pytest.mark.parametrize("archive", ["offline", "online"])
def test_series_of_any_types_are_found_as_by_plain_python(
    database: Database[Document], tmp_path: Path, archive: str, count: int
) -> None:
    """Through several commits, with and without a merge of these, and some of it live."""

    @settings(max_examples=count)
    @given(
        st.lists(st.tuples(VALUES, VALUES, st.integers(0, 3), st.floats()), min_size=1, max_size=14),
        st.lists(TEXTS, max_size=2),
        st.booleans(),
        st.integers(0, 5),
    )
    def check(rows: list[tuple[Any, Any, int, float]], others: list[str], is_merged: bool, last: int) -> None:
        database.client.drop_database(database.name)
        folder = tmp_path / uuid.uuid4().hex
        folder.mkdir()
        documents = [
            {
                "_id": i,
                "meta": {"symbol": a},
                "place": b,
                "d": DAY0 + day * 24 * HOUR + i * MINUTE,
                "p": value,
            }
            for i, (a, b, day, value) in enumerate(rows)
        ]
        policy = ticks([]).policy.model_copy(update={"series_fields": ("meta.symbol", "place")})
        case = Case("ticks", policy, list(map(encode, documents)), [])
        cycle = Cycle(
            database, case.online() if archive == "online" else case, Store(url=folder.as_uri())
        ).load()
        for day in range(last):
            cycle.run(DAY0 + EXPIRED + day * 24 * HOUR)
        if is_merged and archive == "offline":
            cycle.compact()
        readable = [(text(decoded(a)), text(decoded(b)), i, value) for i, (a, b, _, value) in enumerate(rows)]
        texts = [{"meta.symbol": it} for it in others] + [{"place": it} for it in others] + [{}]
        texts += [{"meta.symbol": a} for a, *_ in readable] + [
            {"meta.symbol": a, "place": b} for a, b, *_ in readable
        ]
        for asked in texts:
            expected = [
                (i, _bits(value))
                for a, b, i, value in readable
                if asked.get("meta.symbol", a) == a and asked.get("place", b) == b
            ]
            found = [
                (time // 60_000 % 1440, _bits(value))
                for piece in Readings(database, cycle.policy, cycle.store, series=asked)
                for time, value in zip(piece.time.tolist(), piece.values["p"].tolist(), strict=True)
            ]
            assert sorted(found, key=repr) == sorted(expected, key=repr)
            if last:
                live = {bson.decode(it)["_id"] for it in cycle.live()}
                database.drop_collection("back")
                cycle.restore(series=asked)
                back = {bson.decode(it)["_id"] for it in raw_documents(database, "back")}
                assert back == {i for i, _ in expected} - live

    check()


def test_a_text_that_is_no_utf_8_is_told(database: Database[Document], file_store: Store) -> None:
    cycle = Cycle(database, of_each_hour(1), file_store).load()
    with pytest.raises(UsageError, match=r"--series symbol='S\\udcff': it is not UTF-8"):
        Readings(database, cycle.policy, cycle.store, series={"symbol": "S\udcff"})
    with pytest.raises(UsageError, match="it is not UTF-8"):
        cycle.restore(series={"symbol": "S\udcff"})
