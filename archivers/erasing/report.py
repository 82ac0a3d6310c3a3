"""What an erasure reports: what went, and what remains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

#: The counts. `buckets`: each once, wherever copies of it lay.
COUNTS = (
    "buckets", "live", "online", "archived", "versions", "set_aside", "commits_rewritten", "summaries",
    "pins", "quarantine",
)  # fmt: skip


class Remaining(NamedTuple):
    """A place that the erasure leaves. `found`: the series was found there; else nothing can tell."""

    place: str
    why: str
    found: bool


@dataclass
class ErasureReport:
    """What was erased, or would be in a dry run."""

    counts: Mapping[str, int]
    remaining: list[Remaining]

    @property
    def is_found(self) -> bool:
        """Returns whether something of the series is still there."""
        return any(it.found for it in self.remaining)


def counted(place: str, what: str, count: int) -> Iterator[Remaining]:
    """Yields a line for a place where something was found, unless the count is 0."""
    if count:
        yield Remaining(place, f"{count:,} {what}", True)
