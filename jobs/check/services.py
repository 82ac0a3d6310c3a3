"""Checks what a run works with: MongoDB's server, and the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pymongo.database import Database

from bucketwise.archivers.stores.base import ObjectStore, StoreError, probe_class
from bucketwise.jobs.core.turn import Finding

Document = dict[str, Any]
_OLDEST = (6, 0)


def check_server(database: Database[Document]) -> list[Finding]:
    """Is the server new enough, and one that can do what a guarded delete needs? Raises PyMongoError."""
    hello = database.client.admin.command("hello")
    version = database.client.server_info()["version"]
    place = hello.get("me") or "MongoDB"
    findings = []
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        message = f"MongoDB {version} is too old: bucketwise needs 6.0 or later"
        findings.append(Finding("server-version", None, place, "error", message))
    else:
        findings.append(Finding("server-version", None, place, "ok", f"MongoDB {version}"))
    if "setName" in hello:
        findings.append(Finding("replica-set", None, place, "ok", f"replica set {hello['setName']}"))
    elif hello.get("msg") == "isdbgrid":
        message = "a sharded cluster: bucketwise is tested on replica sets only (see docs/compatibility.md)"
        findings.append(Finding("replica-set", None, place, "warning", message))
    else:
        message = (
            "a standalone server has no transactions, and nothing is deleted without: start mongod with "
            "--replSet and run rs.initiate() once; a set of a single node will do"
        )
        findings.append(Finding("replica-set", None, place, "error", message))
    return findings


def check_store(store: ObjectStore, storage_classes: Iterable[str] = ()) -> list[Finding]:
    """Tries on small objects of its own whether the store can be written, read, listed and cleaned, and has
    these storage classes. Returns what fails."""
    try:
        is_conditional = store.probe()
        for named in storage_classes:
            probe_class(store, named)
    except StoreError as error:
        return [Finding("store", None, store.url, "error", str(error))]
    extra = "" if is_conditional else "; it ignores conditional writes, on which bucketwise does not rely"
    works = Finding("store", None, store.url, "ok", f"write, read, list and delete work{extra}")
    return [works, *_versions(store)]


def _versions(store: ObjectStore) -> Iterator[Finding]:
    """Yields what the store keeps of objects that are deleted."""
    found = store.versioning()
    if found.lock is not None and found.has_locks is None:
        message = (
            "whether the bucket has Object Lock can't be asked: grant s3:GetBucketObjectLockConfiguration"
        )
        yield Finding("object-lock", None, store.url, "warning", message)
    elif found.lock is not None and not found.has_locks:
        message = "store.object_lock is set, and the bucket has no Object Lock: it is given at its creation"
        yield Finding("object-lock", None, store.url, "error", message)
    elif found.lock is not None:
        message = (
            f"files of commits are locked ({found.lock}): what is merged, erased or past its end in that "
            "time stays as older versions until its lock ends"
        )
        yield Finding("object-lock", None, store.url, "ok", message)
    elif found.keeps_versions is None:
        message = (
            "whether the store keeps older versions or soft-deleted objects can't be asked: what is deleted "
            "may stay for as long as its settings say"
        )
        yield Finding("store-versioned", None, store.url, "ok", message)
    elif found.keeps_versions:
        message = (
            "the bucket keeps versions: what is deleted stays as older versions until a lifecycle rule of "
            "the bucket removes them"
        )
        yield Finding("store-versioned", None, store.url, "ok", message)
