"""Moves the parts of commits to the storage classes that they are due for.

A commit moves once none of its buckets is live and compaction has looked at it, so that all of it was put in
a class that can be read, read back, and compared. Each part is copied onto itself, which S3 does as a whole
or not at all, and the copy is held against the checksum of what was read back. Once all parts are there, the
receipt says so. A run that dies before that has moved some parts: the next one finds them where they are to
be, compares them, and goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pymongo import UpdateOne
from pymongo.client_session import ClientSession

from bucketwise.archivers.classes.schedule import Schedule, Stored, schedule_of
from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.copying.changes import holders, standings
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.writing import damage_at
from bucketwise.archivers.records.receipts import CODEC, commit_of
from bucketwise.archivers.stores.classes import ClassedStore
from bucketwise.rollups.context import transaction

Document = dict[str, Any]
#: The receipt that says by which schedule the others tell when their parts move.
NAME = "classes"
_AT_ONCE = 1000


@dataclass
class MoveReport:
    """How many commits were moved, with how many parts and bytes of them, by class; and how many are due and
    wait for a copy of the store that lags. A part counts in each store where it was moved."""

    commits: int = 0
    parts: int = 0
    bytes: int = 0
    waiting: int = 0
    classes: Counter[str] = field(default_factory=Counter)  # parts

    def __bool__(self) -> bool:
        return bool(self.commits or self.waiting)


def move_parts(context: ArchiveContext, *, writes: bool) -> MoveReport:
    """Moves the parts of a policy's archive that are due for another storage class. Returns what was done, or
    would be."""
    if not context.has_parts:
        return MoveReport()
    return Mover(context, context.offline(context.keys if writes else None), writes).run()


@dataclass(frozen=True)
class Mover:
    """The moves of one run of one policy. `writes`: moves, and records; else counts what would move."""

    context: ArchiveContext
    archive: OfflineArchive
    writes: bool
    report: MoveReport = field(default_factory=MoveReport)

    def run(self) -> MoveReport:
        """Moves what is due. Raises DamagedError where a part is missing or not what was put there, and
        StoreError where the store can't move it."""
        schedule = schedule_of(self.context)
        if not schedule:
            return self.report
        if self.writes:
            self._note(schedule)
        found = [(it, self._due(schedule, it)) for it in self._candidates()]
        due = [(it, classes) for it, classes in found if classes]
        if self.writes:
            self._postpone(schedule, [it for it, classes in found if not classes])
        has_copy = self._holders()
        for number, (receipt, classes) in enumerate(due, start=1):
            if not has_copy(receipt["_id"]["name"]):
                self.report.waiting += 1
            elif self.writes:
                self._move(schedule, receipt, classes)
                self.context.progress("moved commits", 1, number / len(due))
            else:
                self._count(len(receipt["parts"]), receipt["bytes"], classes)
        return self.report

    def _note(self, schedule: Schedule) -> None:
        """Has all commits looked at again where the schedule is another one than it was."""
        receipts = self.context.receipts
        if (receipts.get(NAME) or {}).get("schedule") == schedule.text:
            return
        receipts.prepare_moves()
        anew: list[Document] = [{"$set": {"next_move": "$last"}}]

        def step(session: ClientSession) -> None:
            receipts.collection.update_many(receipts.is_current, anew, session=session)
            receipts.update(NAME, {"$set": {"kind": NAME, "schedule": schedule.text}}, session)

        transaction(self.context.database, self.context.guard, step)

    def _candidates(self) -> Iterator[Document]:
        """Yields the receipts of commits that may be due: nothing of them is live, compaction has looked at
        them, and they have no tombstone."""
        archive, receipts = self.context.archive, self.context.receipts
        query: Document = {**receipts.is_current, "state": "closed", "tombstone.keep": {"$exists": False}}
        query["next_move"] = {"$lte": self.context.now}
        if archive.compact.after is not None:
            query["compacted"] = True
        fields = dict.fromkeys(("last", "parts", "bytes", "stored", "seal", "sequence"), 1)
        yield from receipts.collection.with_options(codec_options=CODEC).find(query, fields).sort("next_move")

    def _due(self, schedule: Schedule, receipt: Document) -> dict[str, str]:
        return schedule.due(receipt["last"], receipt.get("stored", {}), self.context.now)

    def _postpone(self, schedule: Schedule, early: list[Document]) -> None:
        """Records when these commits are due, which are not yet."""
        receipts, updates = self.context.receipts, list[UpdateOne]()
        for receipt in early:
            due = schedule.next(receipt["last"], receipt.get("stored", {}), self.context.now)
            updates.append(receipts.update_of(receipt["_id"]["name"], _next(due)))
        for at in range(0, len(updates), _AT_ONCE):
            self.context.check()
            receipts.collection.bulk_write(updates[at : at + _AT_ONCE], ordered=False)

    def _holders(self) -> Callable[[str], bool]:
        """Returns a function that says whether each copy of the store has all of a commit: what is cold can't
        be copied."""
        names = {it.name for it in standings(self.context)}
        if not names:
            return lambda _commit: True
        of = holders(self.context)
        return lambda commit: names <= set(of(commit))

    def _move(self, schedule: Schedule, receipt: Document, classes: dict[str, str]) -> None:
        context, commit = self.context, commit_of(receipt)
        assert commit is not None
        manifest = self.archive.manifest(commit)
        context.check()
        context.binding.claim()
        moved = 0
        for place in schedule.places:
            if (named := classes.get(place.name)) is not None:
                assert isinstance(place.store, ClassedStore)
                for part in manifest.parts:
                    context.check()
                    with damage_at(f"{place.store.url}/{part.key}"):
                        place.store.move(part.key, part.bytes, part.sha256, named)
                    moved += part.bytes
        self._record(manifest, schedule, {**receipt.get("stored", {}), **classes}, context.now)
        self._count(len(manifest.parts), moved, classes)

    def _record(self, manifest: Manifest, schedule: Schedule, stored: Stored, now: datetime) -> None:
        update = _next(schedule.next(manifest.last, stored, now))
        update["$set"] = {**update.get("$set", {}), "stored": dict(stored)}

        def step(session: ClientSession) -> None:
            self.context.receipts.update(manifest.commit, update, session)

        transaction(self.context.database, self.context.guard, step)

    def _count(self, parts: int, size: int, classes: dict[str, str]) -> None:
        self.report.commits += 1
        self.report.parts += parts * len(classes)
        self.report.bytes += size
        for named in classes.values():
            self.report.classes[named] += parts


def _next(at: datetime | None) -> Document:
    return {"$unset": {"next_move": ""}} if at is None else {"$set": {"next_move": at}}
