"""The registry of offline commits: what MongoDB knows of an archive, so that nobody has to list the store."""

from __future__ import annotations

from collections.abc import Sequence

from pymongo.client_session import ClientSession

from archivers.format.names import Commit
from archivers.records.heads import HEADS, heads_of, types_of
from archivers.records.receipts import Document, Receipts
from buckets.fields.times import DAY_MS


class Registry:
    """Of one policy. Satisfies `CommitIndex`."""

    def __init__(self, receipts: Receipts, session: ClientSession | None = None) -> None:
        """`session`: for what is registered at one instant."""
        self._receipts = receipts
        self._session = session

    def seal(self, commit: str) -> str | None:
        return self._receipts.seal(commit)

    def knows(self, commit: Commit) -> bool:
        return self._receipts.knows(commit)

    def within(self, start_ms: int, end_ms: int) -> list[Commit]:
        return self._receipts.within(start_ms // DAY_MS, (end_ms - 1) // DAY_MS, self._session)

    def span(self) -> tuple[int, int] | None:
        return self._receipts.span(self._session)

    def sequence(self) -> int:
        heads = heads_of(self._heads)
        return heads.sequence if heads else 0

    def types(self, fields: Sequence[str]) -> dict[str, str] | None:
        return types_of(self._heads, fields)

    @property
    def _heads(self) -> Document | None:
        return self._receipts.get(HEADS)
