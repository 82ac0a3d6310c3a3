"""`plan --against`: what a changed policy file would do, held against plain Python and against runs of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from bucketwise.config.load import load
from bucketwise.config.policies import Settings
from bucketwise.jobs.plan.verb import against_step
from tests.examples import examples
from tests.jobs.counting import run_counted

Document = dict[str, Any]
WRITES = ("insert", "update", "delete", "findAndModify", "create", "drop", "createIndexes", "bulkWrite")
PRESENT = datetime(2024, 6, 1, 12, tzinfo=UTC)
HORIZON = timedelta(days=90)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)

SAMPLES = 'model = "samples"\nsamples_field = "s"\nsample_time_field = "t"\nstart_field = "a"\n'
FIELDS = {
    "reading": 'model = "reading"\ntime_field = "at"\n',
    "timeseries": 'model = "timeseries"\ntime_field = "at"\n',
    "slots": 'model = "slots"\ntime_field = "at"\nslot = "minute"\nsparse_ok = true\n',
    "samples": f'{SAMPLES}end_field = "b"\n[policies.it.overflow]\nflag_field = "more"\n'
    'collection = "extra"\nref_field = "of"\nsamples_field = "s"\n',
    "endless": SAMPLES,
}


@dataclass
class Bucket:
    """A bucket as it is written, and what a person counts in it."""

    document: Document
    last: datetime
    times: list[datetime]
    overflow: Document | None = None

    @property
    def size(self) -> int:
        return sum(len(bson.encode(it)) for it in (self.document, self.overflow) if it is not None)


def bucket(model: str, number: int, at: datetime, minutes: list[int]) -> Bucket:
    """One that begins at a full hour, with a reading at each of these minutes."""
    times = [at + timedelta(minutes=it) for it in minutes]
    base: Document = {"_id": number, "k": number % 3}
    if model in ("reading", "timeseries"):
        return Bucket(base | {"at": times[0], "v": 1.5}, times[0], times[:1])
    if model == "slots":
        return Bucket(base | {"at": at, "v": {str(it): 1.5 for it in minutes}}, times[-1], times)
    samples = [{"t": it, "v": 2.5} for it in times]
    if model == "endless":
        return Bucket(base | {"a": times[0], "s": samples}, times[-1], times)
    some = max(1, len(samples) // 2)
    document = base | {"a": times[0], "b": times[-1], "s": samples[:some], "more": len(samples) > some}
    extra = {"_id": number, "of": number, "s": samples[some:]} if len(samples) > some else None
    return Bucket(document, times[-1], times, extra)


@dataclass(frozen=True)
class Rules:
    """What a policy file says of the archive, in whole hours."""

    after: int
    batch: int | None
    grace: int | None
    delete: bool
    settle: int | None  # None: nothing is rolled up

    def text(self, model: str) -> str:
        table = f'[policies.it.archive]\nto = "offline"\nafter = "{self.after}h"\n'
        table += f'batch = "{self.batch}h"\n' if self.batch else ""
        table += f'grace = "{self.grace}h"\n' if self.grace and self.delete else ""
        table += "" if self.delete else "delete = false\n"
        if self.settle is not None:
            table += f'[policies.it.rollup]\nhourly = "hourly"\nsettle = "{self.settle}h"\n'
        fields, _, overflow = FIELDS[model].partition("[")
        names = '[policies.it]\ncollection = "it"\nseries_fields = ["k"]\nvalue_fields = ["v"]\n'
        return names + fields + (f"[{overflow}" if overflow else "") + table

    def edge(self, at: datetime) -> datetime:
        """What ends before it has expired, and is rolled up."""
        edge = at - timedelta(hours=self.after)
        if self.batch:
            seconds = int(edge.timestamp())
            edge = datetime.fromtimestamp(seconds - seconds % (self.batch * 3600), UTC)
        if self.settle is not None:
            rolled = at - timedelta(hours=self.settle)
            edge = min(edge, rolled.replace(minute=0, second=0, microsecond=0))
        return edge

    def deletes(self, at: datetime) -> datetime | None:
        """The same of deletes, where nothing has been copied yet."""
        if not self.delete:
            return None
        if not self.grace:
            return self.edge(at)
        earlier = at - timedelta(hours=self.grace)
        return min(self.edge(at), self.edge(earlier)) if earlier >= PRESENT else None


def counted(rules: Rules, model: str, buckets: list[Bucket], at: datetime) -> Document:
    archived = [it for it in buckets if it.last < rules.edge(at)]
    deletes = None if model == "timeseries" else rules.deletes(at)
    deleted = sum(1 for it in buckets if deletes is not None and it.last < deletes)
    return {
        "archived": len(archived),
        "deleted": deleted,
        "kept": len(buckets) - deleted,
        "bytes": sum(it.size for it in archived),
        "readings": sum(len(it.times) for it in archived),
        "days": len({time.date() for it in archived for time in it.times}),
        "quarantined": 0,
        "summaries": {} if rules.settle is None else {"hourly": 0},
    }


#: A few, so that buckets end on the very edge.
HOURS = st.sampled_from([24, 25, 26, 24 * 2, 24 * 30, 24 * 89, 24 * 90, 24 * 91, 24 * 92, 24 * 120])
RULES = st.builds(
    Rules,
    after=HOURS,
    batch=st.sampled_from([None, 6, 24, 24 * 7]),
    grace=st.sampled_from([None, 1, 24 * 10, 24 * 89, 24 * 91]),
    delete=st.booleans(),
    settle=st.sampled_from([None, 1, 5]),
)
#: How many hours ago a bucket begins, and at which minutes it has readings.
BUCKETS = st.lists(
    st.tuples(
        st.one_of(HOURS, st.integers(-48, 24 * 130)),
        st.lists(st.sampled_from([0, 1, 59]), min_size=1, max_size=2, unique=True),
    ),
    max_size=25,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def loaded(folder: Path, name: str, database: str, policies: str) -> Settings:
    path = folder / name
    store = f'[store]\nurl = "{(folder / "store").as_uri()}"\n'
    path.write_text(f'[mongodb]\nuri = "mongodb://here"\ndatabase = "{database}"\n{store}{policies}')
    return load(path, {})


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("model", FIELDS)
@settings(max_examples=examples(10))
@given(today=RULES, changed=RULES, begun=BUCKETS)
def test_the_numbers_are_those_of_plain_python(
    folder: Path,
    client: MongoClient[Document],
    mongodb_uri: str,
    model: str,
    today: Rules,
    changed: Rules,
    begun: Any,
) -> None:
    database = client[f"test_{uuid4().hex[:12]}"]
    buckets = [bucket(model, i, PRESENT - HOUR * hours, sorted(of)) for i, (hours, of) in enumerate(begun)]
    if model == "timeseries":
        database.create_collection("it", timeseries={"timeField": "at", "metaField": "k"})
    else:
        database.create_collection("it")
    for name, some in (
        ("it", [b.document for b in buckets]),
        ("extra", [b.overflow for b in buckets if b.overflow]),
    ):
        if some:
            database[name].insert_many(some)
    files = [
        loaded(folder, f"{i}.toml", database.name, it.text(model)) for i, it in enumerate((today, changed))
    ]
    try:
        (result,), counts = run_counted(
            mongodb_uri,
            database.name,
            [against_step(*files)],
            list(files[0].policies.values()),
            None,
            PRESENT,
            dry_run=True,
        )
    finally:
        client.drop_database(database.name)
    assert result.error is None
    assert result.exit_code == 0
    assert not set(counts.commands) & set(WRITES)
    for key, at in (("now", PRESENT), ("in_90_days", PRESENT + HORIZON)):
        mine, theirs = (counted(it, model, buckets, at) for it in (today, changed))
        assert result.body[key]["today"] == mine
        assert result.body[key]["against"] == theirs
        difference = result.body[key]["difference"]
        assert {name: difference[name] for name in mine if name != "summaries"} == {
            name: theirs[name] - mine[name] for name in mine if name != "summaries"
        }
    more = any(result.body[key]["difference"]["deleted"] > 0 for key in ("now", "in_90_days"))
    assert any("only a restore" in it for it in result.body["irreversible"]) == more
