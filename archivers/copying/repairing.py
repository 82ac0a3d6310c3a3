"""Puts objects that are damaged or missing in a store back, from one in which they are as they were written.

Verification tells what is damaged, in each store by itself. Only what it names is put back, and only from a
store in which it finds the same object undamaged. So nothing that was deleted comes back, and nothing that
somebody has planted is taken over. A manifest that was missing names files: so it is verified again, until
nothing more is found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.copying.filling import transfer
from bucketwise.archivers.format.names import Commit, day_number, owner_key
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.markers import read_marker
from bucketwise.archivers.mirroring.changes import attributes, catch_up, is_new, standings
from bucketwise.archivers.mirroring.places import copied, first_alone, marker_fault, within
from bucketwise.archivers.records.changes import CopyRecords
from bucketwise.archivers.records.receipts import FIRST as FIRST_PLACE
from bucketwise.archivers.stores.base import Corrupt, NotFound, ObjectStore, StoreError
from bucketwise.archivers.stores.copied import CopiedStore, Copy, put_compared
from bucketwise.archivers.stores.encrypted import EncryptedStore, Keyring, is_keyring, keyring_key
from bucketwise.archivers.verifying.offline import verify_commits, verify_sizes
from bucketwise.archivers.verifying.report import Damage, Piece, VerifyReport
from bucketwise.buckets.fields.times import DAY_MS, TimeRange, as_ms
from bucketwise.config.errors import HaltedError
from bucketwise.rollups.progress import progress_collection

#: The first store, among those of an archive.
FIRST = "the store"
#: Damage that no other store's object mends.
_OF_OTHERS = frozenset({"file-foreign", "archive-not-ours", "hold-missing"})
#: Manifests, then the files that they name, then whatever these still lack.
_MOST_ROUNDS = 5


def verify_everywhere(context: ArchiveContext, limits: TimeRange) -> tuple[VerifyReport, list[Damage]]:
    """Verifies the archive, and then each copy that has all of it, by itself. Returns the report of the
    first, and all damage."""
    report = archive_of(first_alone(context)).verify(limits)
    bad, store = list(report.bad), copied(context)
    complete = {it.name for it in standings(context) if it.behind == 0}
    for copy in store.copies if store else ():
        if copy.name in complete:
            found = archive_of(within(context, copy.store)).verify(limits)
            known = {it.place for it in bad}
            bad += [it for it in found.bad if it.place not in known]
    return report, bad


class Mended(NamedTuple):
    """An object that was put back, or would be. `source`: the name of the copy that has it, or of the first
    store."""

    place: str
    source: str
    code: str


@dataclass
class Repaired:
    """Tells what was put back. `lost`: what is damaged, and undamaged nowhere."""

    objects: list[Mended] = field(default_factory=list)
    lost: list[Damage] = field(default_factory=list)


@dataclass
class Repair:
    """The repair of one policy's archive. `writes`: whether it changes anything. `pieces`: the commits that
    are looked at; None: all, and everything beside them."""

    context: ArchiveContext
    store: CopiedStore
    writes: bool
    pieces: Sequence[Piece] | None = None

    def run(self) -> Repaired:
        """Returns what was put back, or would be. Raises HaltedError where a store is not the one that it
        was, and StoreError."""
        done = Repaired()
        places = {FIRST: Copy(FIRST, self.store.first, required=True)}
        places |= {it.name: it for it in self._filled()}
        self._refill_first(done)
        self._mend_keyrings(places, done)
        bad = {name: self._damage(it.store) for name, it in places.items()}
        for _ in range(_MOST_ROUNDS):
            mended = self._round(places, bad, done)
            if not mended or not self.writes:
                break
            bad |= {name: self._damage(places[name].store) for name in mended}
        done.lost = [it for name, found in bad.items() for it in self._unmended(name, found, done)]
        return done

    def _filled(self) -> Iterator[Copy]:
        """Yields the copies that have been filled, once they are like the first store."""
        named = {it.name: it for it in self.store.copies}
        for it in standings(self.context):
            copy = named[it.name]
            try:
                if it.filled_at is not None and (fault := marker_fault(self.context, copy, is_new=False)):
                    raise fault
                if it.filled_at is not None and (not it.behind or self._caught_up(copy)):
                    yield copy
            except StoreError as error:
                if copy.required:
                    raise
                self.context.progress(f"copy {copy.name} is left out: {error}", 0)

    def _caught_up(self, copy: Copy) -> bool:
        """Brings a copy up to the first store, unless that is gone, or nothing is to be changed."""
        if not self.writes or read_marker(self.store.first) is None:
            return copy.required
        catch_up(self.context, self.store, copy)
        return True

    def _refill_first(self, done: Repaired) -> None:
        """Fills the first store from a copy, where it is new."""
        self.store.first.check_there()
        owner = owner_key(self.context.policy.identity)
        is_there = is_new(self.context) or self.store.first.head(owner) is not None
        if read_marker(self.store.first) is not None and is_there:
            return  # the marker is there as well once another policy's archive was filled
        named, records = {it.name: it for it in self.store.copies}, CopyRecords(self.context.receipts)
        for it in sorted(standings(self.context), key=lambda it: it.behind or 0):
            copy = named[it.name]
            if it.filled_at is not None and marker_fault(self.context, copy, is_new=False) is None:
                done.objects.append(Mended(self.store.first.url, copy.name, "store-empty"))
                if self.writes:
                    first, waiting = (
                        Copy(FIRST, self.store.first, required=True),
                        records.waiting_keys(it.name),
                    )
                    transfer(self.context, copy.store, first, leaving=waiting)
                return
        raise HaltedError(
            f"policy {self.context.policy.name}: {self.store.url} has no marker, and no copy is at hand from "
            "which it could be filled. Nothing was changed. Mount it, or correct store.url"
        )

    def _mend_keyrings(self, places: Mapping[str, Copy], done: Repaired) -> None:
        """Puts the keyring, without which nothing can be verified, back where it is missing or damaged."""
        key, found = keyring_key(self.context.policy.identity), dict[str, bytes | None]()
        for name, place in places.items():
            with suppress(NotFound):
                data = place.store.get_bytes(key)
                found[name] = data if self._opens(data) else None
        sound = [(name, data) for name, data in found.items() if data is not None]
        for name, place in places.items() if sound else ():
            source, data = sound[0]
            if found.get(name) is None:
                done.objects.append(Mended(f"{place.store.url}/{key}", source, "keyring-missing"))
                if self.writes:
                    put_compared(place, key, data)

    def _opens(self, data: bytes) -> bool:
        """Returns whether a keyring can be opened: one that was left out of a `rekey` can't."""
        store = self.context.store
        if not isinstance(store, EncryptedStore) or not store.keys or not is_keyring(data):
            return is_keyring(data)
        try:
            Keyring.read(data, store.keys, "")
        except (Corrupt, HaltedError):
            return False
        return True

    def _damage(self, store: ObjectStore) -> dict[str, Damage]:
        """Returns what is damaged in a store, by key."""
        archive = archive_of(within(self.context, store))
        report = archive.verify() if self.pieces is None else archive.verify_pieces(self.pieces)[0]
        prefix = f"{store.url}/"
        return {
            it.place.removeprefix(prefix): it
            for it in report.bad
            if it.place.startswith(prefix) and it.code not in _OF_OTHERS
        }

    def _round(
        self, places: Mapping[str, Copy], bad: Mapping[str, Mapping[str, Damage]], done: Repaired
    ) -> set[str]:
        """Puts back what is damaged in some store and undamaged in another. Returns the names of those
        stores into which something was put."""
        mended = set()
        for name, found in bad.items():
            for key, damage in found.items():
                self.context.check()
                source = self._source(places, bad, key)
                if source is None:
                    continue
                if self.writes:
                    data = source.store.get_bytes(key)
                    put_compared(places[name], key, data, **attributes(self.context, key))
                    self._note_class(name, key)
                    self.context.spend(1, len(data))
                    self.context.progress("repaired objects", 1)
                done.objects.append(Mended(damage.place, source.name, damage.code))
                mended.add(name)
        return mended

    def _note_class(self, name: str, key: str) -> None:
        """Records that a part is in the class that it is put with, whichever it had moved to: it is read
        again, and moves again."""
        receipts = self.context.receipts
        place = FIRST_PLACE if name == FIRST else f"copy {name}"
        named = {"_id.policy": receipts.policy, "kind": "offline", "parts": key}
        moved = {**named, f"stored.{place}": {"$exists": True}}
        update = {"$unset": {f"stored.{place}": ""}, "$set": {"next_move": self.context.now}}
        receipts.collection.update_many(moved, update)

    def _source(
        self, places: Mapping[str, Copy], bad: Mapping[str, Mapping[str, Damage]], key: str
    ) -> Copy | None:
        """Returns a store in which an object is undamaged; None where there is none."""
        for name, place in places.items():
            if key not in bad[name]:
                try:
                    if place.store.head(key) is not None:
                        return place
                except StoreError:
                    continue
        return None

    def _unmended(self, name: str, found: Mapping[str, Damage], done: Repaired) -> Iterator[Damage]:
        """Yields the damage for which there is no remedy in any store."""
        del name
        mended = {it.place for it in done.objects}
        yield from (it for it in found.values() if self.writes or it.place not in mended)


