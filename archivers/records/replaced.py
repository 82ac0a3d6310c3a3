"""The commits that a commit took over. Their manifests stay as links of the chain."""

from __future__ import annotations

from archivers.format.archive import OfflineArchive
from archivers.format.manifest import Manifest
from archivers.records.heads import link_of
from archivers.records.receipts import Receipts, commit_of


def with_replaced(receipts: Receipts, archive: OfflineArchive, manifest: Manifest) -> list[Manifest]:
    """Returns a manifest and those of all commits that it took over, and that these took over before. Raises
    DamagedError where one of them is gone."""
    found = {manifest.link: manifest}
    waiting = [manifest]
    while waiting:
        names = [name for it in waiting for name in it.replaces]
        known = [commit_of(it) for it in receipts.get_all(names).values() if "seal" in it] if names else []
        waiting = [archive.chain.link(link_of(it)) for it in known if it is not None]
        waiting = [it for it in waiting if it.link not in found]
        found |= {it.link: it for it in waiting}
    return list(found.values())
