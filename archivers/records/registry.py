"""The registry of offline commits: what MongoDB knows of an archive, so that the store need not be listed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pymongo.client_session import ClientSession

from bucketwise.archivers.format.chain import Chain
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.names import Commit
from bucketwise.archivers.records.deletions import Deletions
from bucketwise.archivers.records.heads import HEADS, link_of, read_heads, types_of
from bucketwise.archivers.records.receipt_checks import sealed_receipt
from bucketwise.archivers.records.receipts import CODEC, Receipts, commit_of
from bucketwise.buckets.fields.times import DAY_MS

Document = dict[str, Any]
#: Kinds of the receipts which say that a commit has ended: its time was over, or nothing was left in it.
EXPIRED, EMPTIED = "expire", "emptied"
#: Kind of the receipts of erasures that rewrote files of kept buckets.
REKEPT = "rekept"


def ended(receipts: Receipts, record: Document, keys: Keys) -> Document | None:
    """Returns the receipt which says that a commit has ended; None where there is none. Raises DamagedError
    where it is not as it was written."""
    query = {
        "_id.policy": receipts.policy,
        "kind": {"$in": [EXPIRED, EMPTIED]},
        "commit": record["_id"]["name"],
        "manifest_sha256": record["seal"],
    }
    found = receipts.collection.with_options(codec_options=CODEC).find_one(query, sort=[("_id", -1)])
    return None if found is None else sealed_receipt(found, keys)


def record_rekept(
    deletions: Deletions, commit: str, removed: str, added: Collection[str], session: ClientSession
) -> None:
    """Records that a file of buckets which have left a commit makes way for others, or for none. The files
    are given by their SHA-256."""
    facts = {"commit": commit, "removed": removed, "added": sorted(added)}
    deletions.record_event(REKEPT, facts, session)


def kept_of(receipts: Receipts, manifest: Manifest, chain: Chain) -> Collection[str] | None:
    """Returns the SHA-256 of each file that keeps buckets of a dropped commit; None where nothing tells.
    Raises DamagedError where what tells is not as it was written."""
    keys = chain.keys or Keys(is_strict=False)
    told = _told(receipts, receipts.get(manifest.commit) or {}, manifest, chain, keys)
    if told is None:
        return None
    kept = set(told)
    mine = {"_id.policy": receipts.policy, "kind": REKEPT, "commit": manifest.commit}
    for receipt in receipts.collection.with_options(codec_options=CODEC).find(mine).sort("_id"):
        sealed_receipt(receipt, keys)
        kept = (kept - {receipt["removed"]}) | set(receipt["added"])
    return kept


def _told(
    receipts: Receipts, record: Document, manifest: Manifest, chain: Chain, keys: Keys
) -> Collection[str] | None:
    if "replaced_by" not in record:
        return None  # it was dropped by an older release, or the database has forgotten it
    if (by := record["replaced_by"]) is None:
        end = ended(receipts, {**record, "seal": manifest.sha256}, keys)
        return None if end is None else end.get("versions", () if end["kind"] == EXPIRED else None)
    successor = commit_of(found) if "seal" in (found := receipts.get(by) or {}) else None
    if successor is None:
        return None
    told = chain.link(link_of(successor))
    return told.versions if manifest.commit in told.replaces else ()


class Registry:
    """The registry of one policy: a `CommitIndex` in MongoDB."""

    def __init__(self, receipts: Receipts, session: ClientSession | None = None) -> None:
        """`session`: for what is registered at one instant."""
        self._receipts = receipts
        self._session = session

    def seal(self, commit: str) -> str | None:
        """Returns the seal that a commit's manifest must have; None where it is not known."""
        return self._receipts.seal(commit)

    def was_made(self, manifest: Manifest, chain: Chain) -> bool:
        """Returns whether a run has made this manifest: MongoDB has its seal; or the chain leads to it, where
        the database has forgotten it."""
        found = self._receipts.get(manifest.commit) or {}
        if found.get("seal") == manifest.sha256:
            return True
        heads = read_heads(self._receipts)
        walked = chain.walk(heads.links, lost=heads.lost, floor=manifest.sequence) if heads else ()
        return any(isinstance(it, Manifest) and it.sha256 == manifest.sha256 for it in walked)

    def versions(self, manifest: Manifest, chain: Chain) -> Collection[str] | None:
        """Returns what the manifest that has replaced a commit tells, or the receipt that says that nothing
        was left in it; and what erasures have changed since."""
        return kept_of(self._receipts, manifest, chain)

    def within(self, start_ms: int, end_ms: int) -> list[Commit]:
        """Returns the commits that may hold readings in [start, end), milliseconds."""
        return self._receipts.within(start_ms // DAY_MS, (end_ms - 1) // DAY_MS, self._session)

    def span(self) -> tuple[int, int] | None:
        """Returns the first and last UTC day of all commits; None without commits."""
        return self._receipts.span(self._session)

    def types(self, fields: Sequence[str]) -> dict[str, str] | None:
        """Returns the archived types of these series fields; None where they are not known."""
        return types_of(self._receipts.get(HEADS), fields)
