"""Reads a collection, writes it in another model, and compares the two reading by reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import BulkWriteError
from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.buckets.inferring.guess import Guess
from bucketwise.buckets.models.series import SeriesTable
from bucketwise.buckets.source import Source
from bucketwise.buckets.writing import (
    DocumentWriter,
    Losses,
    Target,
    misfits,
    readings_in,
    stretches,
    target_of,
)
from bucketwise.config.errors import BucketwiseError, LeaseLostError, UsageError
from bucketwise.config.written import layout_fingerprint
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.drafts import draft_policy, policy_names, policy_text
from bucketwise.jobs.core.lease import Lease
from bucketwise.jobs.core.subject import Subject, subject_of
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.tables import counted
from bucketwise.jobs.output.text import printable
from bucketwise.rollups.context import majority

Document = dict[str, Any]

COLLECTION = "bucketwise_remodel"


class RemodelState(NamedTuple):
    """How many documents are known to be written, and whether the target was found equal to its source."""

    documents: int
    done: bool


@dataclass(frozen=True)
class RemodelRecord:
    """The record of one rewrite: which collection is written from which."""

    database: Database[Document]
    into: str
    task: Document  # source, model, and what tells the policy that reads the source

    @property
    def _marks(self) -> Collection[Document]:
        return self.database.get_collection(COLLECTION, write_concern=majority(self.database))

    def check(self) -> RemodelState | None:
        """Returns the state of the rewrite; None if there is no target yet. Raises UsageError if the
        target was not begun by this same rewrite."""
        known = self._target()
        if known is None:
            return None
        found = self._marks.find_one({"_id": self.into})
        if found is None:
            raise self._not_own()
        other = [key for key, it in self.task.items() if found["task"].get(key) != it]
        if other:
            raise UsageError(
                f"--into {self.into}: it was started with another {' and '.join(other)}. Give the same, or "
                "drop it to start again"
            )
        # A run that was cut off right after it had created the target left it empty.
        if found.get("target") != known and (found.get("target") or self.database[self.into].find_one()):
            raise self._not_own()
        return RemodelState(int(found["documents"]), bool(found["done"]))

    def _not_own(self) -> UsageError:
        return UsageError(f"--into {self.into}: this collection already exists. Name a new one")

    def _target(self) -> str | None:
        """Returns what tells the target from another collection of its name; None where there is none. The
        UUID of a native time-series collection is that of its buckets; a view has none."""
        named = {"name": {"$in": [self.into, f"system.buckets.{self.into}"]}}
        found = list(self.database.list_collections(filter=named))
        return next((str(it["info"]["uuid"]) for it in found if "uuid" in it["info"]), "" if found else None)

    def begin(self) -> None:
        """Records the rewrite before the target is created."""
        mark = {"task": self.task, "documents": 0, "done": False}
        self._marks.replace_one({"_id": self.into}, mark, upsert=True)

    def made(self) -> None:
        """Records the identity of the target."""
        self._marks.update_one({"_id": self.into}, {"$set": {"target": self._target()}})

    def set(self, documents: int, *, done: bool = False) -> None:
        """Records the state of the rewrite, unless another run has taken the lease and come further."""
        behind = {"_id": self.into, "documents": {"$lte": documents}}
        self._marks.update_one(behind, {"$set": {"documents": documents, "done": done}})


_MOST_MS = 60_000


@dataclass
class Survey:
    """The result of a look at all readings."""

    readings: int = 0
    is_whole_minutes: bool = True
    losses: Losses = field(default_factory=Losses)

    @property
    def uncarried(self) -> dict[str, int]:
        """Returns the readings and buckets that the target can't carry: what, how many."""
        return self.losses.by_reason()

    @property
    def left_out(self) -> dict[str, int]:
        """Returns the fields that no reading has: name, in how many documents they were met at most."""
        return dict(sorted(self.losses.fields.items()))


