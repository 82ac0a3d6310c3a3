"""Live and archived readings as one: each once, in order, whatever the archive is in the middle of."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import pickle
import random
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from bucketwise.archivers.reading.formats import Format, write
from bucketwise.archivers.reading.readings import Readings
from bucketwise.archivers.records.registry import Registry
from bucketwise.buckets.packing import Rows
from bucketwise.config.errors import HaltedError, InterruptedRun, UsageError
from bucketwise.config.models import make_policy
from bucketwise.config.tables import Store
from tests.archivers import builders
from tests.archivers.builders import DAY0, MINUTE, Case, encode, offline
from tests.archivers.harness import EPOCH, MILLISECOND, Cycle, in_turn, plain_row
from tests.archivers.states import (
    State,
    States,
    all_archived,
    archived_in_two_runs,
    cut_off_before_the_delete,
    half_archived,
    nothing_archived,
    restored,
)
from tests.examples import examples

Document = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
CASES = [*builders.deletable(), builders.timeseries()]


def rows_of(pieces: Iterator[Rows] | Readings) -> list[tuple[Any, ...]]:
    """(series…, time, first value) in the order given."""
    found = []
    for rows in pieces:
        assert len(rows.time) > 0
        name = next(iter(rows.values))
        columns = (rows.row_series, rows.time, rows.values[name], rows.present[name])
        for series, time, value, present in zip(*(column.tolist() for column in columns), strict=True):
            at = EPOCH + time * MILLISECOND
            found.append(plain_row(rows.series[series], at, value if present else None))
    return found


def readings(cycle: Cycle, **asked: Any) -> Readings:
    return Readings(cycle.database, cycle.policy, cycle.store, **({"at_most": 300} | asked))


def wanted(
    case: Case, since: datetime | None = None, until: datetime | None = None
) -> Counter[tuple[Any, ...]]:
    return Counter(
        plain_row(*one)
        for one in case.readings
        if (since is None or one[1] >= since) and (until is None or one[1] < until)
    )


def check(cycle: Cycle, **asked: Any) -> None:
    """All of them, each once, in order."""
    found = rows_of(readings(cycle, **asked))
    assert Counter(found) == wanted(cycle.case)
    order = [(row[-2], row[:-2]) for row in found]
    assert order == sorted(order)


STATES = [
    nothing_archived,
    half_archived,
    all_archived,
    archived_in_two_runs,
    cut_off_before_the_delete,
    restored,
]


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(("case", "state", "archive"), in_turn(CASES, STATES, ["offline", "online"], many=4))
def test_each_reading_once_and_in_order(prepared: States, case: Case, archive: str, state: State) -> None:
    check(prepared(case.online() if archive == "online" else case, state))


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("archive", ["offline", "online"])
@pytest.mark.parametrize(
    "changes", [{"delete": False}, {"grace": timedelta(days=900)}], ids=["kept", "in grace"]
)
def test_copies_whose_originals_are_live_do_not_count(
    database: Database[Document], file_store: Store, archive: str, changes: Document
) -> None:
    case = builders.samples_overflow()
    cycle = Cycle(
        database, (case.online() if archive == "online" else case).with_archive(**changes), file_store
    ).load()
    assert cycle.run().buckets > 0
    assert len(cycle.live()) == len(case.documents)
    check(cycle)


@pytest.mark.proof
@pytest.mark.parametrize(
    "case", [builders.slots_overflow(), builders.samples("dates")], ids=lambda case: case.name
)
def test_any_range(prepared: States, case: Case) -> None:
    cycle = prepared(case, half_archived)
    times = sorted({at for _, at, _ in case.readings})
    edges = st.one_of(
        st.sampled_from(times),
        st.integers(-(10**8), 10**8).map(lambda count: DAY0 + count * MILLISECOND),
    )

    @settings(max_examples=examples(8))
    @given(st.none() | edges, st.none() | edges, st.sampled_from([40, 500, 10_000]))
    def check_range(since: datetime | None, until: datetime | None, at_most: int) -> None:
        found = rows_of(readings(cycle, since=since, until=until, at_most=at_most))
        assert Counter(found) == wanted(case, since, until)

    check_range()


def test_a_changed_bucket_counts_as_it_is_now(database: Database[Document], file_store: Store) -> None:
    """Its copy is old; the next run takes it back."""
    case = builders.samples("epoch").with_archive(delete=False)
    cycle = Cycle(database, case, file_store).load()
    cycle.run()
    new = {"val": 7.0, "time": 1_530_400_000}
    update = {
        "$set": {"samples": [new], "nsamples": 1, "sum": 7.0, "first": new["time"], "last": new["time"]}
    }
    database["iot"].update_one({"_id": "008"}, update)
    before = bson.decode(next(raw for raw in case.documents if bson.decode(raw)["_id"] == "008"))
    old = [plain_row((1000, 3), EPOCH + timedelta(seconds=s["time"]), s["val"]) for s in before["samples"]]
    now = (
        wanted(case)
        - Counter(old)
        + Counter([plain_row((1000, 3), EPOCH + timedelta(seconds=new["time"]), 7.0)])
    )
    assert Counter(rows_of(readings(cycle))) == now
    cycle.run()
    assert Counter(rows_of(readings(cycle))) == now


class _Meanwhile:
    """Lets something happen just before the registry of commits is asked for the nth time."""

    def __init__(self, nth: int, act: Callable[[], object]) -> None:
        self._act = act
        self.waits = nth

    def before(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def asked(registry: Registry, *of: Any) -> Any:
            self.waits -= 1
            if self.waits == 0:
                self._act()
            return method(registry, *of)

        return asked


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("act", ["archive", "restore", "change and archive"])
def test_what_moves_while_it_is_read_is_found_on_one_side(
    database: Database[Document],
    file_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    act: str,
    nth: int,
) -> None:
    """The live half of a slice has been read when its buckets are archived, or restored. It is asked first
    where to begin, and then for the first slice."""
    cycle = Cycle(database, builders.slots(), file_store).load()
    if act == "restore":
        cycle.run()

    def change_and_archive() -> None:
        database["slots"].update_many({}, {"$set": {"note": "as it was, but for this"}})
        cycle.run()

    moves: dict[str, Callable[[], object]] = {
        "archive": cycle.run,
        "restore": lambda: cycle.restore("slots"),
        "change and archive": change_and_archive,
    }
    meanwhile = _Meanwhile(nth, moves[act])
    for name in ("span", "within"):
        monkeypatch.setattr(Registry, name, meanwhile.before(getattr(Registry, name)))
    found = rows_of(Readings(database, cycle.policy, cycle.store, at_most=10_000))
    assert Counter(found) == wanted(cycle.case)
    assert meanwhile.waits <= 0


class _Before(CommandListener):
    """Lets something happen just before the nth command is sent."""

    def __init__(self, nth: int, act: Callable[[], object]) -> None:
        self._act, self.waits = act, nth

    def started(self, _event: CommandStartedEvent) -> None:
        self.waits -= 1
        if self.waits == 0:
            self._act()

    def succeeded(self, _event: CommandSucceededEvent) -> None: ...

    def failed(self, _event: CommandFailedEvent) -> None: ...


@pytest.mark.proof
def test_the_first_commit_may_be_made_before_any_command(
    client: MongoClient[Document], mongodb_uri: str, tmp_path: Path
) -> None:
    documents = [{"_id": n, "symbol": "A", "d": DAY0 + timedelta(days=n), "p": float(n)} for n in range(3)]
    case, nth, is_met = ticks(documents), 0, True
    while is_met:
        nth += 1
        client.drop_database("test_first_commit")
        (tmp_path / str(nth)).mkdir()
        store = Store(url=(tmp_path / str(nth)).as_uri())
        cycle = Cycle(client["test_first_commit"], case, store).load()
        before = _Before(nth, cycle.run)
        with MongoClient[Document](mongodb_uri, tz_aware=True, event_listeners=[before]) as watched:
            found = Readings(watched["test_first_commit"], cycle.policy, cycle.store)
            assert Counter(rows_of(found)) == wanted(case), nth
        is_met = before.waits <= 0
    assert nth > 5
    client.drop_database("test_first_commit")


@pytest.mark.proof
def test_runs_between_the_pieces_move_nothing_out_of_sight(
    database: Database[Document], file_store: Store
) -> None:
    cycle = Cycle(database, builders.samples_overflow(), file_store).load()
    found: list[tuple[Any, ...]] = []
    for number, piece in enumerate(readings(cycle, at_most=25)):
        found += rows_of(iter([piece]))
        cycle.run(DAY0 + timedelta(days=30, hours=number * 2))
    assert Counter(found) == wanted(cycle.case)


def ticks(documents: list[Document], **more: Any) -> Case:
    said: Document = {
        "name": "ticks", "collection": "ticks", "model": "reading", "time_field": "d",
        "series_fields": ("symbol",), "value_fields": ("p",), "archive": offline(),
    }  # fmt: skip
    policy = make_policy(**(said | more))
    told = [((one["symbol"],), one["d"], one.get("p")) for one in documents]
    return Case("ticks", policy, [encode(one) for one in documents], told)


@pytest.mark.parametrize("archived", [False, True])
def test_the_lower_id_comes_first_where_times_tie(
    database: Database[Document], file_store: Store, archived: bool
) -> None:
    """Numbers, then texts, then `ObjectId`s, as MongoDB sorts them; and series before that."""
    ids: list[Any] = [-5, 0.5, 3, 2**40, "a", "ab", "b", bson.ObjectId(b"\0" * 12), bson.ObjectId(b"\1" * 12)]
    documents = [
        {"_id": identity, "symbol": symbol, "d": DAY0, "p": float(place)}
        for symbol, some in (("B", ids[::2]), ("A", ids[1::2]))
        for place, identity in enumerate(some)
    ]
    random.Random(4).shuffle(documents)
    cycle = Cycle(database, ticks(documents), file_store).load()
    if archived:
        database["ticks"].update_many({"p": {"$gte": 2}}, {"$set": {"d": DAY0 + timedelta(days=40)}})
        cycle.run(DAY0 + timedelta(days=31))
        database["ticks"].update_many({}, {"$set": {"d": DAY0}})
    found = rows_of(readings(cycle))
    assert found == [("A", DAY0, float(place)) for place in range(4)] + [
        ("B", DAY0, float(at)) for at in range(5)
    ]


def test_one_millisecond_may_hold_more_than_fits(database: Database[Document], file_store: Store) -> None:
    documents = [
        {"_id": i, "symbol": f"S{i:03}", "d": DAY0 + (i % 2) * MILLISECOND, "p": 1.0} for i in range(300)
    ]
    cycle = Cycle(database, ticks(documents), file_store).load()
    pieces = [len(rows.time) for rows in readings(cycle, at_most=10)]
    assert pieces == [150, 150]


def test_empty_time_costs_nothing(database: Database[Document], file_store: Store) -> None:
    documents = [
        {"_id": at.year, "symbol": "S", "d": at, "p": 1.0}
        for at in (datetime(year, 5, 6, tzinfo=UTC) for year in (3, 1900, 2018, 2019, 9998))
    ]
    cycle = Cycle(database, ticks(documents), file_store).load()
    cycle.run()
    slices = 0

    def count() -> None:
        nonlocal slices
        slices += 1

    assert len(rows_of(readings(cycle, check=count))) == 5
    assert slices < 25


def test_it_stops_where_it_is_asked_to(database: Database[Document], file_store: Store) -> None:
    cycle = Cycle(database, builders.slots(), file_store).load()
    asked = iter([False, False, True])

    def stop() -> None:
        if next(asked):
            raise InterruptedRun("enough")

    with pytest.raises(InterruptedRun):
        rows_of(readings(cycle, check=stop))


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("archive", ["offline", "online"])
def test_only_the_series_asked_for(prepared: States, archive: str) -> None:
    case = builders.samples("epoch")
    cycle = prepared(case.online() if archive == "online" else case, half_archived)
    found = rows_of(readings(cycle, series={"deviceid": "1001", "sensorid": "3"}))
    assert Counter(found) == Counter({row: count for row, count in wanted(case).items() if row[0] == 1001})
    assert rows_of(readings(cycle, series={"deviceid": "1001", "sensorid": "4"})) == []
    with pytest.raises(UsageError, match="no such series field; it has deviceid, sensorid"):
        readings(cycle, series={"device": "1001"})


@pytest.mark.proof
def test_broken_buckets_are_told_once_and_the_others_go_on(prepared: States) -> None:
    case = builders.samples("epoch")
    cycle = prepared(case, half_archived)
    first, last = (round((DAY0 + timedelta(days=days)).timestamp()) for days in (0, 9))
    broken = {"_id": "bad", "deviceid": 1, "sensorid": 2, "first": first, "last": last, "sum": 0.0}
    cycle.database["iot"].insert_one({**broken, "nsamples": 9, "samples": [{"val": 1.0, "time": first}]})
    asked = readings(cycle, at_most=5)
    assert Counter(rows_of(asked)) == wanted(case)
    assert asked.quarantined_total == 1
    ((identity, field, reason),) = [(it.id, it.field, it.reason) for it in asked.quarantined]
    assert (identity, field) == ("bad", "nsamples")
    assert "9" in reason


def test_a_damaged_archive_is_no_short_answer(prepared: States) -> None:
    cycle = prepared(builders.slots(), all_archived)
    part = next((cycle.root / "slots" / "data").rglob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    with pytest.raises(HaltedError, match="its manifest says"):
        rows_of(readings(cycle))
    part.unlink()
    with pytest.raises(HaltedError, match="missing"):
        rows_of(readings(cycle))
    next((cycle.root / "slots" / "meta" / "manifests").iterdir()).unlink()
    with pytest.raises(HaltedError, match="the manifest is missing"):
        rows_of(readings(cycle))


def a_minute_archived(cycle: Cycle) -> None:
    cycle.run(DAY0 + timedelta(days=30, minutes=1))


ODD = [1.0, -0.0, 0.1, 1e300, 5e-324, 2.0**53, math.nan, math.inf, -math.inf, None, "a word", 7, True]


def odd_ticks() -> Case:
    """Values and names of all kinds, in two value fields."""
    names = ["MDB", 'say "so"', "a,b", "line\nbreak", "", "Ä", "{0}"]
    documents = [
        {
            "_id": i,
            "symbol": names[i % 7],
            "d": DAY0 + i * timedelta(milliseconds=1501),
            "p": value,
            "q": {"r": i / 3},
        }
        for i, value in enumerate(ODD * 7)
    ]
    for one in documents[::4]:
        del one["q"]
    return ticks(documents, value_fields=("p", "q.r"))


def number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def bits(value: float | None) -> bytes | None:
    return None if value is None else b"nan" if math.isnan(value) else struct.pack("<d", value)


def expected_lines(case: Case) -> list[tuple[Any, ...]]:
    return [
        (one["symbol"], one["d"], bits(number(one.get("p"))), bits(number(one.get("q", {}).get("r"))))
        for one in (bson.decode(raw, builders.CODEC) for raw in case.documents)
    ]


def written(cycle: Cycle, form: Format, **asked: Any) -> bytes:
    file = io.BytesIO()
    told: list[int] = []
    asked_for = readings(cycle, **asked)
    count = write(asked_for, form, file, told.append)
    if form is not Format.parquet:
        assert sum(told) == count
    return file.getvalue()


@pytest.mark.parametrize("archived", [False, True], ids=["live", "mixed"])
def test_csv_gives_the_same_numbers_again(prepared: States, archived: bool) -> None:
    cycle = prepared(odd_ticks(), a_minute_archived if archived else nothing_archived)
    assert cycle.live()
    text = written(cycle, Format.csv).decode()
    header, *lines = list(csv.reader(io.StringIO(text, newline="")))
    assert header == ["symbol", "time", "p", "q_r"]
    assert text.splitlines()[1] == "MDB,2018-06-30T00:00:00.000Z,1.0,"
    assert [
        (symbol, datetime.fromisoformat(at), *(bits(float(it)) if it else None for it in (p, q)))
        for symbol, at, p, q in lines
    ] == expected_lines(cycle.case)


@pytest.mark.parametrize("archived", [False, True], ids=["live", "mixed"])
def test_json_gives_the_same_numbers_again(prepared: States, archived: bool) -> None:
    cycle = prepared(odd_ticks(), a_minute_archived if archived else nothing_archived)
    lines = [json.loads(line) for line in written(cycle, Format.json).splitlines()]
    assert list(lines[0]) == ["symbol", "time", "p", "q_r"]
    assert [
        (
            one["symbol"],
            datetime.fromisoformat(one["time"]),
            *(None if one[name] is None else bits(float(one[name])) for name in ("p", "q_r")),
        )
        for one in lines
    ] == expected_lines(cycle.case)


def test_two_columns_of_one_name_are_for_csv_alone(database: Database[Document], file_store: Store) -> None:
    """A policy that archives nothing may call a value field as it likes."""
    documents = [{"_id": 1, "symbol": "MDB", "d": DAY0, "time": 0.25}]
    cycle = Cycle(database, ticks(documents, value_fields=("time",), archive=None), file_store).load()
    assert written(cycle, Format.csv) == b"symbol,time,time\nMDB,2018-06-30T00:00:00.000Z,0.25\n"
    for form in (Format.json, Format.parquet):
        with pytest.raises(UsageError, match=f"two columns are named time, which {form} can't tell apart"):
            written(cycle, form)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("case", [odd_ticks(), *CASES], ids=lambda case: case.name)
def test_parquet_has_the_columns_of_the_archive(prepared: States, tmp_path: Path, case: Case) -> None:
    cycle = prepared(case, a_minute_archived if case.name == "ticks" else half_archived)
    path = tmp_path / "readings.parquet"
    path.write_bytes(written(cycle, Format.parquet))
    part = next((cycle.root / case.policy.name / "data").rglob("*.parquet"))
    assert pq.read_schema(path).remove_metadata() == pq.read_schema(part).remove_metadata()
    value = case.policy.value_fields[0].replace(".", "_")
    columns = ", ".join(f'"{name.replace(".", "_")}"' for name in case.policy.series_fields)
    with duckdb.connect() as connection:
        query = f"""SELECT {columns}, epoch_ms("time"), "{value}" FROM read_parquet('{path}')"""
        found = connection.execute(query).fetchall()
    rows = [plain_row(tuple(row[:-2]), EPOCH + row[-2] * MILLISECOND, row[-1]) for row in found]
    if case.name == "ticks":
        assert [bits(row[-1]) if row[-1] != "nan" else b"nan" for row in rows] == [
            it[2] for it in expected_lines(case)
        ]
    else:
        assert Counter(rows) == wanted(case)
        assert [row[-2] for row in rows] == sorted(row[-2] for row in rows)


def test_columns_are_as_wide_as_all_series_need(database: Database[Document], file_store: Store) -> None:
    """The first piece has whole numbers only, a later one another, the last one a text."""
    names: list[Any] = [1, 2, 2.5, True, "x"]
    documents = [
        {"_id": i, "symbol": name, "d": DAY0 + i * timedelta(days=1), "p": 1.0}
        for i, name in enumerate(names)
    ]
    cycle = Cycle(database, ticks(documents), file_store).load()
    for until, kind, values in [
        (2, "int64", [1, 2]),
        (3, "double", [1.0, 2.0, 2.5]),
        (4, "string", ["1", "2", "2.5", "true"]),
    ]:
        table = pq.read_table(
            io.BytesIO(written(cycle, Format.parquet, at_most=1, until=DAY0 + timedelta(days=until)))
        )
        assert str(table.schema.field("symbol").type) == kind
        assert table["symbol"].to_pylist() == values


def test_a_name_may_be_of_several_types(database: Database[Document], file_store: Store) -> None:
    """`--series` names values by their text: the number 2 and the text "2" alike."""
    names: list[Any] = [2, "2", 2.0, 2.5, True, "true", {"a": 2}]
    documents = [{"_id": i, "symbol": name, "d": DAY0, "p": float(i)} for i, name in enumerate(names)]
    cycle = Cycle(database, ticks(documents), file_store).load()
    for text, places in [("2", [0, 2, 1]), ("true", [4, 5]), ("2.5", [3]), ('{"a": 2}', [6]), ("a", [])]:
        found = rows_of(readings(cycle, series={"symbol": text}))
        assert [row[-1] for row in found] == [float(place) for place in places]


def test_a_policy_without_series_fields_has_one_series(
    database: Database[Document], file_store: Store
) -> None:
    case = ticks([{"_id": i, "symbol": "-", "d": DAY0 + i * MINUTE, "p": i / 2} for i in range(3)])
    policy = case.policy.model_copy(update={"series_fields": ()})
    cycle = Cycle(database, Case("ticks", policy, case.documents, []), file_store).load()
    assert written(cycle, Format.csv).decode().splitlines() == [
        "time,p",
        *(f"2018-06-30T00:0{i}:00.000Z,{i / 2}" for i in range(3)),
    ]
    assert json.loads(written(cycle, Format.json).splitlines()[2]) == {
        "time": "2018-06-30T00:02:00.000Z",
        "p": 1.0,
    }
    assert pq.read_table(io.BytesIO(written(cycle, Format.parquet)))["p"].to_pylist() == [0.0, 0.5, 1.0]


def test_no_readings_are_a_header_and_a_table_of_no_rows(
    database: Database[Document], file_store: Store
) -> None:
    cycle = Cycle(database, odd_ticks(), file_store)
    assert written(cycle, Format.csv) == b"symbol,time,p,q_r\n"
    assert written(cycle, Format.json) == b""
    table = pq.read_table(io.BytesIO(written(cycle, Format.parquet)))
    assert (table.num_rows, table.column_names) == (0, ["symbol", "time", "p", "q_r"])


_COUNT = """
import pickle, resource, sys
from pymongo import MongoClient
from bucketwise.archivers.reading.formats import Format, write
from bucketwise.archivers.reading.readings import Readings
from bucketwise.archivers.stores import open_store
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Store