Document = dict[str, Any]
#: Days within which each commit has its turn.
PERIOD = 30
#: Daily looks that take the whole archive. It is one less than there are days: a look ends where the archive
#: does, and does not begin it again.
_LOOKS = PERIOD - 1
#: Damaged commits that are looked at again each day until they are mended, and by each run of a day; others
#: wait for their turn.
_MOST_AGAIN, _AGAIN_EACH_RUN = 1000, 10


class Share(NamedTuple):
    """UTC days, since 1970, whose commits have their turn, and the day with which the next turn begins."""

    first: int
    last: int
    next: int


def share_of(span: tuple[int, int], begin: int, share: float) -> Share:
    """Returns about that share of a span of days, at least one, from the day `begin` on; from its first day
    where that is no day of the span."""
    first, last = span
    begin = begin if first <= begin <= last else first
    end = begin + max(1, math.ceil((last - first + 1) * share)) - 1
    return Share(begin, min(end, last), end + 1 if end < last else first)


@dataclass(frozen=True)
class _Turns:
    """The day of the last look, the days with which the next ones begin, and the commits in which damage was
    found that nothing has mended."""

    day: int
    sizes: int = 0
    contents: int = 0
    again: tuple[str, ...] = ()

    @classmethod
    def load(cls, context: ArchiveContext) -> Self | None:
        """Returns what is recorded; None before the first look."""
        found = progress_collection(context.database).find_one({"_id": {"scrub": context.policy.identity}})
        if found is None:
            return None
        return cls(found["day"], found["sizes"], found["contents"], tuple(found["again"]))

    def store(self, context: ArchiveContext) -> None:
        """Records it."""
        name = {"scrub": context.policy.identity}
        document = {"_id": name, **vars(self), "again": list(self.again)}
        progress_collection(context.database).replace_one({"_id": name}, document, upsert=True)


