"""What a run did, or would do, at the end of an archive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Amount:
    """How much of an archive. `days`: UTC days since 1970. `bytes`: in the store; online, of BSON."""

    days: set[int] = field(default_factory=set)
    buckets: int = 0
    bytes: int = 0

    def add(self, days: Iterable[int], buckets: int, size: int) -> None:
        """Counts something more."""
        self.days.update(days)
        self.buckets += buckets
        self.bytes += size


@dataclass
class ExpiryReport:
    """Counts at the end of an archive: what got a tombstone, what has one, what went, and what `undelete`
    keeps from getting one; and how many buckets stay, by the name of the hold, or since their originals are
    live."""

    tombstoned: Amount = field(default_factory=Amount)
    standing: Amount = field(default_factory=Amount)
    expired: Amount = field(default_factory=Amount)
    lifted: Amount = field(default_factory=Amount)
    held: Counter[str] = field(default_factory=Counter)
    live: int = 0
