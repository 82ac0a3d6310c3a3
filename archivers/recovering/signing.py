"""Signs the chain of an offline archive, whoever has signed it before."""

from __future__ import annotations

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import Manifest, encoded
from bucketwise.archivers.records.heads import last_checkpoint, read_heads


def sign_manifests(context: ArchiveContext, archive: OfflineArchive, keys: Keys) -> int:
    """Signs every manifest of the chain, and the last checkpoint, by the first of these keys. Returns how
    many manifests it has not signed before. Raises DamagedError where one can't be read."""
    heads, chain, count = read_heads(context.receipts), archive.chain, 0
    if heads is None:
        return 0
    for manifest in heads.walk(chain, context.receipts.all_registered().values()):
        context.check()
        if not isinstance(manifest, Manifest):  # older than the last checkpoint: `verify` has not read it
            raise manifest
        count += chain.sign(manifest, keys)
    if (checkpoint := last_checkpoint(context.receipts, archive, heads)) is not None:
        signature = keys.sign(checkpoint.sha256)
        chain.put(checkpoint.key, encoded(checkpoint.model_copy(update={"signature": signature})))
    return count
