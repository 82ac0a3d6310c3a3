"""Decides which commits are merged: those of one UTC day, up to what one commit may hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from bucketwise.archivers.format.names import Commit
from bucketwise.archivers.moving.filling import MAX_BYTES, MAX_READINGS
from bucketwise.buckets.decoding.decode import cells_of
from bucketwise.buckets.fields.times import as_ms
from bucketwise.config.policies import Policy
from bucketwise.config.tables import USUAL_MEMORY

#: The most sections of a commit, about, each of the size of a commit that an archive run makes, and the most
#: buckets: its receipt has a bit for each.
MAX_SECTIONS, MAX_BUCKETS = 32, 16_000_000
#: With at least so many commits, a day is merged even if something was archived into it lately.
MANY = 100


class Size(NamedTuple):
    """How much commits hold."""

    cells: int  # see `BucketSet.cells`; of irregular buckets more, as their documents tell
    bytes: int  # of BSON


@dataclass(frozen=True)
class CommitInfo:
    """A registered commit, as its receipt describes it."""

    commit: Commit
    committed: datetime
    buckets: int
    held: Size
    stored: int  # bytes in the store
    merge_key: str  # see `Manifest.merge_key`
    is_closed: bool  # none of its buckets is live
    is_compacted: bool  # a compaction has made it, or seen it and left it as it is
    has_tombstone: bool  # it has or had a tombstone
    span: tuple[int, int]  # from its first reading until after its last, milliseconds

    @classmethod
    def of(cls, commit: Commit, receipt: dict[str, Any], policy: Policy) -> CommitInfo:
        """Returns the commit of this policy that a receipt describes."""
        cells = cells_of(receipt["readings"], receipt["buckets"], policy)
        return cls(
            commit,
            receipt["committed"],
            receipt["buckets"],
            Size(cells, receipt["documents_bytes"]),
            receipt["bytes"],
            receipt["kin"],
            receipt["state"] == "closed",
            receipt["compacted"],
            "tombstone" in receipt,
            (as_ms(receipt["first"]), as_ms(receipt["last"]) + 1),
        )


def section_limit(memory: int) -> Size:
    """Returns how much one section may hold: as much as an archive run puts into a commit."""
    share = memory / USUAL_MEMORY
    return Size(int(MAX_READINGS * share), int(MAX_BYTES * share))


def mergeable(day: Sequence[CommitInfo], quiet_since: datetime | None) -> list[CommitInfo]:
    """Returns the commits of a day that may be merged. A day into which anything was archived after
    `quiet_since` is left alone, as more may come, unless it has very many commits. None: no day is left
    alone."""
    if quiet_since is None:
        return list(day)
    old = [it for it in day if it.committed <= quiet_since]
    return old if len(old) == len(day) or len(old) >= MANY else []


def groups(day: Iterable[CommitInfo], section: Size, budget: int | None) -> Iterator[list[CommitInfo]]:
    """Yields groups of a day's commits, each of which becomes one commit: neighbours in the chain, up to what
    one commit may hold, and at most `budget` bytes of BSON. Commits without a neighbour to merge with are
    left out.

    A commit with live buckets stays of one section: it is rewritten when one of them changes."""
    by_key: dict[str, list[CommitInfo]] = {}
    for it in day:
        by_key.setdefault(it.merge_key, []).append(it)
    for alike in by_key.values():
        filled: list[list[CommitInfo]] = [[]]
        for it in sorted(alike, key=lambda it: it.commit.sequence):
            if filled[-1] and _exceeds([*filled[-1], it], section, budget):
                filled.append([])
            filled[-1].append(it)
        found = [_without_dominant(group, section) for group in filled]
        yield from (group for group in found if len(group) > 1)


def _exceeds(group: Sequence[CommitInfo], section: Size, budget: int | None) -> bool:
    total = _size(group)
    sections = MAX_SECTIONS if all(it.is_closed for it in group) else 1
    is_large = total.cells > sections * section.cells or total.bytes > sections * section.bytes
    is_over_budget = budget is not None and total.bytes > max(budget, section.bytes)
    return is_large or is_over_budget or sum(it.buckets for it in group) > MAX_BUCKETS


def _without_dominant(group: list[CommitInfo], section: Size) -> list[CommitInfo]:
    """Returns the group without a commit of several sections that holds more than all others together.
    Otherwise a few late readings would have all of a large day written again, each time."""
    largest = max(group, key=lambda it: it.held.bytes)
    is_several = largest.held.cells > section.cells or largest.held.bytes > section.bytes
    if len(group) > 1 and is_several and 2 * largest.held.bytes > _size(group).bytes:
        return _without_dominant([it for it in group if it is not largest], section)
    return group


def _size(group: Sequence[CommitInfo]) -> Size:
    return Size(sum(it.held.cells for it in group), sum(it.held.bytes for it in group))
