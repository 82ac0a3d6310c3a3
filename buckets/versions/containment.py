"""Whether a version of a bucket contains all of another one, byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, NOTHING, elements, first_at
from bucketwise.buckets.fields.ids import sort_key
from bucketwise.buckets.layouts.layout import Path
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.shape import split
from bucketwise.buckets.models.slot_levels import SlotLevel
from bucketwise.buckets.versions.overlay import (
    NESTED,
    Overlay,
    SlotsIn,
    Typed,
    Unmergeable,
    fields_of,
    samples_of,
)
from bucketwise.config.policies import Policy


class Containment:
    """How the versions of one policy's buckets are compared."""

    def __init__(self, policy: Policy) -> None:
        model, more, overlay = model_of(policy), policy.overflow, Overlay.of(policy)
        kept = _paths(*model.kept_fields, more.flag_field if more else None)
        arrays = model.holders if model.array else []
        #: Arrays side by side: what lies at one place of them is one sample.
        self._parallel = arrays if len(arrays) > 1 else []
        self._main = _Documents(overlay, frozenset(arrays), kept | frozenset(self._parallel))
        self._extra = _Documents(overlay, _paths(more.samples_field if more else None), frozenset())

    def contains(self, newer: Batch, older: Batch) -> bool:
        """Returns whether a bucket is known to hold all of another one; both batches are of one."""
        newer_overflow, older_overflow = _by_id(newer), _by_id(older)
        try:
            return newer.unit(0) == older.unit(0) or (
                self._main.contain(newer.main[0], older.main[0])
                and self._has_samples(newer.main[0], older.main[0])
                and older_overflow.keys() <= newer_overflow.keys()
                and all(
                    self._extra.contain(newer_overflow[name], document)
                    for name, document in older_overflow.items()
                )
            )
        except Unmergeable:  # a name appears twice
            return False

    def _has_samples(self, newer: bytes, older: bytes) -> bool:
        """Returns whether the newer document holds all samples that the older one has in several arrays."""
        if not self._parallel:
            return True
        try:
            held, wanted = (Counter(samples_of(it, self._parallel)) for it in (newer, older))
        except ValueError:  # unlike lengths: it breaks its model
            return False
        return not wanted - held


@dataclass(frozen=True)
class _Documents:
    """Compares the documents of buckets, or those of their overflow."""

    overlay: Overlay
    samples: frozenset[Path]  # an array of them
    kept: frozenset[Path]  # what a writer keeps up to date: it may differ

    def contain(self, newer: bytes, older: bytes, at: Path = ()) -> bool:
        """Returns whether the newer document holds all of the older one. Raises Unmergeable where a name
        appears twice."""
        newer_fields = fields_of(newer)
        return all(
            self._field(newer_fields.get(name, b""), value, (*at, name))
            for name, value in fields_of(older).items()
        )

    def _field(self, newer: Typed, older: Typed, path: Path) -> bool:
        """Returns whether the newer field holds all of the older. `newer` is empty where the field is
        missing."""
        if newer == older or (path in self.kept and newer):
            return True
        if path in self.overlay.slots:
            return self._slots(newer, older, self.overlay.levels, path)
        if path in self.samples and newer[:1] == older[:1] == bytes([ARRAY]):
            return not Counter(_samples(older)) - Counter(_samples(newer))
        return newer[:1] == older[:1] == bytes([DOCUMENT]) and self.contain(newer[1:], older[1:], path)

    def _slots(
        self, newer: Typed, older: Typed, levels: Sequence[SlotLevel], path: Path, before: int = 0
    ) -> bool:
        """Returns whether the newer slots hold all of the older. A null slot holds nothing."""
        if newer == older or older[0] in NOTHING:
            return True
        if not levels:
            return self._field(newer, older, (*path, "*"))
        if not newer or older[0] not in NESTED or newer[0] not in NESTED:
            return False
        level, *inner = levels
        newer_slots = _slots(newer, level, before)
        return all(
            self._slots(
                newer_slots.get(place, b""),
                value,
                inner,
                path,
                before + (place * level.length if isinstance(place, int) else 0),
            )
            for place, value in _slots(older, level, before).items()
        )


def _paths(*fields: str | None) -> frozenset[Path]:
    return frozenset(split(field) for field in fields if field)


def _by_id(bucket: Batch) -> dict[bytes, bytes]:
    """Returns a bucket's overflow documents by their `_id`s."""
    ids = (first_at(document, ("_id",)) for document in bucket.extra)
    return {sort_key(it[0], it[1:]): document for it, document in zip(ids, bucket.extra, strict=True)}


def _samples(array: Typed) -> list[bytes]:
    held = array[1:]
    return [held[start : start + 1] + held[value:end] for start, value, end in elements(held)]


def _slots(held: Typed, level: SlotLevel, before: int) -> dict[int | str, Typed]:
    """Returns slots by their places: in an array or a sub-document."""
    slots = SlotsIn.of(held, level, before)
    found = {slots.places[name]: value for name, value in slots.fields.items()}
    if len(found) < len(slots.fields):
        raise Unmergeable("a slot appears twice")
    return found
