"""The world that is explored: a database with snapshots and write conflicts, a store, a clock, and the truth.

All of it is immutable values that attributes refer to, so that a world is copied by copying these. Actors see
it through effects, which happen at once and as a whole; all that lies between two effects of an actor may
happen to it there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from bucketwise.archivers import decisions
from bucketwise.archivers.markers import Deployment
from bucketwise.archivers.records.receipts import COLLECTION as RECEIPTS

HOUR = 3_600_000
DAY = 24 * HOUR
DAYS = (0, 1)
IDS = (1, 2)
#: A reading is a number. Its place in its day is the remainder by this.
PLACES = 1000


class Halt(Exception):
    """A run ends with exit code 5: what it found is not as it was left."""


class Lost(Exception):
    """A run ends with exit code 11: another one has its lease."""


class Paused(Exception):
    """A run ends: somebody has paused its policy."""


class Failed(Exception):
    """A run ends with exit code 1: it is safe to run it again."""


class Doc(NamedTuple):
    """A bucket. `born` tells apart buckets that took one `_id` one after another, `rev` the states of one."""

    id: int
    born: int
    rev: int
    day: int
    readings: frozenset[int]


def end_of(day: int) -> int:
    """Returns the instant at which a day is over: both are before the world begins."""
    return (day - 1) * DAY


class Manifest(NamedTuple):
    """A manifest. `origins`: of each bucket, the number and fence of the commit that it was archived in
    first."""

    commit: str
    sequence: int
    fence: int
    replaces: tuple[str, ...]
    origins: tuple[tuple[int, int], ...]
    created: int
    days: frozenset[int]


class Receipt(NamedTuple):
    """The record of a commit: `open`, `closed`, `replaced` or `dropped`. `live`: which of its buckets may
    be. `left_under`: the lease under which its buckets were taken out of it."""

    state: str
    live: tuple[bool, ...]
    sequence: int
    created: int
    days: frozenset[int]
    replaced_by: str | None = None
    replaced_at: int | None = None
    tombstone: Frozen | None = None
    ended: bool = False  # its time was over
    left_under: int | None = None


class Pin(NamedTuple):
    """A pin: the bucket and its day as summaries hold them, and the day of its copy."""

    seen: Doc
    day: int
    archived: int


class Summary(NamedTuple):
    """The summary of a day: the readings that it counts, and the last change that it has seen."""

    readings: frozenset[int]
    seen: int


class Frozen(dict[Any, Any]):
    """A mapping that is never changed, and has a hash."""

    _hash: int | None = None
    _kinds: dict[Any, dict[Any, Any]] | None = None

    def __hash__(self) -> int:  # type: ignore[override]
        if self._hash is None:
            self._hash = hash(frozenset(self.items()))
        return self._hash

    def but(self, changes: Mapping[Any, Any]) -> Frozen:
        """Returns the mapping with these changes; None removes a key."""
        changed = Frozen(self)
        for key, value in changes.items():
            if value is None:
                changed.pop(key, None)
            else:
                changed[key] = value
        return changed

    def of(self, kind: str) -> dict[Any, Any]:
        """Returns what is under keys of a kind, by the rest of the key, and in its order: equal mappings are
        told alike."""
        if self._kinds is None:
            self._kinds = defaultdict(dict)
            for (name, rest), value in sorted(self.items(), key=itemgetter(0)):
                self._kinds[name][rest] = value
        return self._kinds.get(kind, {})


class Effect(NamedTuple):
    """What an actor is about to do: its name for stories, and what happens then."""

    name: str
    do: Callable[[World], Any]
    put: tuple[Any, Any] | None = None  # a write to the store, which may arrive late, or be lost
    lists: bool = False  # it lists the store, which may tell what was there before its last change
    lease: Any = None  # without which it does nothing
    is_blind: bool = False  # it sees nothing that writers change
    removes: tuple[Any, ...] = ()  # objects of the store
    needs: Any = None  # an object that has to be there, and that a copy of the store may give as well
    is_everywhere: bool = False  # it has to be in each copy of the store

    @property
    def may_fail(self) -> bool:
        """Returns whether it asks the store for what that may fail at."""
        return self.put is not None or self.lists


Program = Generator[Effect, Any, Any]


#: What two databases have in common that have one archive.
SHARED = (
    *("store", "before", "now", "flying", "started", "written"),
    *("owner", "forked", "cloned_at", "cloned_after"),
)


class World:
    """The state of everything but the actors."""

    __slots__ = (
        "archived", "before", "broken", "changes", "cloned_after", "cloned_at", "db", "deployment", "dirty",
        "erased", "erasing", "expired", "flying", "forked", "gone", "has_copy", "lost", "name", "now",
        "owner", "owner_before", "returned", "rolled", "sound", "started", "store", "took_over", "written",
    )  # fmt: skip

    def __init__(self) -> None:
        self.db = Frozen()
        self.store = Frozen()
        self.before = Frozen()  # the store before its last change
        self.now = 0
        self.changes = 0  # of documents
        self.dirty = Frozen()  # day -> the number of its last change
        self.started = 0  # actors so far
        self.flying: tuple[tuple[Any, Any], ...] = ()  # writes to the store that have not arrived
        self.has_copy = False  # the store has one, which is required
        self.deployment = Deployment("it", collections=Frozen({RECEIPTS: "first"}))
        # The truth, which no actor sees:
        self.name = "first"
        self.owner: str | None = (
            None  # the name of the only one that may write to the archive, if there is one
        )
        self.owner_before: str | None = None  # before an adoption that is under way
        self.took_over = False  # an adoption has just ended
        self.cloned_at = -1  # how many readings there were then
        self.cloned_after = 0  # how many actors had started by then
        self.forked: frozenset[tuple[int, int]] = frozenset()  # buckets that changed in one of two databases
        self.written = 0  # readings so far
        self.gone: frozenset[Doc] = frozenset()  # what a run has deleted
        self.archived: frozenset[Doc] = frozenset()  # what was ever part of a registered commit
        self.erasing: frozenset[tuple[int, int]] = frozenset()  # buckets: `_id`, `born`
        self.erased: frozenset[tuple[int, int]] = frozenset()  # of erasures that have ended
        self.expired: frozenset[Doc] = frozenset()  # what was part of a commit that has ended
        self.returned: frozenset[int] = frozenset()  # ids of buckets that somebody put back by hand
        self.rolled: frozenset[int] = frozenset()  # readings that were ever in a summary
        self.lost: frozenset[Any] = frozenset()  # objects that the store or its copy had, and has lost
        self.broken: list[str] = []  # promises
        self.sound: tuple[Any, ...] = (None,) * 5  # what was found to keep them

    def copy(self) -> World:
        """Returns a copy."""
        other = object.__new__(World)
        for name in World.__slots__:
            setattr(other, name, getattr(self, name))
        other.broken = list(self.broken)
        return other

    def key(self) -> tuple[Any, ...]:
        """Returns what is equal for equal worlds."""
        return tuple(getattr(self, name) for name in World.__slots__ if name not in ("broken", "sound"))

    @property
    def docs(self) -> dict[int, Doc]:
        """Returns the live buckets, by their `_id`s."""
        return self.db.of("doc")

    def touch(self, *days: int) -> None:
        """Notes that buckets of these days have changed, as the change stream tells."""
        self.changes += 1
        self.dirty = self.dirty.but(dict.fromkeys(days, self.changes))

    def write(self, changes: Mapping[Any, Any]) -> None:
        """Writes to the database."""
        self._fork(changes)
        self.db = self.db.but(changes)

    def _fork(self, changes: Mapping[Any, Any]) -> None:
        """Notes buckets that are not what they are in the other database any more; among them those that were
        restored here, since they may be live there."""
        if self.cloned_at < 0:
            return
        for key in changes:
            before, after = self.db.get(key), changes[key]
            if key[0] == "doc":
                is_back = any(after in docs for docs in self.store.of("file").values())
                both = (it for it in (before, after) if it is not None)
                self.forked |= {(it.id, it.born) for it in both if is_back or it.born <= self.cloned_at}

    def put(self, key: Any, value: Any) -> None:
        """Writes to the store; a manifest only where there is none."""
        if not (key[0] == "manifest" and key in self.store):
            self.before, self.store = self.store, self.store.but({key: value})
            self.lost -= {key}

    def remove(self, keys: Iterable[Any]) -> None:
        """Removes objects from the store."""
        gone = dict.fromkeys(keys)
        self.before, self.store = self.store, self.store.but(gone)
        self.lost = self.lost.difference(gone)

    def lose(self, key: Any) -> None:
        """Has the store, or its copy, lose an object."""
        self.remove([key])
        self.lost |= {key}

    @property
    def readable(self) -> Frozen:
        """Returns the store as readers find it: what it has lost, a copy gives."""
        there = {key: self.store.get(in_copy(key)) for key in self.lost if not is_in_copy(key)}
        return self.store.but(there) if there else self.store

    def commit(self, before: Frozen, changes: Mapping[Any, Any], *, is_erasure: bool = False) -> bool:
        """Commits a transaction that saw `before`. Returns whether it could: nothing that it writes has
        changed since."""
        if any(self.db.get(key) != before.get(key) for key in changes):
            return False
        for (kind, name), value in changes.items():
            if kind == "receipt" and value.ended and not self.db[kind, name].ended:
                docs, kept = self.store.get(("file", name), ()), [*self._kept_with(name)]
                self._check_over((*docs, *kept))
                self._end(docs, kept)
            elif kind == "into" and value is None and _is_counted_as_ended(self.db, changes):
                docs = self.db[kind, name]
                self._check_over(docs)  # versions that no longer count go with their bucket
                self._end(docs, self.db.get(("version", name), ()))
        removed = [self.db[key] for key, value in changes.items() if key[0] == "doc" and value is None]
        self.db = self.db.but(changes)
        for doc in removed:  # the change stream leaves these out
            if not is_erasure:
                self._check_deleted(doc)
        added = [value for key, value in changes.items() if key[0] == "doc" and value is not None]
        self._fork({key: value for key, value in changes.items() if value is not None})
        for doc in added:
            self.touch(doc.day)
        self.gone -= frozenset(added)
        for kind, name in changes:
            if kind in ("into", "merging"):
                self.archived |= in_archive(self.db)
            elif kind == "receipt" and changes[kind, name].state in ("open", "closed"):
                self.archived |= frozenset(self.readable.get(("file", name), ()))
            elif kind == "summary":
                self.rolled |= changes[kind, name].readings
        if ("online", 0) in self.db:
            self._forget_what_is_live()
        return True

    def _forget_what_is_live(self) -> None:
        """Notes that a copy may go where a live bucket contains it."""
        live = self.docs
        self.archived = frozenset(
            it
            for it in self.archived
            if it.id not in live or live[it.id].born != it.born or not it.readings <= live[it.id].readings
        )

    def erase(self, identity: int) -> None:
        """Notes that all that was written so far under an `_id` is to go."""
        self.erasing |= {(identity, born) for born in range(self.written + 1)}
        self.gone = frozenset(it for it in self.gone if it.id != identity)

    def end_erasure(self) -> None:
        """Notes that it is gone."""
        self.erased |= self.erasing

    def own(self, *, takes_over: bool = False) -> None:
        """Notes that this database may write to the archive, and no other from now on."""
        if not takes_over and self.owner not in (None, self.name):
            self.broken.append(f"two own the archive: the {self.name} as well as the {self.owner}")
        if self.owner != self.name:
            self.owner_before, self.owner = self.owner, self.name
        if takes_over:  # what the other one has merged goes where this one knows of no merge
            self._forget_what_is_live()

    def clone(self, *, is_told_apart: bool) -> World:
        """Returns a copy of the database that has the same store. `is_told_apart`: by what MongoDB says, as
        one is that was restored from a dump."""
        other = self.copy()
        other.name, self.owner, other.owner = "clone", None, None
        self.cloned_at = other.cloned_at = self.written
        self.cloned_after = other.cloned_after = self.started
        if is_told_apart:
            other.deployment = Deployment("it", collections=Frozen({RECEIPTS: "restored"}))
        return other

    @property
    def is_adopting(self) -> bool:
        """Returns whether an adoption has begun, and not ended."""
        record = self.db.get(("binding", 0))
        return record is not None and record.adopting is not None

    def share(self, other: World) -> None:
        """Has another database see what has become of the store and the time."""
        for name in SHARED:
            setattr(other, name, getattr(self, name))

    def take_over(self, other: World) -> None:
        """Notes that the archive was taken over: whatever runs on the other database have archived counts
        here, unless it is live here."""
        live = {(it.id, it.born) for it in self.docs.values()} | self.forked
        theirs = frozenset(it for it in other.gone if (it.id, it.born) not in live)
        if self.owner_before == other.name:
            self.gone, self.archived = theirs, other.archived
        else:
            mine = {(it.id, it.born) for it in self.gone}
            self.gone |= frozenset(it for it in theirs if (it.id, it.born) not in mine)
        self.erasing |= other.erasing
        self.expired |= other.expired
        self.owner_before, self.took_over = self.name, False
        self._forget_what_is_live()

    def _check_over(self, docs: Iterable[Doc]) -> None:
        """Holds an end against the time of buckets. Clocks may be an hour ahead."""
        for doc in docs:
            if end_of(doc.day) > self.now + HOUR - 2 * DAY:
                self.broken.append(f"ended before its time: {shown(doc)}")

    def _end(self, docs: Iterable[Doc], kept: Iterable[Doc]) -> None:
        """Holds the end of buckets, and of what was kept beside them, against what may end."""
        self.gone -= frozenset(docs)
        self.expired |= {*docs, *kept}
        for doc in (*docs, *kept):
            if any(doc.day in days for days in self.db.of("hold").values()):
                self.broken.append(f"ended though it is held: {shown(doc)}")
        live = self.docs
        for doc in docs:
            if doc.id in live and live[doc.id].born == doc.born and doc.id not in self.returned:
                self.broken.append(f"ended though it is live: {shown(doc)}")

    def _kept_with(self, name: str) -> Iterator[Doc]:
        """Yields what was kept of a commit and of those that it took over."""
        found = self.store.get(("manifest", name)) or self.store.get(("link", name))
        for (kind, key), docs in self.store.items():
            if kind == "kept" and key.startswith(f"{name}."):
                yield from docs
        for it in found.replaces if found else ():
            yield from self._kept_with(it)

    def _check_deleted(self, doc: Doc) -> None:
        """Holds a delete against the second and the fourth promise."""
        if (doc.id, doc.born) not in self.erasing:
            self.gone |= {doc}
        if any(doc.day in days for days in self.db.of("hold").values()):
            self.broken.append(f"deleted though it is held: {shown(doc)}")
        if doc not in self.db.get(("into", doc.id), ()) and not any(doc in it for _, it in self.registered()):
            self.broken.append(f"deleted without a copy: {shown(doc)}")
        if self.has_copy and not self._is_in_copy(doc):
            self.broken.append(f"deleted before the copy had it: {shown(doc)}")
        if not doc.readings <= self.rolled and not has_ended(doc.day, self.db):
            self.broken.append(f"deleted before its windows were rolled up: {shown(doc)}")

    def _is_in_copy(self, doc: Doc) -> bool:
        """Returns whether the copy of the store has a bucket, but for what it has lost."""
        there = self.store.keys() | self.lost
        names = [name for name, docs in self.registered() if doc in docs]
        return any({("copy manifest", it), ("copy file", it)} <= there for it in names)

    def registered(self) -> Iterator[tuple[str, tuple[Doc, ...]]]:
        """Yields the commits that are read, and what they hold, as far as it is there."""
        for name, receipt in self.db.of("receipt").items():
            if receipt.state in ("open", "closed") and ("manifest", name) in self.readable:
                yield name, self.readable.get(("file", name), ())


def in_copy(key: tuple[str, Any]) -> tuple[str, Any]:
    """Returns the key under which the copy of the store has an object."""
    return f"copy {key[0]}", key[1]


def is_in_copy(key: tuple[str, Any]) -> bool:
    """Returns whether an object is in the copy of the store."""
    return key[0].startswith("copy ")


def shown(doc: Doc) -> str:
    """Returns a bucket as stories show it."""
    readings = ",".join(map(str, sorted(doc.readings)))
    return f"{doc.id} (state {doc.rev}, day {doc.day}, readings {readings})"


def in_archive(db: Frozen) -> frozenset[Doc]:
    """Returns all buckets that an online archive has, and those that are kept beside it."""
    beside = (it for kind in ("into", "version") for docs in db.of(kind).values() for it in docs)
    return frozenset([*(it.doc for it in db.of("merging").values()), *beside])


def has_ended(day: int, db: Frozen) -> bool:
    """Returns whether archived readings of a day may have gone for good: this is noted before they go."""
    return ("ended", 0) in db and end_of(day) <= db["ended", 0]


def _is_counted_as_ended(db: Frozen, changes: Mapping[Any, Any]) -> bool:
    """Returns whether a tombstone counts what goes in this transaction."""
    under = [(key, it) for key, it in changes.items() if key[0] == "tombstone" and it is not None]
    return any(it.get("expired", 0) != db[key].get("expired", 0) for key, it in under)


def last_day(docs: Iterable[Doc]) -> int:
    """Returns the day on which a bucket ends. `docs`: the versions that are merged in it."""
    return max(it.day for it in docs)


def place_of(reading: int) -> int:
    """Returns the place of a reading in its day: of two of a bucket that have the same, the later counts."""
    return reading % PLACES


def hides(late: Doc, docs: Iterable[Doc]) -> bool:
    """Returns whether a later version of a bucket has a reading at the place of one of these."""
    earlier = {place_of(number) for it in docs if it.day == late.day for number in it.readings}
    return any(place_of(number) in earlier for number in late.readings)


def readings_on(day: int, found: Iterable[Sequence[Doc]]) -> frozenset[int]:
    """Returns the readings of a day that count. `found`: the versions of each bucket, the latest last."""
    counted = set[int]()
    for versions in found:
        there = (number for it in versions if it.day == day for number in it.readings)
        counted.update({place_of(number): number for number in there}.values())
    return frozenset(counted)


def counting_online(db: Frozen) -> list[tuple[Doc, ...]]:
    """Returns all buckets that count, live and archived in an online archive, each with its versions."""
    live, found = db.of("doc"), db.of("into")
    units = [docs[0] if len(docs) == 1 else docs for docs in found.values()]
    may_be_live = [("copied", name) in db for name in found]
    archived = list(found.values())
    indices = decisions.counting(list(zip(found, units, strict=True)), may_be_live, live)
    return [*((it,) for it in live.values()), *(archived[i] for i in indices)]


def counting(db: Frozen, store: Frozen) -> list[tuple[Doc, ...]]:
    """Returns all buckets that count, live and archived, as readers find them, each with the versions that
    are merged in it. One that counts twice is there twice."""
    if ("online", 0) in db:
        return counting_online(db)
    live = db.of("doc")
    found: list[tuple[Doc, ...]] = [(it,) for it in live.values()]
    receipts = {name: it for name, it in db.of("receipt").items() if it.state in ("open", "closed")}
    named = [store[key] for key in (("manifest", name) for name in receipts) if key in store]
    for manifest in decisions.standing(named, named):
        docs = store.get(("file", manifest.commit), ())
        receipt = receipts[manifest.commit]
        indices = decisions.counting([(it.id, it) for it in docs], receipt.live, live)
        found += [(docs[i],) for i in indices]
    return found
