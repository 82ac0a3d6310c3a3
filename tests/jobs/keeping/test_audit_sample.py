"""How much of the archive an audit reads: each file once, or those that have their turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.format.names import day_number
from bucketwise.archivers.moving import sweep
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.buckets.fields.times import DAY_MS, as_ms
from bucketwise.config.amounts import Share
from bucketwise.config.policies import Audit, Compact, Policy, Rollup
from bucketwise.config.tables import Store
from bucketwise.jobs.audit.audit import rotation_of
from bucketwise.jobs.audit.verb import audit_step
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.run.verb import RUN
from tests.jobs.counting import CountingStore, run_counted, ticks_policy
from tests.jobs.place import POLICIES, START, Place

Document = dict[str, Any]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NOW = START + timedelta(days=100)
DAYS = 13


class Reads:
    """Counts how often each file of a commit is read."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner, self.read = inner, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        if "/data/" in key or "/meta/buckets/" in key:
            self.read[key] += 1
        return self.inner.get_bytes(key, size)

    def get_sound(self, key: str, _is_sound: Callable[[bytes], bool], size: int | None = None) -> bytes:
        return self.get_bytes(key, size)

    @property
    def files(self) -> set[str]:
        found: Iterator[Any] = self.inner.list("ticks/")
        return {it.key for it in found if "/data/" in it.key or "/meta/buckets/" in it.key}


class Audited:
    """A policy whose readings of some days are archived: at once, or one series after the other."""

    def __init__(
        self,
        database: Database[Document],
        uri: str,
        settings: Store,
        policy: Policy,
        series: Sequence[str] = ("AB",),
        days: int = DAYS,
    ) -> None:
        self.database, self.uri, self.policy = database, uri, policy
        self.store = open_store(settings)
        database["ticks"].create_index("d")
        for names in series:
            database["ticks"].insert_many(
                {"symbol": it, "d": START + hour * HOUR, "p": hour / 7}
                for hour in range(0, 24 * days, 3)
                for it in names
            )
            (result,), _ = run_counted(uri, database.name, RUN, [policy], self.store, NOW)
            assert result.exit_code == 0, result.error

    def audit(self, now: datetime = NOW, *, full: bool = False) -> tuple[Result, Reads]:
        reads: Any = Reads(self.store)
        steps = (audit_step(full=full),)
        (result,), _ = run_counted(
            self.uri, self.database.name, steps, [self.policy], reads, now, dry_run=True
        )
        return result, reads

    def nights(self) -> Iterator[tuple[Result, Reads]]:
        """As many as it takes to come to all."""
        first = self.audit()
        yield first
        for night in range(1, first[0].body["days"]):
            yield self.audit(NOW + night * DAY)


def policy_of(share: float | None = None, **more: Any) -> Policy:
    policy = ticks_policy(**{"to": "offline", "compact": Compact(after=None)})
    return policy.model_copy(update={"audit": Audit(sample=share and Share(share)), **more})


ROLLUPS: dict[str, Document | None] = {
    "days of UTC": {"hourly": "hourly", "daily": "daily"},
    "days that begin within hours": {"hourly": "hourly", "daily": "daily", "timezone": "Asia/Kolkata"},
    "nothing": None,
}


