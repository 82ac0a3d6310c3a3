"""Checks what a run works with: MongoDB's server, and the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pymongo.database import Database

from bucketwise.archivers.classes import Place, placed
from bucketwise.archivers.records.receipts import FIRST
from bucketwise.archivers.stores.base import ObjectStore, StoreError
from bucketwise.config.policies import Policy
from bucketwise.jobs.check.classes import check_classes
from bucketwise.jobs.core.job import Severity
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


def check_stores(store: ObjectStore, policies: Sequence[Policy]) -> Iterator[Finding]:
    """Tries on small objects of its own whether the store and its copies can be written, read, listed and
    cleaned, and have the storage classes of these policies. Yields what they do, and what fails."""
    for places in zip(*(placed(store, it.archive if it.has_parts else None) for it in policies), strict=True):
        yield from _check_store(places, policies)


def _check_store(places: Sequence[Place], policies: Sequence[Policy]) -> Iterator[Finding]:
    name, store, *_ = places[0]
    named = "" if name == FIRST else f"{name}: "
    try:
        is_conditional = store.probe()
        found = [*check_classes(places, policies), *_versions(store)]
    except StoreError as error:
        severity: Severity = "error" if places[0].required else "warning"
        yield Finding("store", None, store.url, severity, f"{named}{error}")
        return
    extra = "" if is_conditional else "; it ignores conditional writes, on which bucketwise does not rely"
    yield Finding("store", None, store.url, "ok", f"{named}write, read, list and delete work{extra}")
    yield from found


def _versions(store: ObjectStore) -> Iterator[Finding]:
    """Yields what the store keeps of objects that are deleted."""
    found = store.versioning()
    if found.lock is not None and found.has_locks is None:
        yield Finding("object-lock", None, store.url, "warning", found.fault)
    elif found.lock is not None and not found.has_locks:
        message = f"store.object_lock is set, and {found.fault}"
        yield Finding("object-lock", None, store.url, "error", message)
    elif found.lock is not None:
        message = (
            f"files of commits are locked ({found.lock}): what is merged, erased or past its end in that "
            "time stays as older versions until its lock ends"
        )
        yield Finding("object-lock", None, store.url, "ok", message)
    elif found.keeps_versions is None:
        message = (
            "what is deleted may stay, as an older version or soft-deleted, for as long as the store's "
            "settings say: these can't all be asked for"
        )
        yield Finding("store-versioned", None, store.url, "ok", message)
    elif found.keeps_versions:
        message = (
            "the bucket keeps versions: what is deleted stays as older versions until a lifecycle rule of "
            "the bucket removes them"
        )
        yield Finding("store-versioned", None, store.url, "ok", message)
