"""SQL over live and archived readings: the rows that DuckDB finds in a plain table of the same readings."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from bucketwise.archivers.context import Connections
from bucketwise.config.models import make_policy
from bucketwise.config.tables import Store
from bucketwise.jobs.query.engine import Engine, explained_query
from bucketwise.jobs.query.rewriting import ScanLog, ServedTable, read_context
from bucketwise.jobs.query.tables import Misfit
from tests.archivers import builders
from tests.archivers.builders import DAY0, Case, encode, offline
from tests.archivers.harness import Cycle, in_turn
from tests.archivers.states import States, half_archived
from tests.jobs.counting import Counts

Document = dict[str, Any]
Rows = list[tuple[Any, ...]]
DAYS, MEMORY = 40, 400_000_000
SYMBOLS = ("A", "AB", "b", "Z'", "", "Å")
#: Beside finite numbers; None: there is none.
ODD = (float("nan"), float("inf"), float("-inf"), -0.0, None)


def case() -> Case:
    """Readings of 40 days, some at one instant, of two series fields."""
    rng = random.Random(5)
    documents: list[Document] = []
    for number in range(600):
        at = DAY0 + timedelta(milliseconds=rng.randrange(DAYS * 24) * 3_600_000 + rng.choice((0, 0, 1, 999)))
        value = rng.choice(ODD) if rng.random() < 0.1 else rng.randrange(-40, 40) / 8
        held = {} if value is None else {"p": value}
        documents.append({"_id": number, "s": rng.choice(SYMBOLS), "n": rng.randrange(4), "d": at, **held})
    policy = make_policy(
        name="ticks",
        collection="ticks",
        model="reading",
        time_field="d",
        series_fields=("s", "n"),
        value_fields=("p",),
        archive=offline(),
    )
    told = [((it["s"], it["n"]), it["d"], it.get("p")) for it in documents]
    return Case("ticks", policy, [encode(it) for it in documents], told)


class Opened:
    """The store, and which parts were read in it."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.parts = inner, list[str]()

    def __getattr__(self, name: str) -> Any:
        def asked(key: Any, *more: Any, **named: Any) -> Any:
            if name.startswith("get") and "/data/" in str(key):
                self.parts.append(str(key))
            return getattr(self.inner, name)(key, *more, **named)

        held = getattr(self.inner, name)
        return asked if callable(held) else held


class World:
    """Half of the readings archived, half live; the same as a plain table in a DuckDB of its own."""

    def __init__(self, uri: str, client: MongoClient[Document], folder: Path) -> None:
        self.counts = Counts()
        self.cycle = Cycle(client["test_querying"], case(), Store(url=folder.as_uri())).load()
        client["test_querying"].ticks.create_index("d")
        for days in range(31, 51):
            self.cycle.run(DAY0 + timedelta(days=days))
        self.opened = Opened(self.cycle.store)
        self._counted = MongoClient[Document](uri, tz_aware=True, event_listeners=[self.counts])
        connections = Connections(self._counted["test_querying"], self.opened)
        self.engine = Engine([read_context(connections, self.cycle.policy, DAY0)], MEMORY)
        self.plain = duckdb.connect()
        self.plain.execute("SET TimeZone = 'UTC'")
        rows = [{"s": s, "n": n, "time": at, "p": p} for (s, n), at, p in self.cycle.case.readings]
        kinds = [("s", pa.string()), ("n", pa.int64()), ("time", pa.timestamp("us", tz="UTC"))]
        held = pa.Table.from_pylist(rows, pa.schema([*kinds, ("p", pa.float64())]))
        self.plain.register("held", held)
        self.plain.execute("CREATE TABLE ticks AS FROM held")

    def close(self) -> None:
        self.engine.__exit__()
        self.plain.close()
        self._counted.close()

    def ask(self, sql: str) -> Rows:
        return told(self.engine.run(sql, lambda reader: reader.read_all()))

    def expect(self, sql: str) -> Rows:
        return told(self.plain.sql(sql).to_arrow_table())


def told(table: pa.Table) -> Rows:
    """As rows that can be compared: NaN is NaN, and -0.0 is not 0.0."""
    return sorted(tuple(map(repr, row)) for row in zip(*table.to_pydict().values(), strict=True))


