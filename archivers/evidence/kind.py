"""What an archive can tell of its copies, whichever kind it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol

from pymongo.client_session import ClientSession

from bucketwise.archivers.evidence.grid import Counts, Grid, Span, Tally
from bucketwise.archivers.format.manifest import Manifest, Part
from bucketwise.archivers.versions.history import Version
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.fields.selectors import Selector
from bucketwise.buckets.fields.times import as_ms
from bucketwise.config.policies import Policy
from bucketwise.rollups.holds import Hold

What = Literal["quarantined", "copied", "merged", "rewritten", "deleted", "pinned"]
#: Where a bucket is of which only the archive has a copy.
ArchivedState = Literal["archived", "online"]


class Located(NamedTuple):
    """A bucket (of one), and the policy by which it is decoded."""

    policy: Policy
    bucket: Batch


class Searched(NamedTuple):
    """How many commits were read to find an `_id`, of how many there are."""

    read: int
    commits: int


class Copy(NamedTuple):
    """A version of a bucket in an archive."""

    version: Version
    may_be_live: bool  # no run has deleted its original
    copied: datetime | None  # the grace counts from then; None: not known


class Event(NamedTuple):
    """Something that happened to a bucket. `at`: None where no record has it. `fence`: of the lease of the
    run that did it, where that is known."""

    at: datetime | None
    event: What
    commit: str | None = None
    receipt: int | None = None
    fence: int | None = None
    detail: str | None = None


class HeldPart(NamedTuple):
    """A part of a commit, as its manifest describes it."""

    manifest: Manifest
    part: Part
    bytes: int  # of its file, and for the first part of a section of the section's buckets file
    live: int  # buckets of the commit that may be live
    drilled: datetime | None
    may_hold: bool  # of the series asked for
    expires: datetime | None  # when its tombstone is due

    @property
    def span(self) -> Span:
        """Returns the times of its first and last reading, milliseconds."""
        return as_ms(self.part.first), as_ms(self.part.last)


class ArchivedRows(NamedTuple):
    """What an archive has of the time of some rows."""

    parts: Sequence[HeldPart]
    online: Tally
    gone: Counts  # readings of online copies whose originals are not live
    expires: Mapping[int, datetime]  # UTC day since 1970 -> when the tombstone of its online copies is due


class ArchivedTotals(NamedTuple):
    """How many buckets are archived, their readings and their bytes of BSON; None where that is not known."""

    buckets: int
    readings: int | None
    bytes: int | None


class Evidence(Protocol):
    """What one archive tells. Changes nothing; raises HaltedError where a copy is not what it was."""

    @property
    def state(self) -> ArchivedState:
        """Returns where a bucket is of which only this archive has a copy."""

    def may_cover(self, hold: Hold) -> bool:
        """Returns whether a hold covers a copy, as far as queries and manifests tell."""

    def totals(self) -> ArchivedTotals:
        """Returns how much is archived."""

    def samples(self) -> Iterator[Batch]:
        """Yields a few archived buckets."""

    def find(self, identity: Any, at_ms: int | None) -> Located | Searched | None:
        """Returns a copy of the bucket with this `_id`, or what was searched in vain. `at_ms`: the bucket
        touches the UTC day of this instant."""

    def covering(self, at_ms: int, selector: Selector) -> Iterator[Located]:
        """Yields copies of the buckets that cover an instant, of some series."""

    def copies(self, buckets: Batch, policy: Policy, live: Iterable[bytes]) -> dict[bytes, list[Copy]]:
        """Returns the copies of these buckets by `same_id`, the oldest first; some have none. `policy`: by
        which they are decoded; `live`: what is live of them."""

    def events(self, raw_id: bytes, copies: Sequence[Copy], span: Span) -> Iterator[Event]:
        """Yields what has happened to a bucket of which there are copies. `span`: its first and last time."""

    def expires_with(self, copy: Copy, last_ms: int) -> tuple[int, str]:
        """Returns the last reading of what a copy expires with, and the name of the record of that.
        `last_ms`: of the bucket."""

    def rows(self, grid: Grid, selector: Selector, session: ClientSession) -> ArchivedRows:
        """Returns what lies in the time of these rows. Reads no part."""


class NoEvidence:
    """The `Evidence` of a policy without an archive."""

    state: ArchivedState = "archived"

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def may_cover(self, hold: Hold) -> bool:
        """Returns False."""
        del hold
        return False

    def totals(self) -> ArchivedTotals:
        """Returns zeros."""
        return ArchivedTotals(0, 0, 0)

    def samples(self) -> Iterator[Batch]:
        """Yields nothing."""
        return iter(())

    def find(self, identity: Any, at_ms: int | None) -> None:
        """Returns None."""
        del identity, at_ms

    def covering(self, at_ms: int, selector: Selector) -> Iterator[Located]:
        """Yields nothing."""
        del at_ms, selector
        return iter(())

    def copies(self, buckets: Batch, policy: Policy, live: Iterable[bytes]) -> dict[bytes, list[Copy]]:
        """Returns no copies."""
        del buckets, policy, live
        return {}

    def events(self, raw_id: bytes, copies: Sequence[Copy], span: Span) -> Iterator[Event]:
        """Yields nothing."""
        del raw_id, copies, span
        return iter(())

    def expires_with(self, copy: Copy, last_ms: int) -> tuple[int, str]:
        """Raises AssertionError: there are no copies."""
        raise AssertionError(copy, last_ms)

    def rows(self, grid: Grid, selector: Selector, session: ClientSession) -> ArchivedRows:
        """Returns empty rows."""
        del session
        return ArchivedRows((), Tally(grid, self._policy, selector), grid.zeros(), {})
