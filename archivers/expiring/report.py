"""What a run removed, or would remove, by `retain.archive`."""

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
    """Counts of an expiry: what got a tombstone (`tombstoned`), already had one (`standing`), was removed
    (`expired`), or is kept by `undelete` (`lifted`). And how many buckets stay: by the name of the hold that
    keeps them (`held`), or since their originals are live (`live`)."""

    tombstoned: Amount = field(default_factory=Amount)
    standing: Amount = field(default_factory=Amount)
    expired: Amount = field(default_factory=Amount)
    lifted: Amount = field(default_factory=Amount)
    held: Counter[str] = field(default_factory=Counter)
    live: int = 0