@pytest.fixture(scope="module")
def world(
    mongodb_uri: str, client: MongoClient[Document], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    client.drop_database("test_querying")
    it = World(mongodb_uri, client, tmp_path_factory.mktemp("store"))
    try:
        yield it
    finally:
        it.close()
        client.drop_database("test_querying")


def instants() -> st.SearchStrategy[str]:
    """An instant as SQL may write it."""
    at = st.integers(-48, (DAYS + 2) * 24).map(lambda hours: DAY0 + timedelta(hours=hours))
    odd = st.sampled_from((0, 1, 500, 1000, 999_000)).map(lambda us: timedelta(microseconds=us))
    exact = st.builds(lambda a, b: a + b, at, odd)
    forms = (
        lambda it: f"'{it:%Y-%m-%d %H:%M:%S.%f}'",
        lambda it: f"TIMESTAMPTZ '{it:%Y-%m-%d %H:%M:%S.%f}+00'",
        lambda it: f"TIMESTAMPTZ '{it + timedelta(hours=2):%Y-%m-%d %H:%M:%S.%f}+02'",
        lambda it: f"CAST('{it:%Y-%m-%d}' AS DATE)",
        lambda it: f"TIMESTAMP '{it:%Y-%m-%d %H:%M}' AT TIME ZONE 'America/New_York'",
        lambda it: f"(TIMESTAMPTZ '{it:%Y-%m-%d}' - INTERVAL 36 HOUR)",
    )
    return st.builds(lambda it, form: str(form(it)), exact, st.sampled_from(forms))


def texts() -> st.SearchStrategy[str]:
    return st.sampled_from((*SYMBOLS, "nobody")).map(lambda it: "'" + it.replace("'", "''") + "'")


def numbers() -> st.SearchStrategy[str]:
    odd = ("'nan'::DOUBLE", "'inf'::DOUBLE", "'-inf'::DOUBLE", "-0.0", "NULL")
    return st.sampled_from(odd) | st.integers(-40, 40).map(lambda it: str(it / 8))


def comparison(column: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"))
    return st.one_of(
        st.builds(lambda op, it: f"{column} {op} {it}", operators, values),
        st.builds(lambda op, it: f"{it} {op} {column}", operators, values),
        st.builds(lambda a, b: f"{column} BETWEEN {a} AND {b}", values, values),
        st.lists(values, min_size=1, max_size=4).map(lambda some: f"{column} IN ({', '.join(some)})"),
        st.sampled_from((f"{column} IS NULL", f"{column} IS NOT NULL")),
    )


def conditions() -> st.SearchStrategy[str]:
    plain = st.one_of(
        comparison("time", instants()),
        comparison("s", texts()),
        comparison("n", st.integers(-1, 4).map(str)),
        comparison("p", numbers()),
        st.sampled_from(
            (
                *("s LIKE 'A%'", "s LIKE '%b'", "lower(s) = 'ab'", "s || n = 'A1'", "n + 1 = 2", "n = 1.0"),
                *("time::DATE = '2018-07-04'", "date_trunc('day', time) = '2018-07-30'", "hour(time) < 3"),
                *("time::VARCHAR LIKE '2018-07-1%'", "year(time) = 2018", "n::VARCHAR = '2'", "isnan(p)"),
            )
        ),
    )
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            inner.map(lambda it: f"NOT ({it})"),
            st.lists(inner, min_size=2, max_size=3).map(lambda some: f"({' AND '.join(some)})"),
            st.lists(inner, min_size=2, max_size=3).map(lambda some: f"({' OR '.join(some)})"),
        ),
        max_leaves=6,
    )


QUERIES = (
    "SELECT * FROM ticks WHERE {0}",
    "SELECT count(*) FROM ticks WHERE {0}",
    "SELECT s, max(p), min(time) FROM ticks WHERE {0} GROUP BY s",
    "WITH chosen AS (SELECT * FROM ticks WHERE {0}) SELECT n, time FROM chosen WHERE {1}",
    "SELECT p FROM (SELECT * FROM ticks WHERE {0}) WHERE {1}",
    "SELECT a.p, b.p FROM (FROM ticks WHERE {0}) a JOIN (FROM ticks WHERE {1}) b USING (time, s)",
    "SELECT time FROM ticks WHERE {0} AND time >= (SELECT max(time) FROM ticks WHERE {1})",
    "SELECT s, n FROM ticks WHERE {0} AND time IN (SELECT time FROM ticks WHERE {1})",
    "SELECT a.s, b.n FROM ticks a LEFT JOIN (FROM ticks WHERE {1}) b ON a.time = b.time AND a.n < b.n",
    "SELECT s FROM ticks WHERE {0} UNION ALL SELECT s FROM ticks WHERE {1}",
)


