"""Brings a copy up to what has changed in the first store since."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from datetime import datetime
from typing import Any, NamedTuple

from bucketwise.archivers import decisions
from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.names import owner_key
from bucketwise.archivers.markers import KEY, OWNER
from bucketwise.archivers.mirroring.places import copied, marker_fault, within
from bucketwise.archivers.records.changes import CopyRecords
from bucketwise.archivers.stores.base import NotFound, StoreError
from bucketwise.archivers.stores.copied import CopiedStore, Copy, names_of, naming, put_compared
from bucketwise.config.errors import HaltedError

#: Changes that are taken out of the journal at once.
_TOGETHER = 50


class CopyStanding(NamedTuple):
    """How far one copy of a policy's archive is. `filled_at`: when it had all that was archived before; None:
    never. `behind`: how many objects it lacks, or has too many, since `behind_since`; None while it was never
    filled."""

    name: str
    url: str
    required: bool
    filled_at: datetime | None
    behind: int | None
    behind_since: datetime | None


def standings(context: ArchiveContext) -> list[CopyStanding]:
    """Returns how far each copy is, by what the database knows: two queries, and none without copies."""
    store = copied(context)
    if store is None:
        return []
    records = CopyRecords(context.receipts)
    known, waiting = records.known(), records.waiting()
    found = []
    for copy in store.copies:
        record, behind = known.get(copy.name), waiting.get(copy.name)
        filled = record.filled if record is not None and record.url == copy.store.url else None
        keys, since = (behind.keys, behind.since) if behind else (0, None)
        count = None if filled is None else keys
        found.append(CopyStanding(copy.name, copy.store.url, copy.required, filled, count, since))
    return found


def holders(context: ArchiveContext) -> Callable[[str], list[str]]:
    """Returns a function that gives the names of the copies which have all of a commit, by its name. What
    waits is asked for once."""
    filled = [it for it in standings(context) if it.filled_at is not None]
    records = CopyRecords(context.receipts)
    waiting = {it.name: records.waiting_keys(it.name) if it.behind else set() for it in filled}

    def of(commit: str) -> list[str]:
        return [name for name, keys in waiting.items() if not any(commit in key for key in keys)]

    return of


def removed_copies(context: ArchiveContext) -> dict[str, str]:
    """Returns the copies that the policy file names no more, and where they are."""
    store = copied(context)
    if store is None and not context.policy.has_parts:
        return {}
    removed = CopyRecords(context.receipts).removed(names_of(store))
    return {name: it.url for name, it in removed.items()}


def is_new(context: ArchiveContext) -> bool:
    """Returns whether nothing was ever put into the policy's archive."""
    return context.receipts.get(OWNER) is None


def note_new(context: ArchiveContext) -> None:
    """Records copies of an archive into which nothing was ever put as filled."""
    unfilled = [it for it in standings(context) if it.filled_at is None]
    store = copied(context)
    owner = owner_key(context.policy.identity)
    if unfilled and is_new(context) and store is not None and store.first.head(owner) is None:
        records = CopyRecords(context.receipts)
        for it in unfilled:
            records.note_filled(it.name, it.url, context.now)


def attributes(context: ArchiveContext, key: str) -> dict[str, Any]:
    """Returns how an object is put into a copy: its storage class, and from when on it is locked."""
    name, archive = context.policy.identity, context.policy.archive
    is_part = key.startswith(f"{name}/data/")
    is_locked = is_part or key.startswith((f"{name}/meta/buckets/", f"{name}/meta/manifests/"))
    return {
        "storage_class": archive.first_class if archive is not None and is_part else None,
        "locked_from": context.now if is_locked else None,
    }


def catch_up(context: ArchiveContext, store: CopiedStore, copy: Copy, *, may_be_empty: bool = False) -> int:
    """Makes a copy like the first store at all keys that wait for it, in the order of the changes. Returns
    how many objects were put or removed. `may_be_empty`: it is being filled. Raises HaltedError where one of
    the two is not the store that it was, and StoreError, which names the copy."""
    records = CopyRecords(context.receipts)
    changes = list(records.changes(copy.name))
    if not changes:
        return 0
    within(context, store.first).binding.check_claim()  # as it is by now
    may_be_empty = may_be_empty or any(KEY in change.keys for change in changes)
    if fault := marker_fault(context, copy, is_new=may_be_empty):
        raise fault
    named, deleted = decisions.outstanding(changes)
    done: list[str] = []
    count = 0
    try:
        for change, keys in zip(changes, named, strict=True):
            context.check()
            count += _apply(context, store, copy, keys, deleted)
            done.append(change.name)
            if len(done) == _TOGETHER:
                records.remove(done)
                done = []
    finally:
        if done:
            records.remove(done)
    return count


def copy_to_required(context: ArchiveContext, key: str) -> None:
    """Makes each copy that is required like the first store at a key, whatever the journal says of it. Raises
    as `catch_up`."""
    store = copied(context)
    if store is not None and store.required:
        store.journal.begin([it.name for it in store.required], [key], deleted=False)
        for copy in store.required:
            catch_up(context, store, copy)


def _apply(
    context: ArchiveContext, store: CopiedStore, copy: Copy, keys: Sequence[str], deleted: Set[str]
) -> int:
    """Makes a copy like the first store at the keys of a change. What was put, and is not in the first store,
    never came there."""
    gone = []
    count = 0
    for key in keys:
        try:
            data = store.first.get_bytes(key)
        except NotFound:
            gone += [key] if key in deleted else []
            continue
        context.spend(1, len(data))
        context.progress("copied bytes", len(data))
        put_compared(copy, key, data, **attributes(context, key))
        count += 1
    if gone:
        with naming(copy):
            copy.store.delete(gone)
        count += len(gone)
    return count


class CaughtUp(NamedTuple):
    """How far a copy is once it was brought up to the first store. `changed`: how many objects were put or
    removed. `error`: why it could not be done; None: it was."""

    standing: CopyStanding
    changed: int
    error: str | None


def caught_up(context: ArchiveContext) -> list[CaughtUp]:
    """Brings each copy that was filled up to the first store, as far as it can be reached."""
    store = copied(context)
    before = standings(context)
    changed: dict[str, int] = {}
    errors: dict[str, str] = {}
    for copy, it in zip(store.copies if store else (), before, strict=True):
        if store is not None and it.behind:
            try:
                changed[it.name] = catch_up(context, store, copy)
            except (StoreError, HaltedError) as error:
                errors[it.name] = str(error)
    after = standings(context) if changed or errors else before
    return [CaughtUp(it, changed.get(it.name, 0), errors.get(it.name)) for it in after]
