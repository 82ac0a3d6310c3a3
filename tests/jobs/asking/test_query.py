"""`bucketwise query`: what it prints, writes and refuses; and `bucketwise` as Python programs import it."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pymongo import MongoClient

import bucketwise as api
from bucketwise.config.errors import UsageError
from tests.jobs.command import ROOT, CommandLine, Ran
from tests.jobs.place import NOW, POLICIES, START, Place
from tests.jobs.states import after

#: Two of the three hours of ticks have expired.
MIDWAY = "2018-07-30T02:00:00Z"
ALL = [
    ("MDB", START + timedelta(minutes=minute, seconds=second), 50 + second / 8)
    for minute in range(180)
    for second in range(60)
]


@pytest.fixture(scope="module")
def mixed(
    tmp_path_factory: pytest.TempPathFactory,
    client: MongoClient[dict[str, Any]],
    mongodb_uri: str,
    bucketwise: CommandLine,
) -> Iterator[Place]:
    """Some readings are archived, some live. The tests only read, but for files of their own."""
    name = "test_query"
    client.drop_database(name)
    it = Place(tmp_path_factory.mktemp("query"), client[name], mongodb_uri, bucketwise)
    it.write_config()
    it.load()
    assert it("run", now=MIDWAY).code == 0
    assert it.database.ticks.count_documents({}) == 60
    yield it
    client.drop_database(name)


def rows(place: Place, sql: str, *options: str) -> list[list[Any]]:
    ran = place("query", sql, "--json", *options)
    assert ran.code == 0, ran
    found: list[list[Any]] = ran.json["rows"]
    return found


@pytest.mark.proof
def test_every_reading_once(mixed: Place) -> None:
    before = mixed.everything()
    ran = mixed("query", "FROM ticks", "--format", "csv")
    assert (ran.code, ran.err) == (0, "")
    header, *lines = csv.reader(io.StringIO(ran.out))
    assert header == ["symbol", "time", "p"]
    assert [(one, datetime.fromisoformat(at), float(p)) for one, at, p in lines] == ALL
    assert mixed.everything() == before


@pytest.mark.proof
def test_json_has_columns_and_rows(mixed: Place) -> None:
    sql = "SELECT symbol, max(p) AS most, count(*) FROM ticks WHERE time < '2018-06-30 02:30' GROUP BY 1"
    found = mixed("query", sql, "--json").json
    assert (found["columns"], found["rows"]) == (["symbol", "most", "count_star()"], [["MDB", 57.375, 9000]])
    assert [it["policy"] for it in found["policies"]] == ["ticks"]


def test_summaries_are_flat(mixed: Place) -> None:
    sql = 'SELECT symbol, start, hour("end"), count, p_count, p_sum, p_last_at FROM ticks_hourly ORDER BY 2'
    assert rows(mixed, sql)[1] == [
        "MDB", "2018-06-30T01:00:00.000Z", 2, 3600, 3600, 193275.0, "2018-06-30T01:59:59.000Z",
    ]  # fmt: skip
    assert rows(mixed, "SELECT timezone, hours, p_min FROM ticks_daily") == [["UTC", 24.0, 50.0]]
    assert rows(
        mixed, "SELECT sensor, count FROM iot_hourly WHERE sensor = 7 AND start >= '2018-06-30 02:00'"
    ) == [[7, 6]]


@pytest.mark.proof
def test_coverage_as_the_verb_has_it(mixed: Place) -> None:
    (told,) = mixed("coverage", "-p", "ticks", "--json").policy("ticks")["days"]
    names = [it for it in told if it not in ("commits", "expires_at")]
    sql = f"SELECT {', '.join(names)}, commits FROM ticks_coverage"
    expected = [[*(told[it] for it in names), [it["commit"] for it in told["commits"]]]]
    assert rows(mixed, sql) == expected
    assert rows(mixed, f"{sql} WHERE day = '2018-06-30'") == expected
    assert rows(mixed, f"{sql} WHERE day > '2018-06-30'") == []


def test_the_online_archive_and_joins(mixed: Place) -> None:
    assert rows(mixed, "SELECT sensor, count(*), sum(t) FROM iot GROUP BY 1") == [[7, 18, 369.0]]
    assert rows(mixed, "SELECT count(*) FROM ticks JOIN iot USING (time)") == [[18]]
    assert rows(mixed, "SELECT count(*) FROM ticks a JOIN ticks b USING (time, symbol)") == [[10_800]]


@pytest.mark.proof
def test_files(mixed: Place) -> None:
    for name, read in {
        "t.parquet": pq.read_table,
        "t.arrow": lambda path: pa.ipc.open_file(path).read_all(),
    }.items():
        ran = mixed("query", "FROM ticks", "--output", name, "--json")
        assert ran.code == 0, ran
        assert (ran.json["count"], ran.json["output"]) == (10_800, name)
        table: Any = read(mixed.folder / name).to_pydict()
        assert list(zip(*table.values(), strict=True)) == ALL
    refused = mixed("query", "FROM iot", "--output", "t.parquet")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert mixed("query", "FROM iot", "--output", "t.parquet", "--yes").code == 0
    assert pq.read_table(mixed.folder / "t.parquet").num_rows == 18
    assert mixed("query", "SELECT 1 / 'a'", "--output", "bad.csv").code == 2
    assert not list(mixed.folder.glob("*bad.csv*"))


@pytest.mark.proof
def test_a_table_in_a_file(mixed: Place) -> None:
    sql = "SELECT symbol, time FROM ticks"
    for statement in (f"{sql} LIMIT 3", sql):
        printed = mixed("query", statement)
        ran = mixed("query", statement, "--format", "table", "--output", "t.txt", "--yes")
        assert ran.code == 0, ran
        assert (mixed.folder / "t.txt").read_text() == printed.out
    assert ran.out == "1,000 rows in t.txt\n"


def test_what_json_lacks_is_text(mixed: Place) -> None:
    sql = (
        "SELECT 'nan'::DOUBLE a, '-inf'::DOUBLE b, NULL c, '' d, 'x,\"y' e, [1, 2] f, 1.50::DECIMAL(4, 2) g, "
        "DATE '2018-06-30' h, 12::HUGEINT i, 'ab'::BLOB j, true k"
    )
    values = ["NaN", "-Infinity", None, "", 'x,"y', [1, 2], "1.50", "2018-06-30", 12, "6162", True]
    assert rows(mixed, sql) == [values]
    ran = mixed("query", sql, "--format", "json")
    assert list(json.loads(ran.out).values()) == values
    ran = mixed("query", sql, "--format", "csv")
    assert ran.out.splitlines()[1] == 'NaN,-Infinity,,"","x,""y","[1, 2]",1.50,2018-06-30,12,6162,true'


REFUSED = {
    "DROP TABLE ticks": ["DROP", "only reads"],
    "FROM nobody": ["nobody"],
    "SELEKT 1": ["SELEKT"],
    "FROM read_csv('/etc/passwd')": ["Permission Error"],
    "FROM '/etc/passwd'": ["/etc/passwd"],
    "COPY (SELECT 1) TO 'x.csv'": ["COPY", "only reads"],
    "SET memory_limit = '1TB'": ["SET", "only reads"],
    "ATTACH 'x.db'": ["ATTACH"],
    "INSTALL httpfs": ["only reads"],
    "FROM sql": ["sql"],  # a variable of the program
    "FROM ticks WHERE p = 'x'": ["'x'"],
}


def test_sql_that_does_more_than_read_is_refused(mixed: Place) -> None:
    for (sql, fragments), told in zip(REFUSED.items(), answers(mixed, *REFUSED), strict=True):
        assert told["exit_code"] == 2, sql
        assert all(it in told["error"] for it in fragments), told


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["SELECT 1; SELECT 2"], ["2 statements"]),
        ([" "], ["empty"]),
        (["SELECT 1 AS a, 2 AS a", "--format", "json"], ["named a", "AS"]),
        (["SELECT 1", "--output", "x.txt"], ["--format", "parquet"]),
        (["SELECT 1", "--output", "nowhere/x.csv"], ["no folder nowhere"]),
    ],
    ids=lambda it: " ".join(it),
)
def test_what_is_refused(mixed: Place, arguments: list[str], fragments: list[str]) -> None:
    ran = mixed("query", *arguments)
    assert (ran.code, ran.out) == (2, ""), ran
    assert "Traceback" not in ran.err
    for fragment in fragments:
        assert fragment in ran.err


def test_json_is_no_csv(mixed: Place) -> None:
    ran = mixed("query", "SELECT 1", "--json", "--format", "csv")
    assert (ran.code, "--format csv" in ran.err) == (2, True)


@pytest.mark.proof
def test_explain_tells_what_is_read_and_the_summaries_that_answer(mixed: Place) -> None:
    where = "time >= '2018-06-30 01:00' AND time < '2018-06-30 02:00' AND symbol IN ('MDB', 'X')"
    sql = f"SELECT symbol, max(p), avg(p), count(*) AS n FROM ticks WHERE {where} GROUP BY symbol ORDER BY n"
    told = mixed("query", sql, "--explain", "--json").json["explain"]
    (read,) = told["reads"]
    assert read["ranges"] == [{"since": "2018-06-30T01:00:00Z", "until": "2018-06-30T02:00:00Z"}]
    assert (read["series"], read["parts"]) == ([{"symbol": "MDB"}, {"symbol": "X"}], 1)
    assert told["summaries"]["view"] == "ticks_hourly"
    assert rows(mixed, told["summaries"]["sql"]) == rows(mixed, sql)
    by_hour = (
        "SELECT date_trunc('hour', time) AS h, sum(p), min(p), count(p) FROM ticks GROUP BY h ORDER BY h"
    )
    told = mixed("query", by_hour, "--explain", "--json").json["explain"]
    assert rows(mixed, told["summaries"]["sql"]) == rows(mixed, by_hour)


#: Which summaries would tell otherwise.
OTHERWISE = [
    "SELECT max(p) FROM ticks WHERE time > '2018-06-30 01:00'",
    "SELECT max(p) FROM ticks WHERE time >= '2018-06-30 01:00:01'",
    "SELECT max(p) FROM ticks WHERE p > 50",
    "SELECT max(p) FROM ticks WHERE symbol = 'MDB' OR time < '2018-06-30'",
    "SELECT max(p) FROM ticks WHERE symbol <> 'MDB'",
    "SELECT count(DISTINCT p) FROM ticks",
    "SELECT count(symbol) FROM ticks",
    "SELECT max(time) FROM ticks",
    "SELECT max(p) FILTER (p > 3) FROM ticks",
    "SELECT median(p) FROM ticks",
    "SELECT date_trunc('minute', time), max(p) FROM ticks GROUP BY 1",
    "SELECT p, count(*) FROM ticks GROUP BY p",
    "SELECT max(p) FROM ticks USING SAMPLE 10%",
    "SELECT symbol FROM ticks",
    "SELECT max(a.p) FROM ticks a JOIN ticks b USING (time)",
    "WITH ticks AS (SELECT 1 AS p) SELECT max(p) FROM ticks",
]


def test_summaries_are_not_offered_where_they_would_tell_something_else(mixed: Place) -> None:
    for sql, told in zip(OTHERWISE, answers(mixed, *(f".explain {it}" for it in OTHERWISE)), strict=True):
        assert told["exit_code"] == 0, told
        assert told["explain"]["summaries"] is None, sql


@pytest.mark.proof
def test_summaries_are_not_offered_for_what_has_expired(place: Place) -> None:
    place.write_config(POLICIES.replace('"365d"', '"30d"'))
    by_hour = "SELECT date_trunc('hour', time) AS h, count(*) FROM ticks GROUP BY h"
    at_all = "SELECT count(*) FROM ticks"
    place("run", "-p", "ticks", now=MIDWAY)
    assert rows(place, "SELECT count(*) FROM ticks_hourly") == [[2]]  # of three
    told = place("query", by_hour, "--explain", "--json").json["explain"]["summaries"]
    assert (told, rows(place, at_all)) == (None, [[10_800]])
    told = place("query", at_all, "--explain", "--json").json["explain"]["summaries"]
    assert (told["view"], rows(place, told["sql"])) == ("ticks_daily", [[10_800]])

    ending = '"30d"\narchive = "31d"\narchive_grace = "1d"'
    place.write_config(POLICIES.replace('"365d"', ending))
    for now in (NOW, "2018-09-03T00:00:00Z", "2018-09-05T00:00:00Z"):
        place("run", "-p", "ticks", now=now)
    assert (rows(place, at_all), rows(place, "SELECT sum(count) FROM ticks_daily")) == ([[0]], [[10_800]])
    assert place("query", at_all, "--explain", "--json").json["explain"]["summaries"] is None


def answers(place: Place, *statements: str) -> list[dict[str, Any]]:
    """The JSON of each, asked in one session."""
    ran = piped(place, "".join(f"{it};\n" for it in statements), "--interactive", "--json")
    return [json.loads(line) for line in ran.out.splitlines()][:-1]  # the last one is of the session


def test_statements_one_after_another(mixed: Place) -> None:
    """Without a terminal nobody is prompted."""
    lines = ".tables\n.schema iot\n\nSELECT count(*)\n\nFROM iot;\nSELECT nothing;\n.explain FROM iot;\n"
    ran = piped(mixed, lines + "VALUES (7)", "--interactive")
    assert ran.code == 2
    assert "bucketwise>" not in ran.out
    for fragment in ("ticks_hourly\n", '"sensor" BIGINT', "18", "iot: columns sensor, time, t", "7"):
        assert fragment in ran.out
    assert '"nothing"' in ran.err
    ran = piped(mixed, "SELECT max(p)\nFROM ticks\n", "--format", "csv")
    assert (ran.code, ran.out) == (0, "max(p)\n57.375\n")


def test_in_a_terminal_it_prompts_and_remembers_what_was_asked(mixed: Place, tmp_path: Path) -> None:
    terminal, end = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "bucketwise", "query", "--quiet", "--interactive"],
        cwd=mixed.folder,
        env=os.environ | {"MONGODB_URI": mixed.uri, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"},
        stdin=end,
        stdout=end,
        stderr=subprocess.PIPE,
    )
    os.close(end)
    os.write(terminal, b".what\nSELECT 1 +\n41 AS sum;\nSELECT nothing;\n.exit\n")
    shown = b""
    with suppress(OSError):  # the terminal is closed
        while some := os.read(terminal, 1 << 16):
            shown += some
    os.close(terminal)
    assert process.stderr is not None
    assert (process.wait(), b'"nothing"' in process.stderr.read()) == (0, True)
    told = shown.decode()
    assert told.count("bucketwise> ") >= 4 and "   ...> " in told
    assert ".tables" in told and "42" in told
    history = tmp_path / "bucketwise" / "query_history"
    assert "41 AS sum;" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


def piped(place: Place, text: str, *arguments: str) -> Ran:
    given = ("query", "--quiet", *arguments)
    return place.command.piped(text, *given, cwd=place.folder, MONGODB_URI=place.uri)


@pytest.mark.proof
def test_a_signal_ends_it(mixed: Place) -> None:
    """In the midst of DuckDB, where Python hears of nothing: the first rows show that it has begun."""
    sql = "FROM range(1000000000000)"
    process = subprocess.Popen(
        [sys.executable, "-m", "bucketwise", "query", "--quiet", "--format", "csv", sql],
        cwd=mixed.folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "MONGODB_URI": mixed.uri},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.read(1000)
    process.send_signal(signal.SIGINT)
    reader = threading.Thread(target=process.stdout.read)
    reader.start()
    assert process.wait() == 130
    reader.join()
    assert process.stderr is not None
    assert b"interrupted" in process.stderr.read()


def test_quarantined_buckets_are_told(place: Place) -> None:
    place.database.ticks.insert_one({"_id": "bad", "symbol": "MDB", "d": START, "p": {"60": 1.0}})
    ran = place("query", "SELECT count(*) FROM ticks", "--format", "csv")
    assert (ran.code, ran.out.splitlines()[1]) == (3, "10800")
    assert 'quarantined, and left out: _id "bad", p.60:' in ran.err


def test_names_that_sql_must_quote_and_cannot_tell(place: Place) -> None:
    renamed = POLICIES.replace("[policies.iot", "[policies.order-1").replace(
        "policies.ticks", "policies.Select"
    )
    place.write_config(renamed)
    assert rows(place, 'SELECT count(*) FROM "order-1"') == [[18]]
    assert rows(place, 'SELECT count(*) FROM "Select"') == [[10_800]]
    place.write_config(POLICIES.replace("[policies.iot", "[policies.Ticks_Hourly"))
    refused = place("query", "FROM ticks")
    assert (refused.code, "ticks_hourly" in refused.err and "--policy" in refused.err) == (2, True)
    assert rows(place, "SELECT count(*) FROM ticks", "-p", "ticks") == [[10_800]]


@after("run")
def test_what_is_no_summary_of_these_series_is_left_out(place: Place) -> None:
    """Documents of others, and summaries of series that the policy told apart otherwise once."""
    for name in ("ticks", "iot"):
        summary = place.database[f"{name}_hourly"].find_one()
        assert summary is not None
        identity = {"series": {**summary["_id"]["series"], "exchange": "N"}, "start": START}
        others: list[dict[str, Any]] = [{"_id": 5}, {"_id": identity}, {"_id": "z", "note": 1}]
        for day, other in enumerate(others, start=1):
            at = START + timedelta(days=day)
            place.database[f"{name}_hourly"].insert_one({**summary, **other, "start": at})
        assert rows(place, f"SELECT count(*) FROM {name}_hourly") == [[3]]


@pytest.mark.proof
def test_series_of_several_types_are_text(place: Place) -> None:
    """The first and the last summaries do not show them all; the query starts again with a wider column."""
    assert place("run", "-p", "iot", now=MIDWAY).code == 0
    place.database.iot.insert_one({"sensor": "x", "at": START, "t": 1.5})
    place.database.iot.insert_one({"sensor": 2.5, "at": START, "t": 1.5})
    found = rows(place, "SELECT sensor, count(*) FROM iot GROUP BY 1 ORDER BY 1")
    assert found == [["2.5", 1], ["7", 18], ["x", 1]]
    assert rows(place, "SELECT count(*) FROM iot WHERE sensor = '7'") == [[18]]


@pytest.mark.proof
def test_collections_that_are_not_there(place: Place) -> None:
    for name in place.database.list_collection_names():
        place.database.drop_collection(name)
    for view in ("ticks", "ticks_hourly", "ticks_daily", "ticks_coverage", "iot", "iot_hourly"):
        assert rows(place, f"FROM {view}") == []


def test_python_programs(mixed: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONGODB_URI", mixed.uri)
    connection = api.connect(mixed.config, policies=["ticks"])
    assert connection.sql("SELECT count(*), max(p) FROM ticks WHERE symbol = 'MDB'").fetchall() == [
        (10_800, 57.375)
    ]
    assert connection.sql("FROM ticks_hourly").pl().height == 3
    connection.close()
    since = START + timedelta(hours=1, seconds=59)
    reader = api.scan("ticks", since=since, series={"symbol": "MDB"}, config=mixed.config)
    assert reader.schema.field("time").type == pa.timestamp("ms", tz="UTC")
    frame: Any = polars.from_arrow(reader)
    assert frame.rows() == [(one, at.astimezone(UTC), p) for one, at, p in ALL if at >= since]
    for series in ({}, {"sensor": 7}, {"sensor": "7"}):
        assert len(api.scan("iot", series=series, config=mixed.config).read_pandas()) == 18
    with pytest.raises(UsageError, match=r"until: .* has no time zone"):
        api.scan("iot", until=START.replace(tzinfo=None), config=mixed.config)
    for wrong in (lambda: api.scan("tick", config=mixed.config), lambda: api.connect(mixed.config, ["x"])):
        with pytest.raises(UsageError, match="there are ticks, iot"):
            wrong()


@pytest.mark.proof
def test_a_run_beside_it_changes_no_answer(place: Place) -> None:
    """Buckets move into the archive, some half an hour at a time, and are asked for meanwhile."""
    done, codes = threading.Event(), list[int]()

    def archive() -> None:
        for minute in range(0, 181, 36):
            at = datetime(2018, 7, 30, tzinfo=UTC) + timedelta(minutes=minute)
            codes.append(place("run", "-p", "ticks", now=at.isoformat()).code)
        done.set()

    mover = threading.Thread(target=archive)
    mover.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MONGODB_URI", place.uri)
            with api.connect(place.config) as connection:
                asked = 0
                while not done.is_set() or not asked:
                    sql = "SELECT count(*), count(DISTINCT time), sum(p) FROM ticks"
                    assert connection.sql(sql).fetchall() == [(10_800, 10_800, sum(p for _, _, p in ALL))]
                    asked += 1
    finally:
        mover.join()
    assert codes == [0] * len(codes)
    assert place.database.ticks.count_documents({}) == 0


def test_an_even_grid_is_filled(mixed: Place) -> None:
    assert rows(mixed, "SELECT count(*) FROM time_grid('2018-06-30', '2018-07-01', '1h')") == [[24]]
    filled = """
        SELECT start, fill_{}(p_last, p_last_at, start, symbol, '{}') AS p, p_last IS NULL AS filled
        FROM time_grid('2018-06-30 01:00', '2018-06-30 06:00', '1h')
        CROSS JOIN (SELECT 'MDB' AS symbol)
        LEFT JOIN (FROM ticks_hourly WHERE start <> '2018-06-30 01:00') USING (symbol, start) ORDER BY start
    """
    found = rows(mixed, filled.format("previous", "2h"))
    assert [it[1:] for it in found] == [
        [None, True], [57.375, False], [57.375, True], [57.375, True], [None, True],
    ]  # fmt: skip
    values = """
        WITH told (start, v, read) AS (VALUES
            (TIMESTAMPTZ '2020-01-01 00:00:00Z', 1.0, TIMESTAMPTZ '2020-01-01 00:30:00Z'),
            (TIMESTAMPTZ '2020-01-01 03:00:00Z', 7.0, TIMESTAMPTZ '2020-01-01 03:30:00Z'))
        SELECT fill_linear(v, read, start, 1, '{}') FROM time_grid('2020-01-01', '2020-01-01 06:00', '1h')
        LEFT JOIN told USING (start) ORDER BY start
    """
    assert [it[0] for it in rows(mixed, values.format("3h"))] == [1.0, 2.0, 4.0, 7.0, None, None]
    assert [it[0] for it in rows(mixed, values.format("179m"))] == [1.0, None, None, 7.0, None, None]
