"""Checks storage classes and object locks against the store."""

from __future__ import annotations

from config.policies import Policy
from config.problems import Fault, Key, Report, nearest
from config.tables import Store

#: A lock of so many days ends within a century.
MOST_DAYS = 36_500
#: What can be read at once, whatever it costs.
CLASSES = ("STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR")
_INSTEAD = 'write "GLACIER_IR", whose objects can be read immediately'
_THAW = (
    "its objects must be restored before a read, and each copy is read back before the original is deleted"
)
#: What an archive can't rest on, and why.
_REFUSED = {
    "GLACIER": Fault(_THAW, _INSTEAD),
    "DEEP_ARCHIVE": Fault(_THAW, _INSTEAD),
    "REDUCED_REDUNDANCY": Fault(
        "it loses one object in ten thousand a year, and an archive is the only copy",
        'write "STANDARD_IA", or leave it out',
    ),
}


def check_object_lock(store: Store, report: Report) -> None:
    """Reports an object lock of an invalid length, and one for a store that can't lock files."""
    if store.object_lock is None:
        return
    if not 1 <= store.object_lock.days <= MOST_DAYS:
        fault = Fault("files are locked for 1 to 36500 days", "write how many days each has to stay")
        report.add(("store", "object_lock", "days"), fault)
    if store.url.startswith("file:"):
        fault = Fault("a directory can't lock its files", "remove it, or archive to an s3:// store")
        report.add(("store", "object_lock"), fault, rests_on=[("store", "url")])


def check_storage_class(policy: Policy, store: Store | None, report: Report) -> None:
    """Reports a storage class that parts can't have: unknown, unsuitable, or without an S3 store."""
    if policy.archive is None or policy.archive.storage_class is None:
        return
    at: Key = ("policies", policy.name, "archive")
    key, named = (*at, "storage_class"), policy.archive.storage_class
    if policy.archive.to != "offline":
        fault = Fault("it is for parts in S3, and only an offline archive has any", "remove it")
        report.add(key, fault, rests_on=[(*at, "to")])
    elif store is not None and store.url.startswith("file:"):
        fault = Fault("a directory has no storage classes", "remove it, or archive to an s3:// store")
        report.add(key, fault, rests_on=[("store", "url")])
    if named in _REFUSED:
        report.add(key, _REFUSED[named])
    elif named not in CLASSES:
        near = nearest(named, CLASSES)
        choices = " or ".join(f'"{it}"' for it in CLASSES)
        mend = f'did you mean "{near}"? It may be {choices}' if near else f"write {choices}"
        report.add(key, Fault("it is not a storage class", mend))
