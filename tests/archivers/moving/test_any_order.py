"""Inserts, late upserts, archives, crashes and restores in any order: the readings are those of a ledger."""

from __future__ import annotations

import contextlib
import copy
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pymongo.database import Database

from bucketwise.archivers.restoring.options import Mode, VersionHandling
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, MINUTE, Case, samples, slots
from tests.archivers.faults import Crash, DyingStore, Steps, die_in_transactions
from tests.archivers.harness import Cycle, in_turn, nothing

Document = dict[str, Any]
#: What a bucket holds: minute -> values.
Held = dict[int, list[float]]
HOURS, MINUTES, VALUES = st.integers(0, 3), st.integers(0, 4), st.integers(-9, 9)


def over(older: Held, newer: Held) -> Held:
    """The later version wins."""
    return copy.deepcopy({**older, **newer})


class Slots:
    case = slots("minute")

    @staticmethod
    def upsert(hour: int, minute: int, value: float, born: int) -> tuple[Document, Document]:
        fixed = {"meta": {"symbol": "x"}, "d": DAY0 + timedelta(hours=hour), "born": born}
        return {"_id": f"x_{hour}"}, {"$set": {f"p.{minute}": value}, "$setOnInsert": fixed}

    @staticmethod
    def add(held: Held, minute: int, value: float) -> None:
        held[minute] = [value]

    @staticmethod
    def remove(source: Any, hour: int, minute: int, _values: list[float]) -> None:
        source.update_one({"_id": f"x_{hour}"}, {"$unset": {f"p.{minute}": ""}})

    @staticmethod
    def read(document: Document) -> Held:
        return {int(minute): [value] for minute, value in document["p"].items()}


class Samples:
    case = samples("dates")

    @staticmethod
    def upsert(hour: int, minute: int, value: float, born: int) -> tuple[Document, Document]:
        at = DAY0 + timedelta(hours=hour) + minute * MINUTE
        return {"_id": f"x_{hour}"}, {
            "$push": {"samples": {"val": value, "time": at}},
            "$min": {"first": at},
            "$max": {"last": at},
            "$inc": {"nsamples": 1, "sum": value},
            "$setOnInsert": {"deviceid": 1, "sensorid": 2, "born": born},
        }

    @staticmethod
    def add(held: Held, minute: int, value: float) -> None:
        held.setdefault(minute, []).append(value)

    @staticmethod
    def remove(source: Any, hour: int, minute: int, values: list[float]) -> None:
        at = DAY0 + timedelta(hours=hour) + minute * MINUTE
        total = {"nsamples": -len(values), "sum": -sum(values)}
        source.update_one({"_id": f"x_{hour}"}, {"$pull": {"samples": {"time": at}}, "$inc": total})

    @staticmethod
    def read(document: Document) -> Held:
        found: Held = {}
        for sample in document["samples"]:
            found.setdefault(sample["time"].minute, []).append(sample["val"])
        return found


