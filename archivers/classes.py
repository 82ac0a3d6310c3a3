"""Moves the parts of commits to the storage classes that they are due for.

A commit moves once none of its buckets is live and compaction has looked at it, so that all of it was put in
a class that can be read, read back, and compared. Each part is copied onto itself, which S3 does as a whole
or not at all, and the copy is held against the checksum of what was read back. Once all parts are there, the
receipt says so. A run that dies before that has moved some parts: the next one finds them where they are to
be, compares them, and goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pymongo import UpdateOne
from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import DamagedError, Manifest, Part
from bucketwise.archivers.format.writing import damage_at
from bucketwise.archivers.mirroring.changes import holders, standings
from bucketwise.archivers.records.receipts import CODEC, FIRST, commit_of
from bucketwise.archivers.stores.base import NotFound, ObjectStore
from bucketwise.archivers.stores.classes import FOR_GOOD, THAW_HOURS, ClassedStore, Standing, Tier
from bucketwise.archivers.stores.copied import copies_of
from bucketwise.archivers.stores.encrypted import EncryptedStore
from bucketwise.buckets.fields.times import TimeRange, later
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Archive
from bucketwise.config.tables import COLD
from bucketwise.config.times import format_duration
from bucketwise.rollups.context import transaction

#: The classes in which the parts of a commit are, by the name of the place.
Stored = Mapping[str, str]


class Place(NamedTuple):
    """A store that an archive lies in. `first_class`: with which parts are put there; `moves`: to which
    classes they move, and how old their readings are then, in that order. `required`: nothing counts before
    it is there as well."""

    name: str
    store: ObjectStore
    first_class: str | None
    moves: Mapping[str, timedelta]
    required: bool


def places_of(context: ArchiveContext) -> Iterator[Place]:
    """Yields the store of the policy's archive as it lies, and its copies."""
    if context.policy.has_parts and context.store is not None:
        yield from placed(context.store, context.policy.archive)


def placed(store: ObjectStore, archive: Archive | None) -> Iterator[Place]:
    """Yields a store as it lies, and its copies, as places of an archive; None: of one without parts."""
    copied, inner = copies_of(store), store.inner if isinstance(store, EncryptedStore) else store
    yield _place(FIRST, copied.first if copied else inner, archive)
    for copy in copied.copies if copied else ():
        there = archive
        if archive is not None and copy.storage_class is not None:
            own = {"storage_class": copy.storage_class, "storage_classes": ()}
            there = archive.model_copy(update=own)
        yield _place(f"copy {copy.name}", copy.store, there, required=copy.required)


def _place(name: str, store: ObjectStore, archive: Archive | None, *, required: bool = True) -> Place:
    if archive is None or not isinstance(store, ClassedStore):
        return Place(name, store, None, {}, required)
    return Place(name, store, archive.first_class, archive.moves, required)


@dataclass(frozen=True)
class Schedule:
    """When parts move, in all places of an archive."""

    places: tuple[Place, ...]

    def __bool__(self) -> bool:
        return any(it.moves for it in self.places)

    @property
    def text(self) -> str:
        """Returns all that it says, as it is recorded."""
        said = (
            f"{it.name}: {', '.join(f'{named} {format_duration(at)}' for named, at in it.moves.items())}"
            for it in self.places
            if it.moves
        )
        return "; ".join(said)

    def due(self, last: datetime, stored: Stored, now: datetime) -> dict[str, str]:
        """Returns the classes that the parts of a commit are due for and not in, by place. `last`: its last
        reading."""
        found = {}
        for place in self.places:
            there = stored.get(place.name)
            past = [named for named, age in place.moves.items() if later(last, age) <= now]
            if past and past[-1] != there and there not in COLD:
                found[place.name] = past[-1]
        return found

    def next(self, last: datetime, stored: Stored, now: datetime) -> datetime | None:
        """Returns when the next move of a commit's parts is due, after those that are due now; None: they
        stay."""
        waiting = [
            later(last, age)
            for place in self.places
            if stored.get(place.name) not in COLD
            for age in place.moves.values()
            if later(last, age) > now
        ]
        return min(waiting, default=None)


#: How an object lies in a store without classes.
_AT_HAND = Standing("", is_readable=True, is_thawing=False)
_TRIES = 3


@dataclass(frozen=True)
class ThawOptions:
    """What to thaw: the commits that touch a range, and may hold any of these series; for how many days, and
    how soon. `skip_damaged`: parts that are missing are left out."""

    within: TimeRange
    days: int
    tier: Tier = "standard"
    series: Mapping[str, str] = field(default_factory=dict)
    skip_damaged: bool = False