@dataclass
class Remodel:
    """One collection and what it is to become. `checks` raise where to stop."""

    subject: Subject
    model: str
    into: str
    checks: list[Callable[[], None]]
    progress: ProgressDisplay
    survey: Survey = field(default_factory=Survey)
    documents: int = 0

    def __post_init__(self) -> None:
        self._table = SeriesTable()

    @cached_property
    def bookmark(self) -> RemodelRecord:
        """Returns where it is written down how far this has come."""
        policy = self.subject.policy
        task = {"source": policy.collection, "model": self.model, "policy": layout_fingerprint(policy)}
        return RemodelRecord(self.subject.database, self.into, task)

    @cached_property
    def target(self) -> Target:
        """Returns the documents to write; known once all readings were looked at."""
        whole = self.survey.is_whole_minutes
        return target_of(self.model, self.subject.policy, self.into, is_whole_minutes=whole)

    @property
    def _target(self) -> Collection[Document]:
        database = self.subject.database
        return database.get_collection(self.into, write_concern=majority(database))

    def check(self) -> None:
        """Raises where to stop."""
        for check in self.checks:
            check()

    def look(self) -> None:
        """Reads all readings, and notes what the target model can't hold."""
        survey, source = self.survey, self.subject.source
        strictest = target_of(self.model, self.subject.policy, self.into, is_whole_minutes=False)
        source.look_at_texts()
        for batch in source.untimed():
            survey.losses.readings["buckets without a usable time"] += len(batch)
        for stretch in stretches(source, self._table, survey.losses, self.check):
            survey.readings += len(stretch.exact)
            survey.is_whole_minutes &= not (stretch.exact.time % _MOST_MS).any()
            for what, count in misfits(strictest, stretch.exact):
                survey.losses.readings[what] += count
            self.progress("readings", len(stretch.exact))

    def write(self, *, is_begun: bool) -> None:
        """Writes what is not there yet: the first `documents` are. `is_begun`: the target exists."""
        if not is_begun:
            self.bookmark.begin()
            self.subject.database.create_collection(self.into, **self.target.options)
        self.bookmark.made()
        for keys in self.target.model.indexes:
            self._target.create_index(keys)
        documents, at = self._documents(), self.documents
        for _ in islice(documents, at):
            pass
        while some := list(islice(documents, self.target.write_batch_size)):
            self.check()
            present = set()
            if is_begun and at == self.documents:  # some may be there, of the last that was written
                there = self._target.find({"_id": {"$in": [it["_id"] for it in some]}}, {"_id": 1})
                present = {it["_id"] for it in there}
            if new := [it for it in some if it["_id"] not in present]:
                self._insert(new)
            at += len(some)
            self.bookmark.set(at)
            self.progress("documents", len(some))
        self.documents = at

    def _insert(self, documents: list[Document]) -> None:
        """If this run fell asleep before and lost its lease, another has written these. MongoDB then refuses
        their `_id`s, but takes them once more in a native time series."""
        try:
            self._target.insert_many(documents, ordered=False)
        except BulkWriteError:
            self.check()
            raise
        if not self.target.model.keeps_ids_unique:
            try:
                self.check()
            except LeaseLostError as error:
                raise LeaseLostError(
                    f"{error}. What it wrote last may be in {self.into} twice: running again compares, and "
                    "tells"
                ) from error

    def _documents(self) -> Iterator[Document]:
        writer = DocumentWriter(self.target, self._table.series)
        last = None
        for stretch in stretches(self.subject.source, self._table, Losses(), self.check):
            yield from writer.add(stretch.exact, stretch.end)
            last = stretch.exact
        if last is not None:
            yield from writer.add(last.take(slice(0)), None)

    def differing(self) -> int:
        """Reads both sides, whatever the time, and returns how many readings differ at least in series, time,
        type or bits; those that the target has no place for are among them."""
        source, written = self.subject.source, Source(self.subject.database, self.target.policy)
        came_in, losses = Losses(), Losses()
        wrong = read = 0
        at = FIRST_MS
        for stretch in stretches(source, self._table, came_in, self.check):
            exact = stretch.exact
            again = readings_in(written, at, stretch.end, self._table, losses, len(exact))
            wrong += 1 if again is None else exact.differing(again)
            wrong += sum(count for _, count in misfits(self.target, exact))
            read += len(exact)
            at = stretch.end
            self.progress("readings", len(exact))
        wrong += readings_in(written, at, LAST_MS + 1, self._table, losses, 0) is None
        if losses.by_reason():
            raise BucketwiseError(
                f"{self.into}: what was written can't be read again: {_listed(losses.by_reason())}. The "
                f"source was only read; drop {self.into}"
            )
        wrong += sum(came_in.by_reason().values()) + sum(map(len, source.untimed()))
        there = self._target.count_documents({})
        return wrong or abs(there - self.documents) + abs(read - self.survey.readings)


