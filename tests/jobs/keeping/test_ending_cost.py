"""What ends of an archive is what a plain loop says; and looking for it costs as good as nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.archivers.stores import open_store
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.config.policies import Policy, Retain
from bucketwise.config.tables import Store
from bucketwise.jobs.audit.verb import AUDIT
from bucketwise.jobs.core.turn import Step
from bucketwise.jobs.hold.holds import place_step, release_step
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.run.verb import RUN
from bucketwise.jobs.undelete import UNDELETE
from bucketwise.rollups.holds import Hold
from tests.examples import examples
from tests.jobs.counting import Counts, run_counted, ticks_policy

Document = dict[str, Any]
#: A reading, by its series and its time.
Reading = tuple[str, datetime]
DAY = timedelta(days=1)
START = datetime(2018, 1, 1, tzinfo=UTC)
KEEP, GRACE = timedelta(days=100), timedelta(days=7)
DAYS = 12


class Archive:
    """One policy whose archive ends after a hundred days."""

    def __init__(self, uri: str, database: Database[Document], folder: Path, to: str) -> None:
        self.uri, self.database = uri, database
        folder.mkdir(exist_ok=True)
        self.settings = Store(url=folder.as_uri())
        said = {"to": to, "collection": "gone" if to == "online" else None}
        self.policy: Policy = ticks_policy(**said).model_copy(
            update={"retain": Retain(archive=KEEP, archive_grace=GRACE)}
        )
        self.files = folder

    def __call__(self, now: datetime, *steps: Step, **options: Any) -> tuple[Result, Counts]:
        store = open_store(self.settings)
        given = {"dry_run": True} if steps and steps != (AUDIT,) else {}
        found, counts = run_counted(
            self.uri, self.database.name, steps or RUN, [self.policy], store, now, **given, **options
        )
        (result,) = found
        assert result.exit_code == 0, (result.error, result.body)
        return result, counts

    def write(self, readings: set[Reading]) -> None:
        self.database["ticks"].insert_many([{"symbol": name, "d": at, "p": 1.0} for name, at in readings])

    def commits(self) -> Iterator[set[Reading]]:
        """Online, each reading is one."""
        if self.policy.archive is not None and self.policy.archive.to == "online":
            yield from ({(it["symbol"], it["d"])} for it in self.database["gone"].find())
            return
        by_name: dict[str, set[Reading]] = {}
        for part in self.files.rglob("data/*/*.parquet"):
            found = pq.read_table(part, columns=["symbol", "time"]).to_pylist()
            by_name.setdefault(part.name, set()).update((it["symbol"], it["time"]) for it in found)
        yield from by_name.values()


@pytest.fixture(params=["offline", "online"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


READINGS = st.sets(st.tuples(st.sampled_from("AB"), st.integers(0, DAYS * 24 - 1)), min_size=1, max_size=30)
SPANS = st.tuples(st.integers(0, DAYS * 24 - 1), st.integers(1, 72))


@pytest.mark.proof
@pytest.mark.in_turn(1)
@settings(max_examples=examples(3))
@given(
    numbers=READINGS,
    runs=st.lists(st.integers(1, DAYS * 24), max_size=3),
    age=st.integers(0, DAYS + 2),
    held=st.lists(st.tuples(SPANS, st.sampled_from(["", "A", "B"])), max_size=2),
    lifted=st.lists(SPANS, max_size=2),
)
def test_what_ends_is_what_a_plain_loop_says(
    client: MongoClient[Document],
    mongodb_uri: str,
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    numbers: set[tuple[str, int]],
    runs: list[int],
    age: int,
    held: list[tuple[tuple[int, int], str]],
    lifted: list[tuple[int, int]],
) -> None:
    folder = tmp_path_factory.mktemp("store")
    database = client[f"test_{folder.name.replace('-', '_')}_{kind}"]
    client.drop_database(database.name)
    archive = Archive(mongodb_uri, database, folder, kind)
    written = {(name, START + hour * timedelta(hours=1)) for name, hour in numbers}
    archive.write(written)
    for hour in [*sorted(runs), DAYS * 24]:
        archive(START + timedelta(days=30, hours=hour, minutes=1))
    before = list(archive.commits())
    assert set().union(*before) == written
    first = START + KEEP + age * DAY + timedelta(hours=5)
    end = START + age * DAY
    after = archive.policy.archive.after if archive.policy.archive else None
    assert after == timedelta(days=30)

    def archived(reading: Reading) -> datetime:
        passed = [hour for hour in (*sorted(runs), DAYS * 24) if _at(hour) >= reading[1]]
        return _at(passed[0]) + after + timedelta(minutes=1)

    def archived_with(commit: set[Reading]) -> set[Reading]:
        days = {at.date() for _, at in commit}
        return {it for it in written if it[1].date() in days} if kind == "online" else commit

    archive(first)
    spans = [TimeRange(_at(since), _at(since + hours)) for since, hours in lifted]
    for within in spans:
        archive(first, UNDELETE, within=lambda _, it=within: it)
    holds = [(TimeRange(_at(since), _at(since + hours)), name) for (since, hours), name in held]
    for number, (within, name) in enumerate(holds):
        archive(first, place_step(_hold(f"h{number}", within, name)))

    def stays(commit: set[Reading]) -> bool:
        days = {at.replace(hour=0) for _, at in commit}
        newest = max(archived(it) for it in archived_with(commit))
        if (
            newest > first - (KEEP - after)
            or max(at for _, at in commit) >= end
            or any(_touches(it, day, day + DAY) for it in spans for day in days)
        ):
            return True
        first_one, last_one = min(at for _, at in commit), max(at for _, at in commit)
        names = {name for name, _ in commit}
        return any(
            _touches(within, first_one, last_one + timedelta(milliseconds=1)) and (not name or name in names)
            for within, name in holds
        )

    archive(first + GRACE)
    expected: set[Reading] = set().union(*filter(stays, before))
    assert set().union(*archive.commits()) == expected
    archive(first + GRACE, AUDIT)
    summaries = sum(it["count"] for it in database["hourly"].find())
    assert summaries == len(written)
    for number in range(len(holds)):
        archive(first + GRACE, release_step(f"h{number}", "me"))
    archive(first + timedelta(days=60) + KEEP)
    archive(first + timedelta(days=68) + KEEP)
    assert list(archive.commits()) == []
    told = database["bucketwise_receipts"].find({"kind": "expire"})
    assert sum(it["readings"] for it in told) == len(written)
    archive(first + timedelta(days=68) + KEEP, AUDIT)
    client.drop_database(database.name)


def _at(hour: int) -> datetime:
    return START + hour * timedelta(hours=1)


def _touches(within: TimeRange, start: datetime, end: datetime) -> bool:
    assert within.since is not None
    assert within.until is not None
    return within.since < end and start < within.until


def _hold(name: str, within: TimeRange, symbol: str) -> Hold:
    series = {"symbol": symbol} if symbol else {}
    return Hold(name, series, within, "why", START, "me", freeze=False, salt=b"0" * 32)


def _without_streams(counts: Counts) -> Counter[str]:
    unsteady = ("getMore", "killCursors", "endSessions", "hello")
    return Counter({it: count for it, count in counts.commands.items() if it not in unsteady})


@pytest.mark.in_turn(1)
def test_looking_for_what_is_past_costs_one_query(
    mongodb_uri: str, database: Database[Document], tmp_path: Path, kind: str
) -> None:
    archive = Archive(mongodb_uri, database, tmp_path / "store", kind)
    archive.write({("A", START + number * DAY) for number in range(3)})
    now = START + timedelta(days=40)
    for _ in range(2):
        archive(now)
    with_end = _without_streams(archive(now)[1])
    archive.policy = archive.policy.model_copy(update={"retain": None})
    archive(now)
    without = _without_streams(archive(now)[1])
    assert (with_end - without).total() == 1
    assert (without - with_end).total() == 0


@pytest.mark.proof
@pytest.mark.parametrize(
    ("kind", "held"),
    [
        ("offline", False),
        ("online", True),
        pytest.param("offline", True, marks=pytest.mark.proof),
        pytest.param("online", False, marks=pytest.mark.proof),
    ],
)
def test_it_does_not_grow_with_what_has_gone_or_is_held(
    mongodb_uri: str, database: Database[Document], tmp_path: Path, kind: str, held: bool
) -> None:
    archive = Archive(mongodb_uri, database, tmp_path / "store", kind)
    soon = Retain(archive=timedelta(days=40), archive_grace=GRACE)
    archive.policy = archive.policy.model_copy(update={"retain": soon})
    archive.write({("A", START + number * DAY) for number in range(30)})
    if held:
        archive(START, place_step(_hold("case", TimeRange(None, None), "")))
    found = []
    for number in range(31, 66):
        archive(START + number * DAY)
        if number in (52, 65):  # seven days are under tombstones; of those before, there are some more
            archive(START + number * DAY)
            result, counts = archive(START + number * DAY)
            found.append(_without_streams(counts))
    body = result.body["archive_expiry"]
    assert (body["standing"]["days"], body["held"]) == (7, {"case": 18} if held else {})
    assert found[0] == found[1]
