"""The registry of offline commits: what MongoDB knows of an archive, so that the store need not be listed."""

from __future__ import annotations

from collections.abc import Sequence

from pymongo.client_session import ClientSession

from archivers.format.names import Commit
from archivers.records.heads import HEADS, heads_of, types_of
from archivers.records.receipts import Document, Receipts
from buckets.fields.times import DAY_MS


class Registry:
    """The registry of one policy: a `CommitIndex` in MongoDB."""

    def __init__(self, receipts: Receipts, session: ClientSession | None = None) -> None:
        """`session`: for what is registered at one instant."""
        self._receipts = receipts
        self._session = session

    def seal(self, commit: str) -> str | None:
        """Returns the seal that a commit's manifest must have; None where it is not known."""
        return self._receipts.seal(commit)

    def knows(self, commit: Commit) -> bool:
        """Returns whether MongoDB has a receipt of the commit."""
        return self._receipts.knows(commit)

    def within(self, start_ms: int, end_ms: int) -> list[Commit]:
        """Returns the commits that may hold readings in [start, end), milliseconds."""
        return self._receipts.within(start_ms // DAY_MS, (end_ms - 1) // DAY_MS, self._session)

    def span(self) -> tuple[int, int] | None:
        """Returns the first and last UTC day of all commits; None without commits."""
        return self._receipts.span(self._session)

    def sequence(self) -> int:
        """Returns the number of the last registered commit in the chain; 0 without one."""
        heads = heads_of(self._heads)
        return heads.sequence if heads else 0

    def types(self, fields: Sequence[str]) -> dict[str, str] | None:
        """Returns the archived types of these series fields; None where they are not known."""
        return types_of(self._heads, fields)

    @property
    def _heads(self) -> Document | None:
        return self._receipts.get(HEADS)
