"""Which fields some documents have, and which of them the policy uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bucketwise.buckets.bson.raw import as_queried
from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, elements, first_at
from bucketwise.buckets.layouts.layout import Path
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.model import Attributes
from bucketwise.config.policies import Policy

#: So many elements of an array, or slots, tell what is in the others.
_MAX_NUMBERED = 3
#: So many fields are told.
_MAX_REPORTED = 100


@dataclass
class FieldUse:
    """Paths as a policy names them; "*" stands for any element of an array, or any slot."""

    used: set[str] = field(default_factory=set)  # used: these, and those on the way to them
    unused: dict[str, None] = field(default_factory=dict)  # in the order in which they are met
    within: dict[str, None] = field(default_factory=dict)  # and inside of those
    arrays: set[str] = field(default_factory=set)  # on the way to a used one that would have to be inside


def fields_of(documents: Iterable[bytes], policy: Policy) -> FieldUse:
    """Returns the fields of all documents together; `_id` is none."""
    found, model = FieldUse(), model_of(policy)
    used = model.used_paths
    for document in documents:
        _walk(document, (), used, found)
        if model.attributes is not None and len(found.within) < _MAX_REPORTED:
            found.within |= dict.fromkeys(_unused_attributes(document, policy, model.attributes))
    return found


def _unused_attributes(document: bytes, policy: Policy, attributes: Attributes) -> Iterator[str]:
    """Yields the names of the attributes that the policy doesn't use."""
    array = first_at(document, attributes.array)
    for start, value, end in elements(array[1:]) if array[:1] == bytes([ARRAY]) else ():
        if array[1 + start] == DOCUMENT:
            name = as_queried(first_at(array[1 + value : 1 + end], attributes.name))
            if isinstance(name, str) and name not in policy.value_fields:
                yield name


def _walk(document: bytes, parent: Path, used: list[Path], found: FieldUse) -> None:
    """Adds fields that no path uses. `used`: the rest of each path that leads through here."""
    numbered = 0
    for start, value, end in elements(document):
        name, kind = document[start + 1 : value - 1].decode("utf-8", "backslashreplace"), document[start]
        if parent and name.isdigit():
            numbered += 1
            if numbered > _MAX_NUMBERED:
                continue
        path = (*parent, "*" if parent and name.isdigit() else name)
        inside = document[value:end] if kind in (DOCUMENT, ARRAY) else None
        rest = [it[1:] for it in used if it[0] in (name, "*")]
        if rest:
            _add_used(path, kind, inside, rest, found)
        elif path != ("_id",):
            _add_unused(path, inside, found)


def _add_used(path: Path, kind: int, inside: bytes | None, rest: list[Path], found: FieldUse) -> None:
    found.used.add(".".join(path))
    if () in rest or inside is None:
        return
    if kind == ARRAY and all(it[0] != "*" for it in rest):
        found.arrays.add(".".join(path))
    _walk(inside, path, rest, found)


def _add_unused(path: Path, inside: bytes | None, found: FieldUse) -> None:
    if path[-1] == "*" and inside is not None:
        _walk(inside, path, [], found)
    elif len(found.unused) < _MAX_REPORTED:
        found.unused.setdefault(".".join(path))
        for start, value, _ in elements(inside) if inside is not None else ():
            if len(found.within) < _MAX_REPORTED and inside is not None:
                name = inside[start + 1 : value - 1].decode("utf-8", "backslashreplace")
                found.within.setdefault(".".join((*path, name)))
