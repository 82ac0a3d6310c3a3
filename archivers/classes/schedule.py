"""Decides which storage class the parts of a commit are due for, apart from IO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.records.receipts import FIRST
from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.archivers.stores.classes import ClassedStore
from bucketwise.archivers.stores.copied import copies_of
from bucketwise.archivers.stores.encrypted import EncryptedStore
from bucketwise.buckets.fields.times import later
from bucketwise.config.policies import Archive
from bucketwise.config.tables import COLD
from bucketwise.config.times import format_duration

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


def schedule_of(context: ArchiveContext) -> Schedule:
    """Returns when the parts of a policy's archive move."""
    return Schedule(tuple(places_of(context)))
