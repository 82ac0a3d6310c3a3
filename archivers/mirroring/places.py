"""The stores in which one policy's archive lies: the first, and its copies; and whether each is the one that
it should be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from bucketwise.archivers.context import ArchiveContext, ArchiveState, LocalExecutor
from bucketwise.archivers.format.names import owner_key
from bucketwise.archivers.markers import KEY, OwnerFile, read_marker, read_record
from bucketwise.archivers.records.changes import CopyRecords
from bucketwise.archivers.stores.base import NotFound, ObjectStore, StoreError
from bucketwise.archivers.stores.copied import CopiedStore, Copy, copies_of, naming
from bucketwise.archivers.stores.encrypted import EncryptedStore, keyring_key
from bucketwise.config.errors import HaltedError


def copied(context: ArchiveContext) -> CopiedStore | None:
    """Returns the store of the policy's archive, if it has copies; None where the archive lies in none."""
    return copies_of(context.store) if context.policy.has_parts else None


def may_hold(store: ObjectStore, identity: str) -> bool:
    """Returns whether the archive of a policy lies in a store or in one of its copies, as far as they can be
    reached."""
    of_copies = copies_of(store)
    stores = [store] if of_copies is None else of_copies.stores
    keys = owner_key(identity), keyring_key(identity)
    try:
        return any(it.head(key) is not None for it in stores for key in keys)
    except StoreError:
        return True


def readable(context: ArchiveContext, store: ObjectStore) -> ObjectStore:
    """Returns one of the stores of an archive, decrypted if they are encrypted."""
    return context.store.over(store) if isinstance(context.store, EncryptedStore) else store


def within(context: ArchiveContext, store: ObjectStore) -> ArchiveContext:
    """Returns a context that looks at one store alone: nothing is read from a copy in its place."""
    alone = readable(context, store)
    connections = replace(context.connections, store=alone)
    state = ArchiveState(topology=context.state.topology)
    return replace(context, store=alone, executor=LocalExecutor(connections), fence=0, state=state)


def first_alone(context: ArchiveContext) -> ArchiveContext:
    """Returns a context in which nothing that is damaged in the first store is read from a copy."""
    store = copied(context)
    return context if store is None else replace(context, store=readable(context, store.first))


def identity_keys(context: ArchiveContext, store: ObjectStore) -> Iterator[str]:
    """Yields the keys of what tells whose archive lies in a store, and how far it has come."""
    yield KEY
    yield owner_key(context.policy.identity)
    yield from (it.key for it in store.list(f"{context.policy.identity}/meta/lineage/"))


def _waits_for_owner(context: ArchiveContext, copy: Copy) -> bool:
    """Returns whether a copy has not been told of an adoption yet."""
    return owner_key(context.policy.identity) in CopyRecords(context.receipts).waiting_keys(copy.name)


def marker_fault(context: ArchiveContext, copy: Copy, *, is_new: bool) -> HaltedError | None:
    """Returns an error where a copy is another store than it was, or another database's. `is_new`: it may be
    empty, or have no marker yet beside what says that the archive is ours. Raises StoreError."""
    receipts, policy = context.receipts, context.policy
    record = read_record(receipts, context.store.url if context.store else None)
    with naming(copy):
        copy.store.check_there()
        found = read_marker(copy.store)
        owner = None
        with suppress(NotFound):
            key = owner_key(policy.identity)
            try:
                data = readable(context, copy.store).get_bytes(key)
            except HaltedError:  # its keyring was left out of a `rekey`
                if not isinstance(context.store, EncryptedStore):
                    raise
                data = context.store.opened(key, copy.store.get_bytes(key))
            owner = OwnerFile.of(data, f"{copy.store.url}/{key}").owner
    wanted = record.marker or record.known
    if wanted is None and (store := copied(context)) is not None:
        wanted = read_marker(store.first)  # a run died before it was recorded
    if found is None and is_new and owner in (None, record.owner):
        return None
    if found is None:
        reason = f"its marker {KEY} is gone"
    elif found != wanted:
        reason = f"its marker {KEY} has the id {found}, and the store's is {wanted}"
    elif owner not in (None, record.owner) and not _waits_for_owner(context, copy):
        reason = f"the archive in it belongs to another database (owner {owner})"
    else:
        return None
    return HaltedError(
        f"policy {policy.name}: copy {copy.name} at {copy.store.url} is not a copy of this store: {reason}. "
        "Nothing was changed there. A disk may not be mounted: mount it, or correct its url. If it is to be "
        "made anew there, empty the folder of the policy in it and its marker, then run `bucketwise copy`"
    )
