"""Signing what is there already: where signing is turned on, a key is changed, or it is given up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pymongo.database import Database

from archivers.format.archive import OfflineArchive
from archivers.format.keys import Keys
from archivers.format.manifest import Manifest
from archivers.proof.verify import verify
from archivers.records.deletions import deletions
from archivers.records.heads import read_heads
from archivers.records.receipts import Receipts
from archivers.stores.base import ObjectStore
from config.errors import HaltedError
from config.policies import Policy


@dataclass
class SignReport:
    """How many were not signed by the first key, and are now. Without a key: how many were signed."""

    manifests: int = 0
    receipts: int = 0


def sign(
    database: Database[dict[str, Any]],
    policy: Policy,
    store: ObjectStore | None,
    keys: Keys,
    *,
    check: Callable[[], None],
    progress: Callable[[str, int], None],
) -> SignReport:
    """Sign every manifest and receipt by the first key. Seals stay: they don't cover signatures.

    All is verified first. Raises HaltedError, and signs nothing, where anything but a signature is amiss.
    Cut off, it goes on when it runs again.
    """
    lenient, report = keys.lenient(), SignReport()
    found = verify(
        database, policy, store, keys=lenient, since=None, until=None, check=check, progress=progress
    )
    if found.bad:
        raise HaltedError(f"nothing was signed, since not all is as it was: {found.bad[0].message}")
    receipts = Receipts(database, policy.name)
    if policy.archive is not None and policy.archive.to == "offline" and store is not None:
        chain = OfflineArchive(policy, store, receipts.seal, lenient).chain
        heads = read_heads(receipts)
        roots = heads.roots(receipts.all_seals()) if heads else ()
        for manifest in chain.walk(roots, lost=heads.lost if heads else ()):
            check()
            assert isinstance(manifest, Manifest)
            report.manifests += chain.sign(manifest, keys)
    for receipt in deletions(receipts):
        check()
        signature = keys.sign(receipt["sha256"])
        if receipt["signature"] != signature:
            receipts.update(receipt["_id"]["name"], {"$set": {"signature": signature}})
            report.receipts += 1
    return report
