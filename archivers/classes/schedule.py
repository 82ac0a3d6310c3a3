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
from bucketwise.config.tables import COLD, moves_at_once
from bucketwise.config.times import format_duration

#: The classes in which the parts of a commit are, by the name of the place.
Stored = Mapping[str, str]


class Place(NamedTuple):
    """A store that an archive lies in. `moves`: to which classes parts move there, and how old their readings
    are then, in that order."""

    name: str
    store: ObjectStore
    moves: Mapping[str, timedelta]


def places_of(context: ArchiveContext) -> Iterator[Place]:
    """Yields the store of the policy's archive as it lies, and its copies."""
    archive, store = context.policy.archive, context.store
    if archive is None or store is None or not context.policy.has_parts:
        return
    copied = copies_of(store)
    inner = store.inner if isinstance(store, EncryptedStore) else store
    yield _place(FIRST, copied.first if copied else inner, archive.moves)
    for copy in copied.copies if copied else ():
        named = copy.storage_class
        moves = archive.moves if named is None else moves_at_once(named)
        yield _place(f"copy {copy.name}", copy.store, moves)


def _place(name: str, store: ObjectStore, moves: Mapping[str, timedelta]) -> Place:
    return Place(name, store, moves if isinstance(store, ClassedStore) else {})


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