@dataclass
class Scrubbed:
    """Tells what was looked at, in the store and its copies together: `parts` by their sizes, `parts_read`
    by their contents. `mended`: what was put back; `lost`: what is damaged, and undamaged nowhere. `damaged`:
    the commits of both, by name."""

    parts: int = 0
    parts_read: int = 0
    mended: list[Mended] = field(default_factory=list)
    lost: list[Damage] = field(default_factory=list)
    damaged: dict[str, Commit] = field(default_factory=dict)

    @property
    def still_damaged(self) -> tuple[str, ...]:
        """Returns the names of the commits that are damaged, unless all of that was mended."""
        return tuple(sorted(self.damaged)) if self.lost else ()


def scrub(context: ArchiveContext) -> Scrubbed | None:
    """Looks at what has its turn today, and at what was damaged; puts back what is damaged where a copy has
    it; needs the lease. Returns None where that was done today and nothing was damaged, or nothing was
    archived before. Raises StoreError."""
    today, turns = as_ms(context.now) // DAY_MS, _Turns.load(context)
    if turns is not None and turns.day == today:
        return _look_again(context, turns) if turns.again else None
    span = context.receipts.span()
    if turns is None or span is None:  # what is archived today was read back today
        _Turns(today).store(context)
        return None
    elapsed = min(max(today - turns.day, 1), _LOOKS)
    sizes = share_of(span, turns.sizes, elapsed / _LOOKS)
    contents = share_of(span, turns.contents, context.policy.audit.sample or 0)
    read = _current(context, turns.again)
    if context.policy.audit.sample is not None:
        read |= _beginning(context, contents)
    found = _mended(context, _look(context, _beginning(context, sizes), read))
    _Turns(today, sizes.next, contents.next, found.still_damaged[:_MOST_AGAIN]).store(context)
    return found