@dataclass
class ThawReport:
    """Counts parts: how many there are, of which commits; how many were asked for now, wait since an earlier
    call, and can be read. `ready_at`: when S3 will have thawed the last of them, at the latest; None where
    all can be read. `classes`: the cold ones, by class, and `bytes` of these."""

    commits: int = 0
    parts: int = 0
    asked: int = 0
    waiting: int = 0
    ready: int = 0
    bytes: int = 0
    ready_at: datetime | None = None
    classes: Counter[str] = field(default_factory=Counter)

    @property
    def is_ready(self) -> bool:
        """Returns whether all parts can be read."""
        return self.ready == self.parts


def thaw(context: ArchiveContext, options: ThawOptions) -> ThawReport:
    """Asks for the cold parts of all commits that are meant, unless one of the store's copies can give
    them now; what the first store has lost is asked for in a copy. Returns how they lie. Raises
    UsageError where the class does not know the tier, DamagedError where a part is missing, and StoreError.

    It needs no lease. Where a run replaces a commit meanwhile, a part is missing; then it looks again, and
    finds what took its place."""
    asked = set[str]()
    for left in reversed(range(_TRIES)):
        try:
            return _look(context, options, asked) if context.has_parts else ThawReport()
        except DamagedError:
            if not left:
                raise
    raise AssertionError("unreachable")


class _Request(NamedTuple):
    """A part to ask a store for, and how it lies there."""

    part: Part
    place: Place
    found: Standing

    def check(self, tier: Tier) -> None:
        """Raises UsageError where the class does not know the tier."""
        known = THAW_HOURS.get(self.found.storage_class, {})
        if tier not in known:
            raise UsageError(
                f"--tier {tier}: class {self.found.storage_class} has no such tier: "
                f"write {' or '.join(known)}"
            )

    def send(self, options: ThawOptions) -> None:
        """Asks for the part. Raises DamagedError where it is missing by now."""
        assert isinstance(self.place.store, ClassedStore)
        days = None if self.found.storage_class in FOR_GOOD else options.days
        with damage_at(f"{self.place.store.url}/{self.part.key}"):
            self.place.store.thaw(self.part.key, days, options.tier)


def _look(context: ArchiveContext, options: ThawOptions, asked: set[str]) -> ThawReport:
    """Looks at all parts, then asks for those that are cold. `asked`: the keys of those that this call has
    asked for."""
    report, requests = ThawReport(), list[_Request]()
    places = list(places_of(context))
    within = options.within
    touching = context.offline().manifests(within.start_ms, within.end_ms)
    manifests = [it for it in touching if it.may_hold(context.policy, options.series)]
    for number, manifest in enumerate(manifests, start=1):
        report.commits += 1
        before = report.ready
        for part in manifest.parts:
            context.check()
            with _skipping(options):
                requests += _to_ask(part, places, report, asked)
        context.progress("parts that can be read", report.ready - before, number / len(manifests))
    for it in requests:
        it.check(options.tier)
    for it in requests:
        context.check()
        with _skipping(options):
            it.send(options)
            asked.add(it.part.key)
            report.asked += 1
    if report.asked or report.waiting:
        hours = max(THAW_HOURS[it].get(options.tier, 0) for it in report.classes)
        report.ready_at = later(context.now, timedelta(hours=hours))
    return report


@contextmanager
def _skipping(options: ThawOptions) -> Iterator[None]:
    """Passes over a part that is missing, where that is asked for."""
    try:
        yield
    except DamagedError:
        if not options.skip_damaged:
            raise


def _readable(part: Part, places: list[Place]) -> tuple[Place, Standing, bool]:
    """Returns the first store that has a part, how it lies there, and whether that store, or else another,
    can give it now. Raises DamagedError where none has it."""
    held = [(it, found) for it in places[:1] if (found := _standing(it, part)) is not None]
    if not held or not held[0][1].is_readable:
        held += [(it, found) for it in places[1:] if (found := _standing(it, part)) is not None]
    if not held:
        with damage_at(f"{places[0].store.url}/{part.key}"):
            raise NotFound("thaw", f"{places[0].store.url}/{part.key}", "no such object")
    return *held[0], any(found.is_readable for _, found in held)


def _standing(place: Place, part: Part) -> Standing | None:
    """Returns how a part lies in a store; None where it is not there."""
    if isinstance(place.store, ClassedStore):
        try:
            return place.store.standing(part.key)
        except NotFound:
            return None
    return None if place.store.head(part.key) is None else _AT_HAND


def _to_ask(part: Part, places: list[Place], report: ThawReport, asked: set[str]) -> Iterator[_Request]:
    """Counts a part, and yields the request for it where it has to be asked for."""
    place, found, is_readable = _readable(part, places)
    report.parts += 1
    if found.storage_class in THAW_HOURS:
        report.classes[found.storage_class] += 1
        report.bytes += part.bytes
    if is_readable:
        report.ready += 1
    elif part.key in asked:
        report.asked += 1
    elif found.is_thawing:
        report.waiting += 1
    else:
        yield _Request(part, place, found)


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
        schedule = Schedule(tuple(places_of(self.context)))
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
        manifest = self.archive.current(commit)
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
