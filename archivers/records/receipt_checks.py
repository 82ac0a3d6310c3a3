"""Checks receipts, each of which must be there, as it was written, after the one before; and holds against
receipts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import DamagedError, LastReceipt
from bucketwise.archivers.records.deletions import last_of, last_receipt, text_digest
from bucketwise.archivers.records.heads import read_heads
from bucketwise.archivers.records.receipt_files import (
    LAST,
    ReceiptFiles,
    Recorded,
    chained,
    recorded_in,
    seal_of,
)
from bucketwise.archivers.records.receipts import COLLECTION, Receipts, record_fault
from bucketwise.rollups.holds import COLLECTION as HOLDS
from bucketwise.rollups.holds import Holds

Document = dict[str, Any]
#: First and last of each run of positions in a commit.
Ranges = list[list[int]]
_REMEDY = f"Restore {COLLECTION} from a backup, or find out who changed it"


def check_deletions(
    receipts: Receipts,
    moved: ReceiptFiles,
    keys: Keys,
    known: Sequence[LastReceipt],
    deleted: dict[str, Ranges],
) -> Iterator[DamagedError]:
    """Yields what is wrong with the receipts: each must be there, as it was written, after the one before,
    and the archive must not name others. `known`: receipts that manifests name, which were there before this
    is called. Adds to `deleted` what receipts say was deleted of each commit."""
    found = receipts.get(LAST)
    last = last_of(found)
    checker = _Checker(receipts, keys, deleted)
    before = _digests(receipts)
    try:
        for receipt, file in chained(receipts, moved):
            yield from checker.check(receipt, file)
        for receipt in moved.kept():
            yield from checker.compare(receipt)
    except DamagedError as error:  # a file of old receipts: later ones can't be checked against it
        yield error
        return
    yield from differing_holds(checker.holds, before, _digests(receipts))
    last = last or last_receipt(receipts)  # there may be a first one since
    if last is None and checker.seals:
        what = "the number of the last receipt is gone"
        yield DamagedError("receipt-missing", f"{COLLECTION}, {LAST}", what, _REMEDY)
    elif last is not None and checker.seals.get(last.sequence) != last.sha256:
        what = f"the last receipt was number {last.sequence}, and it is missing, or has been replaced"
        yield DamagedError("receipt-missing", f"{COLLECTION}, {LAST}", what, _REMEDY)
    elif last is not None and (last_receipt(receipts) or last).sequence < checker.sequence:
        what = f"it names receipt {last.sequence}, and there are later ones"
        yield DamagedError("receipt-differs", f"{COLLECTION}, {LAST}", what, _REMEDY)
    elif found and "latest" in found and recorded_in(receipts, found) != checker.times[found["sequence"]]:
        what = "the latest time that it tells is not that of the receipts"
        yield DamagedError("receipt-differs", f"{COLLECTION}, {LAST}", what, _REMEDY)
    yield from (error for _, error in unrecorded(receipts, checker.commits))
    if missing := [it for it in known if not checker.knows(it)]:
        yield receipts_rolled_back(max(it.sequence for it in missing))


def unrecorded(receipts: Receipts, named: Mapping[str, str]) -> Iterator[tuple[str, DamagedError]]:
    """Yields the name of each commit that receipts of deletes name and no record does, and an error. `named`:
    their seals, by name."""
    if not named:
        return
    query = {"_id.policy": receipts.policy, "kind": {"$in": ["offline", "dropped"]}}
    known = {it["_id"]["name"] for it in receipts.collection.find(query, {"_id": 1})}
    heads = read_heads(receipts)
    for name in sorted(named.keys() - known):
        if heads is None or named[name] not in heads.lost:
            what = "a receipt says that originals were deleted because of this commit, and its record is gone"
            yield name, record_fault(name, what)


def sealed_receipt(receipt: Document, keys: Keys) -> Document:
    """Returns a receipt. Raises DamagedError where it is not as it was written, or not signed as it has to
    be."""
    place = f"{COLLECTION}, {receipt['_id']['name']}"
    if seal_of(receipt) != receipt.get("sha256"):
        raise DamagedError("receipt-differs", place, "it does not match its own SHA-256", _REMEDY)
    keys.check(receipt["sha256"], receipt.get("signature"), place)
    return receipt


def receipts_rolled_back(number: int) -> DamagedError:
    """Returns the error for a receipt that manifests name and that the database does not have."""
    what = (
        f"manifests of the archive tell of receipt {number}, and the database has none or another one: "
        "it was put back to an older state, or receipts were taken out"
    )
    remedy = (
        "Where this database was restored from a backup on purpose, `bucketwise adopt` goes on from there, "
        "and a receipt records it"
    )
    return DamagedError("receipts-rolled-back", COLLECTION, what, remedy)


def _digests(receipts: Receipts) -> dict[str, str]:
    kept = Holds(receipts.collection.database, receipts.policy).active()
    return {it.name: it.digest for it in kept}


def differing_holds(
    recorded: Mapping[str, str], before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[DamagedError]:
    """Yields what is wrong with the holds, each given as its name and digest: `recorded` by receipts, which
    were read between `before` and `after`, the holds themselves. Leaves out what was placed or released
    meanwhile."""
    for name in sorted(recorded.keys() | (before.keys() & after.keys())):
        place, remedy = f"{HOLDS}, {name}", f"Restore {HOLDS} from a backup, or find out who changed it"
        if name not in before and name not in after:
            fault = "a receipt says that it was placed, and none that it was released, but it is gone"
            yield DamagedError("hold-missing", place, fault, remedy)
        elif before.get(name) == after.get(name) != recorded.get(name):
            yield DamagedError("hold-differs", place, "no receipt records it in this form", remedy)


class _Checker:
    """Checks receipts one after the other, and adds to `deleted` what they say was deleted."""

    def __init__(self, receipts: Receipts, keys: Keys, deleted: dict[str, Ranges]) -> None:
        self._keys = keys
        self._deleted = deleted
        self._previous: str | None = None
        self._lost: dict[int, str] = {}  # the last of those that are lost -> its seal
        texts = receipts.policies()
        self._texts = {name for name, text in texts.items() if text_digest(text) == name}
        self.sequence = 0
        self.commits: dict[str, str] = {}  # those whose originals were deleted: name -> seal
        self.seals: dict[int, str] = {}
        self.times: dict[int, Recorded] = {}  # what is recorded after each
        self.holds: dict[str, str] = {}  # those that are not released: name -> digest

    def check(self, receipt: Document, file: str | None) -> Iterator[DamagedError]:
        """Yields what is wrong with the next receipt."""
        place = _place(receipt, file)
        try:
            yield from self._read(receipt, place)
        except (KeyError, TypeError, ValueError, AttributeError):
            yield DamagedError("receipt-differs", place, "it does not have the form of a receipt", _REMEDY)

    def compare(self, receipt: Document) -> Iterator[DamagedError]:
        """Yields an error where a receipt in MongoDB differs from the one in a file."""
        if not seal_of(receipt) == receipt.get("sha256") == self.seals.get(receipt.get("sequence", 0)):
            yield DamagedError("receipt-differs", _place(receipt), "its file has another one", _REMEDY)

    def _read(self, receipt: Document, place: str) -> Iterator[DamagedError]:
        sequence, seal = receipt["sequence"], receipt["sha256"]
        expected = self.sequence + 1
        if receipt["kind"] == "gap" and receipt["lost"]["after"] == self.sequence:
            expected = receipt["lost"]["sequence"] + 1
            self._lost[expected - 1] = receipt["lost"]["sha256"]
        if sequence != expected:
            what = f"the receipts from number {expected} up to this one are gone"
            yield DamagedError("receipt-missing", place, what, _REMEDY)
        elif receipt["previous"] != self._previous:
            yield DamagedError("receipt-differs", place, "the receipt before it has another seal", _REMEDY)
        before = self.times.get(self.sequence, Recorded())
        self.times[sequence] = before.after(receipt["kind"], sequence, receipt["at"])
        self.sequence, self._previous, self.seals[sequence] = sequence, seal, seal
        if seal_of(receipt) != seal or receipt["_id"]["name"] != f"delete-{sequence:010d}":
            yield DamagedError("receipt-differs", place, "it does not match its own SHA-256", _REMEDY)
            return
        if receipt["kind"] in ("delete", "expire") and receipt["policy_sha256"] not in self._texts:
            what = f"the policy text {receipt['policy_sha256'][:16]}… that it names is gone, or was changed"
            yield DamagedError("receipt-differs", place, what, _REMEDY)
        if receipt["kind"] == "delete" and (commit := receipt["held_by"].get("commit")):
            self.commits[commit] = str(receipt["held_by"].get("manifest_sha256"))
            self._deleted.setdefault(commit, []).extend(receipt["positions"])
        if receipt["kind"] == "hold":
            self.holds[receipt["hold"]] = receipt["hold_sha256"]
        elif receipt["kind"] == "release":
            self.holds.pop(receipt["hold"], None)
        try:
            self._keys.check(seal, receipt["signature"], place)
        except DamagedError as error:
            yield error

    def knows(self, named: LastReceipt) -> bool:
        """Returns whether a receipt that a manifest names is there, or known to be lost."""
        if named.sequence in self.seals:
            return self.seals[named.sequence] == named.sha256
        return any(self._is_in_gap(named, last) for last in self._lost)

    def _is_in_gap(self, named: LastReceipt, last: int) -> bool:
        first = max((it for it in self.seals if it < last), default=0) + 1
        return first <= named.sequence < last or (named.sequence, named.sha256) == (last, self._lost[last])


def _place(receipt: Document, file: str | None = None) -> str:
    return f"{file or COLLECTION}, {receipt['_id']['name']}"
