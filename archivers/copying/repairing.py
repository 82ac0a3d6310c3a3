"""Puts objects that are damaged or missing in a store back, from one in which they are as they were written.

Verification tells what is damaged, in each store by itself. Only what it names is put back, and only from a
store in which it finds the same object undamaged. So nothing that was deleted comes back, and nothing that
somebody has planted is taken over. A manifest that was missing names files: so it is verified again, until
nothing more is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.copying.changes import attributes, catch_up, is_new, standings
from bucketwise.archivers.copying.filling import transfer
from bucketwise.archivers.copying.places import copied, first_alone, marker_fault, within
from bucketwise.archivers.format.names import owner_key
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.markers import read_marker
from bucketwise.archivers.records.changes import CopyRecords
from bucketwise.archivers.records.receipts import FIRST as FIRST_PLACE
from bucketwise.archivers.stores.base import Corrupt, NotFound, ObjectStore, StoreError
from bucketwise.archivers.stores.copied import CopiedStore, Copy, put_compared
from bucketwise.archivers.stores.encrypted import EncryptedStore, Keyring, is_keyring, keyring_key
from bucketwise.archivers.verifying.report import Damage, Piece, VerifyReport
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.config.errors import HaltedError

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
                if it.filled is not None and (fault := marker_fault(self.context, copy, is_new=False)):
                    raise fault
                if it.filled is not None and (not it.behind or self._caught_up(copy)):
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
            if it.filled is not None and marker_fault(self.context, copy, is_new=False) is None:
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
