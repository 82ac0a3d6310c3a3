"""Records in MongoDB that are not as they were written: what is wrong with one is named, and nothing is done
because of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from bucketwise.archivers.format.manifest import DamagedError

COLLECTION = "bucketwise_receipts"
REMEDY = f"Restore {COLLECTION} from a backup, or find out who changed it"
Document = dict[str, Any]
Shape = dict[str, type]
#: What records must have to be used at all, by their names.
_NAMED: dict[str, Shape] = {
    "heads": {"sequence": int, "commits": list},
    "last": {"sequence": int, "sha256": str},
    "moved": {"files": list},
    "collections": {"held": Mapping},
    "begun": {"seals": list},
    "owner": {"owner": str},
}
#: Those of registered commits. What they say is held against manifests.
_OF_COMMIT: Shape = {
    "state": str, "sequence": int, "seal": str, "live": bytes, "days": list,
    "first": datetime, "last": datetime, "copied": datetime, "first_day": int, "kin": str,
    "buckets": int, "readings": int, "bytes": int, "documents_bytes": int,
}  # fmt: skip


def record_fault(name: str, what: str, collection: str = COLLECTION) -> DamagedError:
    """Returns the error for a record that is not as it was written."""
    remedy = REMEDY.replace(COLLECTION, collection)
    return DamagedError("record-differs", f"{collection}, {name}", what, remedy)


@contextmanager
def reading(name: str, collection: str = COLLECTION) -> Iterator[None]:
    """Raises DamagedError where what is read of a record does not have its form."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError):
        what = "it does not have the form of such a record"
        raise record_fault(name, what, collection) from None


def shaped(record: Document, *, left_out: frozenset[str] = frozenset()) -> Document:
    """Returns a record. Raises DamagedError where it does not have the form of such a record. `left_out`:
    what was not asked for."""
    name = str(record["_id"]["name"])
    shape = _NAMED.get(name, {})
    if shape and record.get("kind") != name:
        raise record_fault(name, f"its kind is {record.get('kind')!r}")
    if record.get("kind") == "offline" and "seal" in record:
        shape = _OF_COMMIT
    for key, kind in shape.items():
        if key not in left_out and not isinstance(record.get(key), kind):
            raise record_fault(name, f"{key} is missing, or no such value")
    if shape is _OF_COMMIT and record["state"] in ("replaced", "held") and "replaced_by" not in record:
        raise record_fault(name, "it does not say what has replaced the commit")
    return record
