"""The registry of offline commits: what MongoDB knows of an archive, so that the store need not be listed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pymongo.client_session import ClientSession

from bucketwise.archivers.format.chain import Chain
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.names import Commit
from bucketwise.archivers.records.dropped import kept_of
from bucketwise.archivers.records.heads import HEADS, read_heads, types_of
from bucketwise.archivers.records.receipts import Receipts
from bucketwise.buckets.fields.times import DAY_MS


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