uri, name, policy, store = sys.argv[1:]
readings = Readings(
    MongoClient(uri, tz_aware=True)[name],
    pickle.loads(bytes.fromhex(policy)), open_store(Store(url=store)), at_most=20_000,
)
with open("/dev/null", "wb") as file:
    if sys.stdin.readline() == "write\\n":
        assert write(readings, Format.csv, file) == 40 * 600 * 60
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.proof
def test_memory_is_bounded(database: Database[Document], file_store: Store, mongodb_uri: str) -> None:
    """1.4 million readings, half of them archived: as objects they would be several hundred megabytes."""
    policy = builders.slots().policy
    minute = {str(second): 50 + second / 8 for second in range(60)}
    for part in range(2):
        database["slots"].insert_many(
            {
                "_id": (part * 20 + series) * 1000 + i,
                "p": minute,
                "meta": {"symbol": f"S{series}"},
                "d": DAY0 + part * timedelta(hours=10) + i * MINUTE,
            }
            for series in range(20)
            for i in range(600)
        )
    database["slots"].create_index("d")
    cycle = Cycle(database, Case("slots", policy, [], []), file_store)
    cycle.run(DAY0 + timedelta(days=30, hours=10), through=None)
    assert len(cycle.live()) == 12_000

    def peak(word: str) -> int:
        command = [
            sys.executable,
            "-c",
            _COUNT,
            mongodb_uri,
            database.name,
            pickle.dumps(policy).hex(),
            file_store.url,
        ]
        ran = subprocess.run(
            command,
            input=word,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert ran.returncode == 0, ran.stderr
        return int(ran.stdout)

    assert peak("write\n") - peak("\n") < 400_000  # kilobytes; one commit as documents and columns included