@pytest.mark.proof
@pytest.mark.parametrize(
    "rollup",
    [
        "days that begin within hours",
        *(pytest.param(it, marks=pytest.mark.proof) for it in ("days of UTC", "nothing")),
    ],
)
def test_each_file_is_read_once(
    database: Database[Document],
    mongodb_uri: str,
    file_store: Store,
    rollup: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At each midnight two commits are at hand that lie on both sides."""
    monkeypatch.setattr(sweep, "MAX_READINGS", 10)
    found = ROLLUPS[rollup]
    policy = policy_of(rollup=found and Rollup(**found))
    result, reads = Audited(database, mongodb_uri, file_store, policy, ("A", "B"), 5).audit()
    assert (result.exit_code, result.body["findings"]) == (0, [])
    assert reads.read == dict.fromkeys(reads.files, 1)
    parts = sum("/data/" in key for key in reads.files)
    assert (result.body["parts"], result.body["parts_read"], result.body["days"]) == (parts, parts, 1)
    assert parts > 5


@pytest.mark.proof
def test_the_store_is_listed_once(
    database: Database[Document], mongodb_uri: str, file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for what is listed behind the last registered commit, as by any command."""
    monkeypatch.setattr(sweep, "MAX_READINGS", 2 * 8)
    it = Audited(database, mongodb_uri, file_store, policy_of())
    files = sum(1 for it in it.store.list("ticks/") if "/data/" in it.key or "/meta/buckets/" in it.key)
    commits = len(list(it.store.list("ticks/meta/manifests/")))
    store: Any = CountingStore(it.store)
    steps = (audit_step(full=True),)
    (result,), _ = run_counted(mongodb_uri, database.name, steps, [it.policy], store, NOW, dry_run=True)
    assert (result.exit_code, store.asked["listed"]) == (0, files + commits + 1)


@pytest.mark.proof
def test_a_sample_is_read_and_all_have_their_turn(
    database: Database[Document], mongodb_uri: str, file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "MAX_READINGS", 2 * 8)  # about a day's
    it = Audited(database, mongodb_uri, file_store, policy_of(0.2))
    met, parts = Counter[str](), 0
    for result, reads in it.nights():
        assert (result.exit_code, result.body["findings"], result.body["days"]) == (0, [], 6)
        parts = sum("/data/" in key for key in reads.files)
        assert result.body["parts_read"] == sum("/data/" in key for key in reads.read) <= parts / 2
        assert result.body["parts"] == parts >= DAYS
        assert set(reads.read.values()) == {1}
        met += reads.read
    assert set(met) == reads.files
    result, reads = it.audit(full=True)
    assert (result.body["parts_read"], result.body["days"]) == (parts, 1)
    assert reads.read == dict.fromkeys(reads.files, 1)


def codes(result: Result) -> set[str]:
    return {it["code"] for it in result.body["findings"]}


@pytest.mark.proof
def test_what_rests_is_there_and_live_ones_are_looked_at(
    database: Database[Document],
    mongodb_uri: str,
    file_store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What only a read can tell is found when it has its turn, or by a full audit."""
    monkeypatch.setattr(sweep, "MAX_READINGS", 2 * 8)
    it = Audited(database, mongodb_uri, file_store, policy_of(0.1))
    _, reads = it.audit()
    key = sorted(key for key in reads.files - set(reads.read) if "/data/" in key)[2]
    file, day = tmp_path / "store" / key, datetime.fromisoformat(key.split("=")[1][:10] + "T00:00Z")
    begins = day_number(key.split("/")[-1][:10])  # its commit does
    turn = NOW + DAY * next(at for at in range(11) if rotation_of(0.1).has(begins, as_ms(NOW) // DAY_MS + at))
    whole = file.read_bytes()
    file.unlink()
    assert codes(it.audit()[0]) == {"part-missing"}
    file.write_bytes(whole + b"x")
    assert codes(it.audit()[0]) == {"part-differs"}
    file.write_bytes(whole[:-20] + b"x" + whole[-19:])
    assert it.audit()[0].exit_code == 0
    summaries = database["hourly"]
    late = {"symbol": "A", "d": NOW - 60 * DAY, "p": 1.0}
    database["ticks"].insert_one(late)
    for result, _ in (it.audit(turn), it.audit(full=True)):
        assert (result.exit_code, codes(result)) == (5, {"part-differs", "overdue"})
    database["ticks"].delete_one(late)
    file.write_bytes(whole)
    summary = summaries.find_one_and_delete({"start": day + 12 * HOUR, "symbol": "A"})
    assert summary is not None
    assert codes(it.audit()[0]) == {"summaries-missing"}  # by their number
    told = {"summaries-missing", "not-rolled-up"}
    assert [codes(it.audit(turn)[0]), codes(it.audit(full=True)[0])] == [told] * 2
    summaries.insert_one(summary)
    assert codes(it.audit(turn)[0]) == set()
    database["ticks"].insert_one({"symbol": "A", "d": day + 5 * HOUR, "p": 1.0})
    assert codes(it.audit()[0]) == {"overdue", "not-rolled-up"}


@pytest.mark.proof
def test_the_report_says_how_much_was_read(place: Place) -> None:
    sample = '[policies.ticks.audit]\nsample = "10%"\n'
    place.write_config(POLICIES.replace("[policies.iot]", f"{sample}[policies.iot]"))
    assert place("run").code == 0
    sampled, full = place("audit", "--html", "audit.html"), place("audit", "--full")
    assert (sampled.code, full.code) == (0, 0)
    assert "ticks: read 0 of 1 parts; all within 11 days" in sampled.out
    assert "Read 0 of 1 parts; all within 11 days." in (place.folder / "audit.html").read_text()
    assert "ticks: read 1 of 1 parts\n" in full.out
    assert "iot: read 18 of 18 parts" in sampled.out  # buckets: it is online


@pytest.mark.proof
def test_manifests_of_what_rests_are_not_read(
    database: Database[Document], mongodb_uri: str, file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receipts tell which files they have. The chain is followed to the last checkpoint."""
    monkeypatch.setattr(sweep, "MAX_READINGS", 2 * 8)
    it = Audited(database, mongodb_uri, file_store, policy_of(0.1), ("AB",), 110)
    run_counted(mongodb_uri, database.name, RUN, [it.policy], it.store, NOW)  # makes a checkpoint

    def asked(full: bool) -> tuple[int, Document]:
        store: Any = CountingStore(it.store)
        steps = (audit_step(full=full),)
        (result,), _ = run_counted(mongodb_uri, database.name, steps, [it.policy], store, NOW, dry_run=True)
        assert (result.exit_code, result.body["findings"]) == (0, [])
        return store.asked["get_bytes"], result.body

    whole, body = asked(full=True)
    sampled, found = asked(full=False)
    assert 0 < found["parts_read"] < body["parts"] / 8  # a commit each: a part, a buckets file, its manifest
    assert sampled - 4 * found["parts_read"] < 10
    assert whole >= 4 * body["parts"]
    names = database["bucketwise_receipts"]
    names.update_many({"files": {"$exists": True}}, {"$unset": {"files": ""}})  # as those of older versions
    older, again = asked(full=False)
    assert again == found
    assert older > sampled + body["parts"] / 2