def _listed(counts: dict[str, int]) -> str:
    """Returns counts in a line."""
    return "; ".join(f"{count:,} {what}" for what, count in counts.items())


LEFT_SOMETHING, FAILED, REFUSED = 3, 1, 2


def remodel_collection(call: Call, name: str, model: str, into: str, *, dry_run: bool) -> Report:
    """Rewrites a collection as another model. Raises UsageError, LeaseHeldError."""
    with call.database() as database:
        subject = subject_of(call, database, name)
        task = Remodel(subject, model, into, [call.stop.check], call.progress)
        task.bookmark.check()
        with task.progress.step(f"looking through {name}"):
            task.look()
        policy = _policy(task, database.list_collection_names())
        if dry_run or task.survey.uncarried:
            return _report(call, task, policy, differing=None)
        with Lease(database, f"remodel {into}") as lease:
            done = task.bookmark.check()
            task.checks = [call.stop.check, lease.check]
            task.documents = done.documents if done else 0
            if done is None or not done.done:
                with task.progress.step(f"writing {into}"):
                    task.write(is_begun=done is not None)
            with task.progress.step(f"comparing {into} with {name}"):
                differing = task.differing()
            if not differing:
                task.bookmark.set(task.documents, done=True)
        return _report(call, task, policy, differing)


def _policy(task: Remodel, taken: list[str]) -> str:
    """Returns the policy for what is written, as text; a comment says why there is none."""
    name = policy_names([task.into])[task.into]
    found = Guess(task.into, task.target.policy.model_copy(update={"name": name}))
    made = draft_policy(found, task.subject.database.name, taken)
    return policy_text(made) if made.policy else "".join(f"# {it}\n" for it in made.reasons)


def _report(call: Call, task: Remodel, policy: str, differing: int | None) -> Report:
    survey = task.survey
    body = {
        "collection": task.subject.policy.collection,
        "model": task.model,
        "into": task.into,
        "documents": task.documents,
        "readings": survey.readings,
        "equal": differing == 0,
        "left_out": survey.left_out,
        "uncarried": survey.uncarried,
        "policy": policy,
    }
    code = LEFT_SOMETHING if survey.left_out and differing == 0 else 0
    error = _complaint(task, differing)
    if error is not None:
        code = FAILED if differing else REFUSED
    return Report(call.command, call.now, [], _shown(body, differing), error, code, body)


def _complaint(task: Remodel, differing: int | None) -> str | None:
    """Returns what kept the readings from being written, or from being the same."""
    if task.survey.uncarried:
        return (
            f"nothing was written: {task.model} has no place for {_listed(task.survey.uncarried)}. Correct "
            "or remove these in the source, or name another model with --to"
        )
    if differing:
        return (
            f"{task.into}: at least {differing:,} readings differ from "
            f"{task.subject.policy.collection}, which was only read. If it was written to since, stop "
            f"that, drop {task.into} and run again"
        )
    return None


def _shown(body: dict[str, Any], differing: int | None) -> list[RenderableType]:
    lines = []
    if body["left_out"]:
        named = ", ".join(f"{name} (in {count:,} documents)" for name, count in body["left_out"].items())
        lines.append(f"Left out, for {body['model']} has no place for it: {named}")
    readings = counted(body["readings"], "reading")
    if differing is None:
        done = f"{readings} looked at. Nothing was written"
    else:
        like = "equal to the source, reading by reading" if body["equal"] else "not equal to the source"
        done = f"{body['into']}: {counted(body['documents'], 'document')} with {readings}, {like}"
    return [*(Text(printable(it)) for it in lines), Text(body["policy"]), Text(printable(done))]
