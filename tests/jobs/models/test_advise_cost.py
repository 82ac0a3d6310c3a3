"""What `advise` and `remodel` ask of MongoDB and hold in memory: no more of a large collection than of a
small one, but for the batches that `remodel` writes."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.buckets.source import Source
from bucketwise.buckets.writing import TARGETS
from bucketwise.jobs.advise.candidates import extract, measured
from bucketwise.jobs.advise.shard_keys import shard_keys_of
from bucketwise.jobs.advise.verb import advise_on
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.remodel.rewriting import remodel_collection
from tests.jobs.counting import Counts, ticks_policy

Document = dict[str, Any]
START = datetime(2018, 6, 30, tzinfo=UTC)
SMALL, LARGE, VAST = 1_000, 20_000, 1_000_000
VERBS: dict[str, Callable[[Call, str], Report]] = {
    "findings": lambda call, name: advise_on(call, name, None, 300, False, None),
    "shard keys": lambda call, name: shard_keys_of(call, name, "symbol,d", 3, None, None),
}
INDEXES: dict[str, list[list[str]]] = {
    "none": [],
    "time": [["d"]],
    "series and time": [["d"], ["symbol", "d"]],
}


@dataclass
class Counted(Call):
    """A call whose commands are counted."""

    uri: str = ""

    def __post_init__(self) -> None:
        self.counts = Counts()

    @contextmanager
    def database(self) -> Iterator[Database[Document]]:
        with MongoClient[Document](self.uri, tz_aware=True, event_listeners=[self.counts]) as client:
            yield client[self.settings.mongodb.database]


Make = Callable[[], Counted]


@pytest.fixture(scope="module")
def database(client: MongoClient[Document]) -> Iterator[Database[Document]]:
    it = client["test_advise_cost"]
    client.drop_database(it)
    yield it
    client.drop_database(it)


def name_of(database: Database[Document], indexes: str, count: int) -> str:
    """The name of a collection that has a reading a minute of each of five series, and these indexes."""
    name = f"{indexes.replace(' ', '_')}_{count}"
    if name not in database.list_collection_names():
        for keys in INDEXES[indexes]:
            database[name].create_index([(key, 1) for key in keys])
        fill(database, name, count, timedelta(minutes=1))
    return name


def fill(database: Database[Document], name: str, count: int, apart: timedelta) -> None:
    documents = (
        {"_id": i, "symbol": f"S{i % 5}", "d": START + i // 5 * apart, "p": i / 8} for i in range(count)
    )
    while some := list(islice(documents, 20_000)):
        database[name].insert_many(some, ordered=False)


@pytest.fixture
def make(tmp_path: Path, mongodb_uri: str, database: Database[Document]) -> Make:
    config = tmp_path / "bucketwise.toml"
    config.write_text(f'[mongodb]\nuri = "{mongodb_uri}"\ndatabase = "{database.name}"\n')
    now = START + timedelta(days=200)

    def make() -> Counted:
        it = Counted("advise", config, (), now, True, True, True, False, Stop(), uri=mongodb_uri)
        it.needs_policies = False
        return it

    return make


def peak(do: Callable[[], object]) -> int:
    """Bytes of Python's own and numpy's."""
    tracemalloc.start()
    try:
        do()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.proof
@pytest.mark.parametrize(
    "indexes", ["time", *(pytest.param(it, marks=pytest.mark.proof) for it in INDEXES if it != "time")]
)
@pytest.mark.parametrize("verb", VERBS)
def test_a_large_collection_takes_as_many_commands(
    make: Make, database: Database[Document], verb: str, indexes: str
) -> None:
    found = []
    for count in (SMALL, LARGE):
        call = make()
        VERBS[verb](call, name_of(database, indexes, count))
        found.append(call.counts.commands)
    assert found[0] == found[1]
    assert found[0].total() < 50


@pytest.mark.proof
@pytest.mark.parametrize("indexes", INDEXES)
@pytest.mark.parametrize("count", [LARGE, pytest.param(VAST, marks=pytest.mark.proof)])
def test_mongodb_looks_at_few_documents(
    make: Make, database: Database[Document], indexes: str, count: int
) -> None:
    """By its profiler: about a thousand, and some times the readings that models are tried with."""
    name = name_of(database, indexes, count)
    database.command("profile", 2)
    try:
        call = make()
        VERBS["findings"](call, name)
    finally:
        database.command("profile", 0)
    found = list(database["system.profile"].find({"ns": f"{database.name}.{name}"}))
    database["system.profile"].drop()
    assert len(found) >= 5
    assert sum(it.get("docsExamined", 0) for it in found) < 5_000
    assert not any("$group" in str(it["command"]) for it in found)


@pytest.mark.proof
def test_findings_hold_no_more_of_a_large_collection(make: Make, database: Database[Document]) -> None:
    def taken(count: int) -> int:
        name = name_of(database, "time", count)
        return peak(lambda: VERBS["findings"](make(), name))

    taken(VAST)  # what is imported
    assert taken(VAST) < 1.5 * taken(SMALL)


@pytest.mark.proof
def test_each_model_that_is_tried_takes_what_it_takes_alone(
    client: MongoClient[Document], mongodb_uri: str, database: Database[Document]
) -> None:
    """So commands grow with the models, and with nothing else."""
    policy = ticks_policy(to="none").model_copy(update={"collection": name_of(database, "time", SMALL)})
    part = extract(Source(database, policy), [], 300, 1.0, lambda: None)
    scratch = f"{database.name}_try"

    def commands(*models: str) -> Counter[str]:
        counts = Counts()
        with MongoClient[Document](mongodb_uri, tz_aware=True, event_listeners=[counts]) as counted:
            list(measured(counted[scratch], part, lambda: None, models))
            return +counts.commands  # without the end of the session

    some = ("reading", "slots-hour", "timeseries")
    assert set(some) <= set(TARGETS)
    alone = sum((commands(it) for it in some), Counter[str]())
    together = commands(*some)
    client.drop_database(scratch)
    assert together == alone
    assert alone.total() < 60 * len(some)


@pytest.mark.proof
def test_remodel_takes_commands_by_the_batch_and_memory_by_the_stretch(
    make: Make, database: Database[Document]
) -> None:
    """32 days, the longest stretch, have 1,280 readings here; a batch has 2,000 documents."""

    def rewritten(count: int) -> tuple[Counter[str], int]:
        fill(database, f"long_{count}", count, timedelta(hours=3))
        database[f"long_{count}"].create_index("d")
        call, into = make(), f"into_{count}"
        taken = peak(lambda: remodel_collection(call, f"long_{count}", "reading", into, dry_run=False))
        assert database[into].count_documents({}) == count
        assert call.counts.commands["insert"] == count // 2_000
        return call.counts.commands, taken

    (least, _), (less, small), (more, large) = map(rewritten, (2_000, 6_000, 10_000))
    first, second = less - least, more - less
    assert second.total() <= 1.1 * first.total()
    assert set(second) <= {"insert", "update", "find", "getMore"}
    assert large < 1.2 * small
