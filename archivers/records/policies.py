"""The last text of each policy, by which what it has archived can be read when it has left the file.

One document a policy beside its progress, written by runs when it has changed. One that does not match its
digest, or is not signed where manifests are, counts as none. It also says whether originals were deleted into
an online archive: a witness of its receipts that lies apart from them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.archivers.format.keys import UNSIGNED, Keys
from bucketwise.archivers.format.manifest import DamagedError, LastReceipt, read_manifest
from bucketwise.archivers.records.heads import commit_of_link, read_heads
from bucketwise.archivers.records.receipt_files import ReceiptFiles, seal_of
from bucketwise.archivers.records.receipts import CODEC, Receipts, reading
from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.config.errors import hide_secrets
from bucketwise.config.load import policy_in
from bucketwise.config.models import LAYOUT_KEYS, recorded_policy
from bucketwise.config.policies import Policy
from bucketwise.config.problems import ConfigError
from bucketwise.config.written import policy_toml
from bucketwise.rollups.holds import COLLECTION as HOLDS
from bucketwise.rollups.progress import COLLECTION, progress_collection

Document = dict[str, Any]
#: Kind of the receipt that ends a policy.
RETIRE = "retire"
_OF_ROLLUP = ("hourly", "daily", "levels", "timezone", "percentiles")


@dataclass(frozen=True)
class PolicyRecord:
    """The last text of a policy. `identity`: the name under which its archive is kept. `retired`: the receipt
    that ended it. `has_deleted`: originals were deleted into an online archive."""

    identity: str
    collection: str
    model: str
    text: str
    retired: LastReceipt | None = None
    has_deleted: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, policy: Policy) -> PolicyRecord:
        """Returns what the policy says now."""
        return cls(policy.identity, policy.collection, policy.model, hide_secrets(policy_toml(policy)))

    @property
    def policy(self) -> Policy | None:
        """Returns the policy; what is secret in it is hidden. None where this release can't read the text of
        another one."""
        try:
            found = policy_in(self.text, COLLECTION)
        except ConfigError:
            return None
        return found if found.identity == self.identity else found.model_copy(update={"id": self.identity})

    @property
    def seal(self) -> str:
        """Returns the SHA-256 of what it says, and of its identity."""
        said = [self.identity, self.collection, self.model, self.text]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()


class PolicyRecords:
    """The last texts of the policies of a database, whichever policy file they are in."""

    def __init__(
        self, database: Database[Document], store: ObjectStore | None, keys: Keys = UNSIGNED
    ) -> None:
        self._database, self._store, self._keys = database, store, keys
        self._collection = progress_collection(database)

    def get(self, identity: str) -> PolicyRecord | None:
        """Returns what a policy said last, as a run has recorded it; None where none has."""
        return self._read(self._collection.find_one({"_id": {"policy": identity}}))

    def last(self, identity: str) -> Policy | None:
        """Returns the policy as it was last; of one that no run has recorded yet, as far as its archive tells
        it. None where nothing is known of it."""
        record = self.get(identity)
        return (record and record.policy) or self._archived(identity)

    def standing(self) -> Iterator[Policy]:
        """Yields the policies as runs have recorded them last, without those that have ended."""
        records = (it for it in self._records() if not self.is_retired(it))
        yield from (it for record in records if (it := record.policy) is not None)

    def note(self, record: PolicyRecord) -> PolicyRecord:
        """Records what a policy says, and returns it."""
        self._put(record)
        return record

    def retire(self, policy: Policy, receipt: LastReceipt, session: ClientSession) -> None:
        """Records, in the transaction that writes the receipt, that a policy has ended."""
        self._put(replace(PolicyRecord.of(policy), retired=receipt), session)

    def is_retired(self, record: PolicyRecord) -> bool:
        """Returns whether a receipt says that the policy has ended."""
        if record.retired is None:
            return False
        receipts, number = Receipts(self._database, record.identity), record.retired.sequence
        query = {"_id": receipts.identity(f"delete-{number:010d}")}
        found = receipts.collection.with_options(codec_options=CODEC).find_one(query)
        if found is None:  # it was moved to the store
            return ReceiptFiles(receipts, self._store).seals([number]).get(number) == record.retired.sha256
        return bool(found["kind"] == RETIRE and seal_of(found) == record.retired.sha256)

    def has_any(self, identity: str) -> bool:
        """Returns whether any record is kept under this name."""
        return any(
            self._database[name].find_one(query, {"_id": 1}) is not None
            for name, query in (
                (Receipts(self._database, identity).collection.name, {"_id.policy": identity}),
                (COLLECTION, {"_id": {"$in": [identity, {"policy": identity}]}}),
                (HOLDS, {"_id.policy": identity}),
            )
        )

    def departed(self, policy: Policy, known: Iterable[Policy]) -> list[str]:
        """Returns the policies of the same collection and model that are not among the `known` ones, and have
        not ended."""
        here = {policy.identity, *(it.identity for it in known)}
        records = self._records(collection=policy.collection, model=policy.model)
        found = [it.identity for it in records if it.identity not in here and not self.is_retired(it)]
        for identity in self._with_receipts():
            if identity not in here and self.get(identity) is None:
                before = self._archived(identity)
                if before and (before.collection, before.model) == (policy.collection, policy.model):
                    found.append(identity)
        return sorted(found)

    def all_departed(self, known: Iterable[Policy]) -> Iterator[Policy]:
        """Yields the policies that are not among the `known` ones and have archived something, as they were
        last; also those that have ended."""
        here = {"", *(it.identity for it in known)}
        for identity in sorted(set(self._with_receipts()) - here):
            if (found := self.last(identity)) is not None:
                yield found

    def archives_besides(self, policy: Policy) -> bool:
        """Returns whether another policy has archived of the same collection: of this file or another one, or
        one that has ended."""
        others = (self.last(it) for it in self._with_receipts() if it not in ("", policy.identity))
        return any(it and it.archiving and it.collection == policy.collection for it in others)

    def _with_receipts(self) -> list[str]:
        """Returns the identities of all policies that have receipts."""
        return Receipts(self._database, "").collection.distinct("_id.policy")

    def _archived(self, identity: str) -> Policy | None:
        """Returns a policy as receipts of its deletes tell it, or else the last manifest of its archive."""
        receipts = Receipts(self._database, identity)
        texts = receipts.policies()
        named = receipts.collection.find({"_id.policy": identity, "policy_sha256": {"$in": list(texts)}})
        for newest in named.sort("_id", -1).limit(1):
            return _policy_of(identity, json.loads(texts[newest["policy_sha256"]]))
        heads = read_heads(receipts)
        if self._store is None or heads is None or not heads.links:
            return None
        try:
            manifest = read_manifest(self._store, identity, commit_of_link(heads.links[-1]))
        except DamagedError:
            return None
        said = {"collection": manifest.collection, **manifest.layout, "archive": {"to": "offline"}}
        return _policy_of(identity, said)

    def _records(self, **alike: str) -> Iterator[PolicyRecord]:
        found = self._collection.find({"_id.policy": {"$exists": True}, **alike})
        return (record for it in found if (record := self._read(it)) is not None)

    def _put(self, record: PolicyRecord, session: ClientSession | None = None) -> None:
        document: Document = {
            "collection": record.collection,
            "model": record.model,
            "text": record.text,
            "sha256": record.seal,
            "signature": self._keys.sign(record.seal),
            "retired": record.retired and record.retired.model_dump(),
        }
        if record.has_deleted:  # once, and for good
            document["has_deleted"] = True
        query = {"_id": {"policy": record.identity}}
        self._collection.update_one(query, {"$set": document}, upsert=True, session=session)

    def _read(self, found: Document | None) -> PolicyRecord | None:
        if found is None:
            return None
        with reading(found["_id"]["policy"], COLLECTION):
            retired = found["retired"] and LastReceipt(**found["retired"])
            said = {key: found[key] for key in ("collection", "model", "text")}
        has_deleted = bool(found.get("has_deleted"))
        record = PolicyRecord(found["_id"]["policy"], retired=retired, has_deleted=has_deleted, **said)
        try:
            if self._keys.first is not None:  # without a key nothing can be said about signatures
                self._keys.check(record.seal, found["signature"], COLLECTION)
        except DamagedError:
            return None
        return record if record.seal == found["sha256"] else None


def _policy_of(identity: str, said: Document) -> Policy:
    """Returns a policy that reads what was archived. `said`: the keys that are known of it."""
    kept = {key: said[key] for key in (*sorted(LAYOUT_KEYS), "collection") if key in said}
    if rollup := said.get("rollup"):
        kept["rollup"] = {key: rollup[key] for key in _OF_ROLLUP if key in rollup}
    if archive := said.get("archive"):
        kept["archive"] = {"after": None, "to": archive["to"], "collection": archive.get("collection")}
    return recorded_policy({"name": identity, **kept})
