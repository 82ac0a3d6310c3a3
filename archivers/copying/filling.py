"""Fills a store with all that another one holds of a policy's archive. What is there already stays: so it
resumes where it was cut off."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field

from bucketwise.archivers.context import ArchiveContext, offline_archive
from bucketwise.archivers.format.manifest import DamagedError, StoredFile, has_seal
from bucketwise.archivers.format.names import commit_of_file
from bucketwise.archivers.markers import KEY
from bucketwise.archivers.mirroring.changes import attributes, catch_up
from bucketwise.archivers.mirroring.places import identity_keys, marker_fault, within
from bucketwise.archivers.records.changes import CopyRecords
from bucketwise.archivers.stores.base import NotFound, ObjectStore
from bucketwise.archivers.stores.copied import CopiedStore, Copy, put_compared
from bucketwise.archivers.stores.encrypted import EncryptedStore, keyring_key


@dataclass
class Filled:
    """Tells what was put into a store. `damaged`: the keys of objects that are damaged where they were to be
    read, and were not copied. `others`: how many objects the store has that the other one lacks."""

    copied: int = 0
    bytes: int = 0
    others: int = 0
    damaged: list[str] = field(default_factory=list)


def fill(context: ArchiveContext, store: CopiedStore, copy: Copy) -> Filled:
    """Fills a copy from the first store. Raises HaltedError where one of the two is not the store that it
    was, and StoreError."""
    within(context, store.first).binding.check_claim()  # as it is by now
    records = CopyRecords(context.receipts)
    known = records.known().get(copy.name)
    if known is None or known.url != copy.store.url:
        records.note_begun(copy.name, copy.store.url)
    if fault := marker_fault(context, copy, is_new=True):
        raise fault
    catch_up(context, store, copy, may_be_empty=True)
    done = transfer(context, store, copy)
    if not done.damaged:
        records.note_filled(copy.name, copy.store.url, context.now, done.others)
    return done


def transfer(
    context: ArchiveContext, source: ObjectStore, target: Copy, leaving: Set[str] = frozenset()
) -> Filled:
    """Puts what a store has of a policy's archive, and the target lacks or has in another size, into the
    target: manifests after the files that they name, and what tells whose archive it is last. Each store is
    listed once. `leaving`: keys that are left out."""
    name, done = context.policy.identity, Filled()
    there = {it.key: it.size for it in target.store.list(f"{name}/")}
    sizes = {it.key: it.size for it in source.list(f"{name}/") if it.key not in leaving}
    ring = keyring_key(name)  # one that was wrapped by another key is as long
    if ring in sizes and ring in there and source.get_bytes(ring) != target.store.get_bytes(ring):
        there[ring] = -1
    done.others = len(there.keys() - sizes.keys())
    missing = sorted((key for key, size in sizes.items() if there.get(key) != size), key=_rank)
    files = _files_of(context, source, missing)
    last = [key for key in identity_keys(context, source) if key == KEY or key in missing]
    for number, key in enumerate([*(it for it in missing if it not in set(last)), *reversed(last)]):
        context.check()
        if _put(context, source, target, key, files, done):
            context.spend(1, sizes.get(key, 0))
            context.progress("copied bytes", sizes.get(key, 0), number / max(len(missing), 1))
    return done


def _put(
    context: ArchiveContext,
    source: ObjectStore,
    target: Copy,
    key: str,
    files: dict[str, StoredFile],
    done: Filled,
) -> bool:
    is_sound = _as_lying(context, key, _soundness(key, files))
    try:
        data = source.get_sound(key, is_sound)
    except NotFound:
        return False  # removed since it was listed
    if not is_sound(data):
        done.damaged.append(key)
        return False
    put_compared(target, key, data, **attributes(context, key))
    done.copied += 1
    done.bytes += len(data)
    return True


def _as_lying(
    context: ArchiveContext, key: str, is_sound: Callable[[bytes], bool]
) -> Callable[[bytes], bool]:
    """Returns what tells of the bytes of an object, as they lie, whether they are sound."""
    store = context.store
    if not isinstance(store, EncryptedStore):
        return is_sound
    return lambda lying: store.is_sound(key, lying, is_sound)


def _rank(key: str) -> tuple[int, str]:
    """Returns the place of a key in the order: files of commits, what lies beside them, manifests."""
    kind = key.split("/")[1:3]
    if kind[:1] == ["data"] or kind == ["meta", "buckets"]:
        return 0, key
    return (2 if kind == ["meta", "manifests"] else 1), key


def _soundness(key: str, files: dict[str, StoredFile]) -> Callable[[bytes], bool]:
    """Returns what tells whether an object is as it was written, as far as its key or a manifest tells."""
    if (file := files.get(key)) is not None:
        return lambda data: len(data) == file.bytes and hashlib.sha256(data).hexdigest() == file.sha256
    if "/meta/" in key and key.split("/")[2] in ("manifests", "checkpoints", "superseded", "holds"):
        return has_seal if key.endswith(".json") else _whatever
    return _whatever


def _whatever(_data: bytes) -> bool:
    return True


def _files_of(context: ArchiveContext, source: ObjectStore, keys: Iterable[str]) -> dict[str, StoredFile]:
    """Returns what manifests say of these files. The manifests of their commits are read; a damaged one says
    nothing."""
    named = {it.name for key in keys if (it := commit_of_file(context.policy.identity, key)) is not None}
    archive = offline_archive(within(context, source).connections, context.policy) if named else None
    found: dict[str, StoredFile] = {}
    for commit in archive.commits() if archive is not None else ():
        if commit.name in named:
            context.check()
            try:
                found |= {it.key: it for it in archive.manifest(commit).files} if archive else {}
            except (DamagedError, NotFound):
                continue  # it is found damaged when it is to be copied
    return found
