"""Copies that tasks make: the same as a run makes itself, or none."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import bson
import numpy as np
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from bucketwise.archivers.context import Connections, LocalExecutor
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.stores import open_store
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.source import Source
from bucketwise.config.errors import BucketwiseError, HaltedError, InterruptedRun
from bucketwise.config.tables import USUAL_MEMORY, Store
from bucketwise.rollups.context import run_now
from tests.archivers.builders import Case, deletable, samples, samples_overflow, slots
from tests.archivers.harness import Cycle, expected_rows

Document = dict[str, Any]


@dataclass
class Elsewhere:
    """Does tasks at once, with connections of its own; `first` comes before each."""

    connections: Connections
    first: Callable[[], None] = lambda: None
    gave: list[Any] = field(default_factory=list)
    workers: int = 3
    memory: int = 1 << 30

    def submit(self, task: Callable[..., Any], *plain: Any) -> Future[Any]:
        self.first()
        future = run_now(task, self.connections, *plain)
        self.gave.append(future.result())
        return future

    def check(self) -> None:
        """Nobody is missing."""


@dataclass
class Liar(Elsewhere):
    """Copies fewer buckets than it was asked to."""

    def submit(self, task: Callable[..., Any], *plain: Any) -> Future[Any]:
        policy, raw_ids, _, *more = plain
        fewer = raw_ids[:-1]
        found = Batch.concat(list(Source(self.connections.database, policy).by_raw_ids(fewer)))
        place = {raw_id: i for i, raw_id in enumerate(found.main.raw_ids)}
        digest = found.take(np.array([place[raw_id] for raw_id in fewer])).digest
        return super().submit(task, policy, fewer, digest, *more)


@dataclass
class Forger(Liar):
    """And says that these are all."""

    def submit(self, task: Callable[..., Any], *plain: Any) -> Future[Any]:
        return _saying(super().submit(task, *plain).result(), plain[2])


@dataclass
class Slanderer(Elsewhere):
    """Copies what it was asked to, and says that it is something else."""

    def submit(self, task: Callable[..., Any], *plain: Any) -> Future[Any]:
        return _saying(super().submit(task, *plain).result(), "0" * 64)


def _saying(draft: Manifest, digest: str) -> Future[Any]:
    said: Future[Any] = Future()
    (section,) = draft.sections
    other = section.model_copy(update={"documents_sha256": digest})
    said.set_result(draft.model_copy(update={"sections": (other,)}))
    return said


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("case", deletable(), ids=lambda case: case.name)
def test_a_task_copies_what_the_run_has_read(
    database: Database[Document], file_store: Store, case: Case
) -> None:
    cycle = Cycle(database, case, file_store).load()
    live = cycle.live()
    executor = Elsewhere(Connections(database, open_store(file_store)))
    report = cycle.run(executor=executor)
    assert len(executor.gave) > 0 and all(executor.gave)
    assert report.deleted == len(live) and not cycle.live()
    assert sorted(cycle.archived()) == sorted(live)
    assert cycle.rows() == expected_rows(case)


def test_a_bucket_that_changes_before_the_task_reads_it_stays(
    database: Database[Document], file_store: Store
) -> None:
    """The run then copies what it has read itself, and finds at the delete what has changed."""
    case = samples_overflow()
    cycle = Cycle(database, case, file_store).load()
    changed = bson.decode(case.documents[7])["_id"]
    source = database[case.policy.collection]

    def change() -> None:
        source.update_one({"_id": changed}, {"$set": {"note": "changed"}})

    executor = Elsewhere(Connections(database, open_store(file_store)), change)
    report = cycle.run(executor=executor)
    assert executor.gave[0] is None
    assert report.changed == 1 and report.deleted == len(case.documents) - 1
    assert [it["_id"] for it in source.find()] == [changed]
    executor.first = lambda: None
    assert cycle.run(executor=executor).deleted == 1
    assert len(cycle.archived()) == len(case.documents)


def test_a_task_that_finds_fewer_buckets_copies_none(database: Database[Document], file_store: Store) -> None:
    case = samples()
    cycle = Cycle(database, case, file_store).load()
    gone = bson.decode(case.documents[7])["_id"]

    def delete() -> None:
        database[case.policy.collection].delete_one({"_id": gone})

    executor = Elsewhere(Connections(database, open_store(file_store)), delete)
    report = cycle.run(executor=executor)
    assert executor.gave[0] is None
    assert report.deleted == len(case.documents) - 1
    assert len(cycle.archived()) == len(case.documents)  # as it was read


def test_a_worker_with_another_store(database: Database[Document], file_store: Store, tmp_path: Path) -> None:
    cycle = Cycle(database, samples(), file_store).load()
    live = cycle.live()
    (tmp_path / "other").mkdir()
    other = open_store(Store(url=(tmp_path / "other").as_uri()))
    with pytest.raises(BucketwiseError, match="a worker wrote it, and it is not there"):
        cycle.run(executor=Elsewhere(Connections(database, other)))
    assert cycle.live() == live
    assert not cycle.rows()


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("liar", [Liar, Forger, Slanderer])
def test_a_worker_that_copies_something_else(
    database: Database[Document], file_store: Store, liar: type[Elsewhere]
) -> None:
    cycle = Cycle(database, samples(), file_store).load()
    live = cycle.live()
    executor = liar(Connections(database, open_store(file_store)))
    with pytest.raises(HaltedError, match="does not contain the documents that were read"):
        cycle.run(executor=executor)
    assert all(executor.gave)
    assert cycle.live() == live
    assert cycle.run().deleted == len(live)
    assert cycle.rows() == expected_rows(cycle.case)


def test_a_task_that_comes_late_writes_nothing(database: Database[Document], file_store: Store) -> None:
    """It was given up, and a later run has archived the same buckets since."""
    cycle = Cycle(database, samples(), file_store).load()
    executor = Elsewhere(Connections(database, open_store(file_store), lambda _policy: cycle.fence))
    late: list[tuple[Any, ...]] = []

    def keep(task: Callable[..., Any], *plain: Any) -> Future[Any]:
        late.append((task, *plain))
        return Future()

    def stop() -> None:
        if late:
            raise InterruptedRun("stop")

    executor.submit = keep  # type: ignore[method-assign]
    with pytest.raises(InterruptedRun):
        cycle.run(executor=executor, check=stop)
    assert cycle.run().deleted == len(cycle.case.documents)
    for document in cycle.case.documents:  # as they were when the task read them
        database[cycle.policy.collection].insert_one(cast(Any, RawBSONDocument(document)))
    task, *plain = late[0]
    with pytest.raises(BucketwiseError, match="another run holds the lease by now"):
        task(executor.connections, *plain)
    assert cycle.rows() == expected_rows(cycle.case)


@pytest.mark.proof
@pytest.mark.parametrize(("bound", "usual"), [("MAX_READINGS", 2000), ("MAX_BYTES", 6000)])
def test_more_memory_makes_larger_commits(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch, bound: str, usual: int
) -> None:
    monkeypatch.setattr("bucketwise.buckets.bson.cursor.MOST_DOCUMENTS", 2)
    monkeypatch.setattr(f"bucketwise.archivers.moving.sweep.{bound}", usual)
    found = []
    for share in (0.5, 1, 100):
        cycle = Cycle(database, slots("second"), file_store).load()
        cycle.run(
            executor=LocalExecutor(Connections(database, cycle.store), memory=int(share * USUAL_MEMORY))
        )
        found.append(len(list(cycle.root.glob("*/meta/manifests/*"))))
        shutil.rmtree(cycle.root)
        cycle.root.mkdir()
        for name in database.list_collection_names():
            database.drop_collection(name)
    assert found[0] > found[1] > found[2]