class Story(RuleBasedStateMachine):
    place: tuple[Database[Document], type[Slots] | type[Samples], bool]

    def __init__(self) -> None:
        super().__init__()
        database, self.model, online = self.place
        for name in database.list_collection_names():
            database.drop_collection(name)
        self.folder = tempfile.TemporaryDirectory()
        base = self.model.case
        case = Case(base.name, base.policy, [], [])
        self.online = online
        store = Store(url=Path(self.folder.name).as_uri())
        self.cycle = Cycle(database, case.online() if online else case, store)
        self.source = database[base.policy.collection]
        self.live: dict[int, Held] = {}
        self.archived: dict[int, Held] = {}
        #: Of which the archive has a copy and a live bucket, be it changed since; or it was deleted, and no
        #: run has seen that yet.
        self.restored: set[int] = set()
        self.back: set[int] = set()  # of these: restored, and not archived again since
        self.superseded: set[tuple[int, int, float]] = set()  # readings that are archived, and count no more
        self.born = 0
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("os.fsync", nothing)
        self.patch.setattr("bucketwise.archivers.writes.MAX_BUCKETS", 2)
        self.patch.setattr("bucketwise.archivers.restoring.settle.MAX_WAITING", 2)

    def teardown(self) -> None:
        try:
            self.cycle.unpin()
            self.run()
            self.check_runs_are_over()
            self.cycle.restore("all", how=VersionHandling(Mode.all))
            assert self.readings_of("all") >= self.superseded
            for mode in (Mode.all, Mode.latest, Mode.merged):
                self.cycle.restore("back", how=VersionHandling(mode))
            assert self.collection("back") >= self.archived.items()
            assert self.online or self.rows_of("back") == self.archived
        finally:
            self.patch.undo()
            self.folder.cleanup()

    def collection(self, name: str) -> Any:
        return self.rows_of(name).items()

    def rows_of(self, name: str) -> dict[int, Held]:
        found = self.cycle.database[name].find({"_id": {"$type": "string"}})
        return {int(it["_id"][2:]): self.model.read(it) for it in found}

    def readings_of(self, name: str) -> set[tuple[int, int, float]]:
        """Of all versions, under whatever `_id`s."""
        return {
            (int((it["_id"]["_id"] if isinstance(it["_id"], dict) else it["_id"])[2:]), minute, value)
            for it in self.cycle.database[name].find()
            for minute, values in self.model.read(it).items()
            for value in values
        }

    @initialize(given=st.lists(st.tuples(HOURS, MINUTES, VALUES), max_size=6))
    def some_are_restored(self, given: list[tuple[int, int, int]]) -> None:
        for it in given:
            self.upsert(*it)
        self.run()
        self.restore_into_the_source(12)

    @rule(hour=HOURS, minute=MINUTES, value=VALUES)
    def upsert(self, hour: int, minute: int, value: int) -> None:
        """Late, where the bucket has gone: the writer knows nothing of archives."""
        self.born += 1  # no two documents are equal: one that was written again as it was is the old one
        self.source.update_one(*self.model.upsert(hour, minute, float(value), self.born), upsert=True)
        self.model.add(self.live.setdefault(hour, {}), minute, float(value))

    @precondition(lambda self: self.restored & self.live.keys())
    @rule(number=st.integers(0, 3), late=st.none() | st.tuples(MINUTES, VALUES))
    def delete(self, number: int, late: tuple[int, int] | None) -> None:
        """Somebody deletes a bucket that is archived too; then a late upsert may make it anew."""
        for hour in sorted(self.restored & self.live.keys())[number : number + 1]:
            self.source.delete_one({"_id": f"x_{hour}"})
            del self.live[hour]
            if late is not None:
                self.upsert(hour, *late)

    @precondition(lambda self: self.restored & self.live.keys())
    @rule(bucket=st.integers(0, 3), number=st.integers(0, 9))
    def take_out(self, bucket: int, number: int) -> None:
        """A reading of a bucket that is archived too was wrong."""
        for hour in sorted(self.restored & self.live.keys())[bucket : bucket + 1]:
            held = self.live[hour]
            if len(held) < 2:
                continue
            minute = sorted(held)[number % len(held)]
            self.model.remove(self.source, hour, minute, held.pop(minute))

    def pinned(self) -> set[int]:
        return {int(it[2:]) for it in self.cycle.database["bucketwise_pins"].distinct("_id.id")}

    @rule()
    def run(self) -> None:
        pinned = self.pinned()
        self.cycle.run()
        self.restored -= self.restored - self.live.keys() - pinned
        for hour in self.live.keys() - pinned:
            self.copied(hour)
            del self.live[hour]
            self.restored.discard(hour)
        self.back &= self.restored

    def copied(self, hour: int) -> None:
        """What is live takes the place of its old copy, and is laid over what had gone."""
        before, held = self.archived.get(hour, {}), self.live[hour]
        if hour in self.restored:
            lacking = {minute for minute in before if len(before[minute]) > len(held.get(minute, []))}
            self.superseded |= {(hour, minute, it) for minute in lacking for it in before[minute]}
        self.archived[hour] = copy.deepcopy(held) if hour in self.restored else over(before, held)

    @rule()
    def wait(self) -> None:
        """A run copies what is not late, and its grace goes on. What was restored from an online archive has
        none: it would go at once where it is as it was."""
        going = self.live.keys() - self.pinned()
        if self.online and going & self.back:
            return
        if going & self.archived.keys() <= self.restored:
            case = self.cycle.case
            self.cycle.case = case.with_archive(grace=timedelta(days=9))
            self.cycle.run()
            self.cycle.case = case
            for hour in going:
                self.copied(hour)
            self.restored |= going

    @rule(die_at=st.integers(1, 60))
    def crash(self, die_at: int) -> None:
        """Two clean runs finish what it left."""
        steps = Steps(die_at)
        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, steps)
            with contextlib.suppress(Crash):
                store = DyingStore(self.cycle.store, steps)
                self.cycle.run(check=lambda: steps.step("check"), store=store)
        self.run()
        self.run()

    @rule(die_at=st.integers(1, 12))
    def restore_into_the_source(self, die_at: int) -> None:
        """What is late and not archived yet is in the way, and stays. Cut off, the next one finishes."""
        free = self.archived.keys() - self.live.keys()
        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, Steps(die_at))
            with contextlib.suppress(Crash, BucketwiseError):
                self.cycle.restore(self.source.name)
        with contextlib.suppress(BucketwiseError):
            self.cycle.restore(self.source.name)
        for hour in free:
            self.live[hour] = copy.deepcopy(self.archived[hour])
            self.restored.add(hour)
            self.back.add(hour)

    @rule()
    def unpin(self) -> None:
        self.cycle.unpin()

    @rule(die_at=st.integers(1, 12))
    def restore_beside(self, die_at: int) -> None:
        """Into a collection that earlier ones were restored to; anew where other buckets took the place of
        what they brought."""
        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, Steps(die_at))
            with contextlib.suppress(Crash, BucketwiseError):
                self.cycle.restore("beside")
        try:
            report = self.cycle.restore("beside")
        except BucketwiseError:
            self.cycle.database.drop_collection("beside")
            report = self.cycle.restore("beside")
        assert self.rows_of("beside") == self.archived
        assert report.buckets == len(self.archived)
        assert report.readings == sum(len(it) for held in self.archived.values() for it in held.values())

    def check_runs_are_over(self) -> None:
        assert self.live == {}
        report = self.cycle.run()
        assert (report.buckets, report.deleted, report.left, report.quarantined_total) == (0, 0, 0, 0)

    @invariant()
    def what_is_live_is_what_was_written(self) -> None:
        assert self.rows_of(self.source.name) == self.live
        if self.online:
            assert self.rows_of(f"{self.source.name}_archive") == self.archived


@pytest.mark.proof
@pytest.mark.parametrize(("model", "online"), in_turn([Slots, Samples], [False, True]))
@pytest.mark.parametrize("examples", [3, pytest.param(100, marks=pytest.mark.proof)])
def test_any_order(database: Database[Document], model: Any, online: bool, examples: int) -> None:
    class Machine(Story):
        pass

    Machine.place = database, model, online
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=12,
            suppress_health_check=list(HealthCheck),
        ),
    )
