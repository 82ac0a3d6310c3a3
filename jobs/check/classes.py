"""Checks the storage classes of parts, and the bucket's own rules that move or remove objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from hashlib import sha256
from uuid import uuid4

from bucketwise.archivers.classes import Place
from bucketwise.archivers.stores.base import PROBE_PREFIX, Denied, ObjectStore
from bucketwise.archivers.stores.classes import MINIMUM_DAYS, ClassedStore, LifecycleRule
from bucketwise.config.policies import Policy
from bucketwise.config.tables import COLD
from bucketwise.config.times import format_duration
from bucketwise.jobs.core.turn import Finding

_ASK = "whether lifecycle rules of the bucket move or remove what is archived can't be asked: grant "


def check_classes(places: Sequence[Place], policies: Sequence[Policy]) -> Iterator[Finding]:
    """Yields what a store's classes and lifecycle rules mean for the archives in it. `places`: the store, as
    the place of each policy's archive. Raises StoreError where it refuses a class."""
    store, url = places[0].store, places[0].store.url
    for named in sorted({it.first_class for it in places if it.first_class is not None}):
        _probe(store, named, moves=False)
    if not isinstance(store, ClassedStore):
        return
    moves = sorted({named for it in places for named in it.moves})
    for named in moves:
        _probe(store, named, moves=True)
    if moves:
        thaw = "; the right to thaw, s3:RestoreObject, is not tried" if set(moves) & set(COLD) else ""
        yield Finding("storage-class", None, url, "ok", f"parts can be moved to {', '.join(moves)}{thaw}")
    archived = [it for it in policies if it.has_parts]
    try:
        for rule in store.lifecycle() if archived else ():
            yield from _lifecycle(url, rule, [it.identity for it in archived])
    except Denied:
        yield Finding("lifecycle", None, url, "ok", f"{_ASK}s3:GetLifecycleConfiguration")


def _probe(store: ObjectStore, named: str, *, moves: bool) -> None:
    """Puts an object into a class, in the way that parts come there, and deletes it. Raises StoreError."""
    key, data = f"{PROBE_PREFIX}{uuid4().hex}", b"bucketwise probe"
    store.put_bytes(key, data, storage_class=None if moves else named)
    try:
        if moves and isinstance(store, ClassedStore):
            store.move(key, len(data), sha256(data).hexdigest(), named)
    finally:
        store.delete([key])


def _lifecycle(url: str, rule: LifecycleRule, folders: Sequence[str]) -> Iterator[Finding]:
    """Yields what a rule does to the archives below these folders."""
    touched = [it for it in ("data", "meta") if any(rule.touches(f"{folder}/{it}/") for folder in folders)]
    told = f"the bucket's lifecycle rule {rule.name}"
    if touched and rule.storage_class is None:
        message = f"{told} removes what is archived: limit it to other prefixes; retain.archive ends archives"
        yield Finding("lifecycle", None, url, "error", message)
    elif "meta" in touched and rule.storage_class in COLD:
        message = (
            f"{told} moves manifests to {rule.storage_class}, without which nothing can be read: limit it to "
            "another prefix, and let archive.storage_classes move parts"
        )
        yield Finding("lifecycle", None, url, "error", message)
    elif touched and rule.storage_class in COLD:
        message = (
            f"{told} moves parts to {rule.storage_class}, whether they were compared and their originals "
            "deleted or not: let archive.storage_classes do it"
        )
        yield Finding("lifecycle", None, url, "warning", message)


def billed_longer(policy: Policy, places: Iterable[Place]) -> Iterator[Finding]:
    """Yields which classes bill the parts of a policy for longer than they stay there."""
    archive = policy.archive
    if archive is None or archive.after is None:
        return
    for place in places:
        if not isinstance(place.store, ClassedStore):
            continue
        stays = [(place.first_class or "STANDARD", archive.after)]
        stays += [(named, max(archive.after, age)) for named, age in place.moves.items()]
        ends = [*(begin for _, begin in stays[1:]), _end(policy, stays[-1][0])]
        for (named, begin), end in zip(stays, ends, strict=True):
            least = timedelta(days=MINIMUM_DAYS.get(named, 0))
            if end is not None and begin < end < begin + least:
                message = (
                    f"parts stay in {named} for {format_duration(end - begin)}, and S3 bills {least.days} "
                    "days at least: keep them there for longer, or leave the class out"
                )
                yield Finding("storage-class", policy.name, place.store.url, "warning", message)


def _end(policy: Policy, named: str) -> timedelta | None:
    """Returns how old parts in their last class are when some go; None: they stay forever. What is cold stays
    for the longest of all rules."""
    kept = [it.retain for it in policy.lives]
    ends = [it.archive + it.archive_grace for it in kept if it is not None and it.archive is not None]
    if named in COLD:
        return max(ends) if len(ends) == len(kept) else None
    return min(ends, default=None)