@pytest.mark.proof
@pytest.mark.parametrize("examples", [6, pytest.param(300, marks=pytest.mark.proof)])
def test_any_query_finds_what_it_finds_in_a_plain_table(world: World, examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.sampled_from(QUERIES), conditions(), conditions())
    def check(query: str, one: str, two: str) -> None:
        sql = query.format(one, two)
        assert world.ask(sql) == world.expect(sql)

    check()


def day(number: int) -> date:
    return (DAY0 + timedelta(days=number)).date()


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("where", "days"),
    [
        (f"time >= '{day(3)}' AND time < '{day(5)}'", {3, 4}),
        (f"time::DATE = '{day(3)}' AND time BETWEEN '{day(3)}' AND '{day(4)}'", {3, 4}),
        (f"time < '{day(1)}' OR (time >= '{day(9)}' AND time < '{day(10)}')", {0, 9}),
        (f"NOT (time < '{day(7)}' OR time >= '{day(8)}')", {7}),
        (f"date_trunc('day', time) = '{day(6)}'", {6}),
        (f"time >= '{day(25)}'", set()),  # live
        ("s = 'nobody'", set()),
        ("false", set()),
    ],
)
def test_other_parts_and_buckets_are_not_read(world: World, where: str, days: set[int]) -> None:
    sql = f"SELECT time FROM ticks WHERE {where}"
    found = world.expect(sql)
    world.opened.parts.clear()
    world.counts.documents = 0
    assert world.ask(sql) == found
    named = {key.partition("dt=")[2].partition("/")[0] for key in world.opened.parts}
    assert named <= {day(it).isoformat() for it in days}
    assert len(world.opened.parts) <= 2 * len(days)
    live = sum(1 for _, at, _ in world.cycle.case.readings if at >= DAY0 + timedelta(days=20))
    assert world.counts.documents <= (live + 60 if days == set() and "time" in where else 60)


def test_series_narrow_what_mongodb_reads(world: World) -> None:
    sql = "SELECT * FROM ticks WHERE s IN ('A', 'b') AND n = 2"
    expected = world.expect(sql)
    world.counts.documents = 0
    assert world.ask(sql) == expected
    assert world.counts.documents < len(world.cycle.live()) / 2
    read = explained_query(world.engine, sql).reads[0].scan.narrowed
    assert [dict(it) for it in read.selectors] == [{"s": "A", "n": "2"}, {"s": "b", "n": "2"}]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("case", "archive"), in_turn([*builders.deletable(), builders.timeseries()], ["offline", "online"])
)
def test_each_bucket_model(prepared: States, case: Case, archive: str) -> None:
    """Half archived, half live: each reading once, with its value."""
    cycle = prepared(case.online() if archive == "online" else case, half_archived)
    connections = Connections(cycle.database, cycle.store)
    with Engine([read_context(connections, cycle.policy, DAY0)], MEMORY) as engine:
        names = [
            it.replace(".", "_") for it in (*cycle.policy.series_names, "time", *cycle.policy.value_names)
        ]
        found = anew(engine, f'FROM "{cycle.policy.name}"')
        assert found.column_names == names
        series = cycle.policy.series_names
        columns = found.columns[len(series)].to_pylist(), found.columns[len(series) + 1].to_pylist()
        assert Counter((at, repr(value)) for at, value in zip(*columns, strict=True)) == Counter(
            (at, repr(None if value is None else float(value))) for _, at, value in case.readings
        )
        by = ", ".join(f'"{it}"' for it in names[: len(series)]) or "true"
        grouped = anew(engine, f'SELECT count(*) FROM "{cycle.policy.name}" GROUP BY {by}')
        counts = sorted(grouped.columns[0].to_pylist())
        assert counts == sorted(Counter(repr(it) for it, _, _ in case.readings).values())


def anew(engine: Engine, sql: str) -> pa.Table:
    """As the verb asks: again, where a column was too narrow."""
    while True:
        try:
            return engine.run(sql, lambda reader: reader.read_all())
        except Misfit as misfit:
            engine.widen(misfit)


def test_what_is_noted_of_queries_does_not_grow_with_them() -> None:
    """As on a connection of a Python program, which nothing clears."""

    class Broken:
        schema, time, types = pa.schema([("s", pa.string())]), "time", {"s": "string"}

        def read(self, _narrowed: object) -> Iterator[pa.Table]:
            raise OSError(f"{len(seen)}")

    watched, seen = ScanLog(), list[str]()
    served = ServedTable("ticks", Broken(), watched)
    for _ in range(1100):
        with pytest.raises(OSError) as caught:
            served.scanner().to_reader().read_all()
        seen.append(str(caught.value))
    assert len(watched.scans) == 1000
    assert str(watched.failure) == seen[0]