def _look_again(context: ArchiveContext, turns: _Turns) -> Scrubbed:
    """Looks at what was damaged when it had its turn."""
    again, others = turns.again[:_AGAIN_EACH_RUN], turns.again[_AGAIN_EACH_RUN:]
    found = _mended(context, _look(context, {}, _current(context, again)))
    replace(turns, again=(*found.still_damaged, *others)).store(context)
    return found


def _mended(context: ArchiveContext, found: Scrubbed) -> Scrubbed:
    """Returns what was found, once what is damaged was put back where a copy has it."""
    if found.damaged and (store := copied(context)) is not None:
        if not context.binding.state.is_claimed:
            context.binding.check_claim()  # nothing is put where a disk is not mounted
        repaired = Repair(context, store, writes=True, pieces=list(found.damaged.values())).run()
        urls = tuple(f"{it.url}/" for it in store.stores)
        records = [it for it in found.lost if not it.place.startswith(urls)]  # no copy mends these
        found.mended, found.lost = repaired.objects, [*repaired.lost, *records]
    return found


def _beginning(context: ArchiveContext, share: Share) -> dict[str, Commit]:
    """Returns the current commits that begin on these days, by name."""
    near = context.receipts.within(share.first, share.last)
    return {it.name: it for it in near if share.first <= day_number(it.first) <= share.last}


def _current(context: ArchiveContext, names: Sequence[str]) -> dict[str, Commit]:
    """Returns those of these commits that must be there."""
    if not names:
        return {}
    current = context.receipts.current(names)
    return {name: it for name, it in context.receipts.registered(names).items() if name in current}


def _look(context: ArchiveContext, listed: dict[str, Commit], read: dict[str, Commit]) -> Scrubbed:
    """Returns what is found in the store, and in each copy that is up to it. A copy that can't be reached is
    left out, unless it is required."""
    found = _look_at(first_alone(context), listed, read, Scrubbed())
    store, complete = copied(context), {it.name for it in standings(context) if it.behind == 0}
    for copy in (it for it in store.copies if it.name in complete) if store else ():
        try:
            found = _look_at(within(context, copy.store), listed, read, found)
        except StoreError as error:
            if copy.required:
                raise
            context.progress(f"copy {copy.name} is left out: {error}", 0)
    return found


def _look_at(
    place: ArchiveContext, listed: dict[str, Commit], read: dict[str, Commit], found: Scrubbed
) -> Scrubbed:
    """Returns what was found before, with what is found in one place."""
    archive, bad, damaged = place.offline(), list(found.lost), dict(found.damaged)
    parts = {}
    for commits, verify in ((listed, verify_sizes), (read, verify_commits)):
        report, intact = verify(place, archive, list(commits.values()))
        parts[verify] = report.parts
        known = {it.place for it in bad}
        whole = {it.piece.name for it in intact} | {it.commit for it in report.cold}
        bad += [it for it in report.bad if it.place not in known]
        damaged |= {name: it for name, it in commits.items() if name not in whole}
    return Scrubbed(
        found.parts + parts[verify_sizes], found.parts_read + parts[verify_commits], [], bad, damaged
    )
