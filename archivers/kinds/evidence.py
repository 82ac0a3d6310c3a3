"""Evidence that an archive has of its copies, whichever kind it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession

from bucketwise.archivers.format.manifest import Manifest, Part
from bucketwise.archivers.versions.history import Version, one_of
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Columns
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.fields.selectors import Selector, selected, selector_query
from bucketwise.buckets.fields.times import DAY_MS, as_ms
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.series import is_of_series
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy
from bucketwise.rollups.holds import Hold

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]
Span = tuple[int, int]  # [start, end) in milliseconds


@dataclass(frozen=True)
class Grid:
    """Adjoining rows of `step` milliseconds that make up whole UTC days."""

    start: int
    end: int
    step: int

    @classmethod
    def around(cls, start_ms: int, end_ms: int, step: int) -> Grid:
        """Returns the rows of the whole days that touch a range."""
        return cls(start_ms // DAY_MS * DAY_MS, -(-end_ms // DAY_MS) * DAY_MS, step)

    def __len__(self) -> int:
        return (self.end - self.start) // self.step

    @property
    def spans(self) -> list[Span]:
        """Returns from when to when each row is."""
        return [(at, at + self.step) for at in range(self.start, self.end, self.step)]

    def rows(self, first_ms: int, last_ms: int) -> slice:
        """Returns the rows from one instant to another, as far as they are among these."""
        first, last = ((ms - self.start) // self.step for ms in (first_ms, last_ms))
        return slice(max(0, first), max(0, last + 1))

    def count(self, times: NDArray[np.int64]) -> Counts:
        """Returns how many of these times lie in each row."""
        inside = times[(times >= self.start) & (times < self.end)]
        return np.asarray(np.bincount((inside - self.start) // self.step, minlength=len(self)))

    def zeros(self) -> Counts:
        """Returns a count of zero for each row."""
        return np.zeros(len(self), dtype=np.int64)

    def by_day(self, counts: Counts) -> Counts:
        """Returns the sums of each day's rows."""
        return np.asarray(counts.reshape(-1, DAY_MS // self.step).sum(axis=1))


@dataclass
class Tally:
    """Readings by row: all, and those of the series asked for, with the buckets that hold them. `bytes`: of
    all buckets, each in the row of its first reading."""

    grid: Grid
    policy: Policy
    selector: Selector
    all: Counts = field(init=False)
    readings: Counts = field(init=False)
    buckets: Counts = field(init=False)
    bytes: Counts = field(init=False)

    def __post_init__(self) -> None:
        self.all, self.readings, self.buckets, self.bytes = (self.grid.zeros() for _ in range(4))

    def add(self, batch: Batch, decoded: Decoded) -> None:
        """Counts the readings and bytes of some buckets. `decoded`: the same buckets, decoded."""
        columns, grid = decoded.columns, self.grid
        first = decoded.spans()[:, 0]
        begins = columns.filled[(first[columns.filled] >= grid.start) & (first[columns.filled] < grid.end)]
        rows = (first[begins] - grid.start) // grid.step
        np.add.at(self.bytes, rows, batch.sizes[decoded.units[begins]])
        self.all += grid.count(columns.time)
        mine = self.chosen(columns)
        self.readings += self.grid.count(columns.time[mine])
        self.buckets += self.rows_of(columns, mine)

    def chosen(self, columns: Columns) -> Flags:
        """Returns which readings are of the series asked for, (n,)."""
        return selected(columns.series, self.policy, self.selector)[columns.series_of_readings]

    def rows_of(self, columns: Columns, readings: Flags) -> Counts:
        """Returns how many buckets have some of these readings in each row."""
        grid, times = self.grid, columns.time
        at = np.flatnonzero(readings & (times >= grid.start) & (times < grid.end))
        pairs = (times[at] - grid.start) // grid.step * len(columns.lengths) + columns.bucket[at]
        rows = np.unique(pairs) // max(1, len(columns.lengths))
        return np.asarray(np.bincount(rows, minlength=len(grid)))


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


class ExpiresWith(NamedTuple):
    """What goes from an archive at once: its last reading, when the last of it was archived (None: not
    known), the name of the record of its tombstone, and the number of the rule that keeps it longest (None:
    not known)."""

    last_ms: int
    archived: datetime | None
    record: str
    rule: int | None


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
    rule: str  # the one that keeps the commit longest, where that is known and not the policy's own

    @property
    def span(self) -> Span:
        """Returns the times of its first and last reading, milliseconds."""
        return as_ms(self.part.first), as_ms(self.part.last)


class ArchivedRows(NamedTuple):
    """The archived buckets of the time of some rows."""

    parts: Sequence[HeldPart]
    online: Tally
    gone: Counts  # readings of online copies whose originals are not live
    expires: Mapping[int, datetime]  # UTC day since 1970 -> when the tombstone of its online copies is due


class ArchivedTotals(NamedTuple):
    """How many buckets are archived, their readings and their bytes of BSON; None where that is not known."""

    buckets: int
    readings: int | None
    bytes: int | None


class StoredSpan(NamedTuple):
    """The time of some buckets, milliseconds, the bytes of their documents, and those that they take up where
    they are."""

    first_ms: int
    last_ms: int
    documents: int
    stored: int

    @property
    def of_documents(self) -> tuple[int, int, int]:
        """Returns the span with the bytes of the documents."""
        return self.first_ms, self.last_ms, self.documents

    @property
    def of_stored(self) -> tuple[int, int, int]:
        """Returns the span with the bytes that they take up."""
        return self.first_ms, self.last_ms, self.stored


class Stored(NamedTuple):
    """How many bytes an archive takes up; the bytes of the documents that have left the source for it, as far
    as its records tell; and what lies in it of the time asked for."""

    size: int
    removed: int
    spans: Sequence[StoredSpan]


class Evidence(Protocol):
    """Evidence from one archive. Changes nothing; raises HaltedError where a copy is not what it was."""

    @property
    def state(self) -> ArchivedState:
        """Returns where a bucket is of which only this archive has a copy."""

    def may_cover(self, hold: Hold) -> bool:
        """Returns whether a hold covers a copy, as far as queries and manifests tell."""

    def totals(self) -> ArchivedTotals:
        """Returns how much is archived."""

    def still_live(self) -> int:
        """Returns how many of the archived buckets have an original that no run has deleted."""

    def stored(self, since_ms: int) -> Stored:
        """Returns how large the archive is, and what in it reaches beyond an instant. Reads nothing of the
        store."""

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

    def expires_with(self, copy: Copy, last_ms: int) -> ExpiresWith:
        """Returns what a copy expires with. `last_ms`: of the bucket."""

    def rows(self, grid: Grid, selector: Selector, session: ClientSession) -> ArchivedRows:
        """Returns what lies in the time of these rows. Reads no part."""


class NoEvidence:
    """The `Evidence` of a policy without an archive."""

    state: ArchivedState = "archived"

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def may_cover(self, hold: Hold) -> bool:
        """Returns False."""
        return False

    def totals(self) -> ArchivedTotals:
        """Returns zeros."""
        return ArchivedTotals(0, 0, 0)

    def still_live(self) -> int:
        """Returns 0."""
        return 0

    def stored(self, since_ms: int) -> Stored:
        """Returns zeros."""
        return Stored(0, 0, ())

    def samples(self) -> Iterator[Batch]:
        """Yields nothing."""
        return iter(())

    def find(self, identity: Any, at_ms: int | None) -> None:
        """Returns None."""

    def covering(self, at_ms: int, selector: Selector) -> Iterator[Located]:
        """Yields nothing."""
        return iter(())

    def copies(self, buckets: Batch, policy: Policy, live: Iterable[bytes]) -> dict[bytes, list[Copy]]:
        """Returns no copies."""
        return {}

    def events(self, raw_id: bytes, copies: Sequence[Copy], span: Span) -> Iterator[Event]:
        """Yields nothing."""
        return iter(())

    def expires_with(self, copy: Copy, last_ms: int) -> ExpiresWith:
        """Raises AssertionError: there are no copies."""
        raise AssertionError(copy, last_ms)

    def rows(self, grid: Grid, selector: Selector, session: ClientSession) -> ArchivedRows:
        """Returns empty rows."""
        return ArchivedRows((), Tally(grid, self._policy, selector), grid.zeros(), {})


def covering_in(source: Source, at_ms: int, selector: Selector) -> Iterator[Located]:
    """Yields the buckets of a collection that cover an instant, of some series."""
    query = selector_query(source.policy, selector)
    return covering(source.policy, source.batches(at_ms, at_ms + 1, query), at_ms, selector)


def covering(policy: Policy, batches: Iterable[Batch], at_ms: int, selector: Selector) -> Iterator[Located]:
    """Yields the buckets that cover an instant by their fields, and that may be of the series asked for."""
    for batch in batches:
        for i in _near(policy, batch, at_ms):
            document = batch.main[i]
            span = model_of(policy).covered_span(document)
            if span and span[0] <= at_ms < span[1] and is_of_series(policy, document, selector):
                yield Located(policy, one_of(batch, i))


def _near(policy: Policy, batch: Batch, at_ms: int) -> list[int]:
    """Returns the buckets of a batch that may cover the instant, by their times: a commit may hold many
    others."""
    model = model_of(policy)
    if model.length_ms is None:  # its fields may name more time than it has readings in
        return list(range(len(batch)))
    decoded = decode(batch, policy)
    first, last = decoded.spans().T
    far = decoded.units[(first > at_ms + model.reach_ms) | (last < at_ms - model.reach_ms)]
    near: list[int] = np.setdiff1d(np.arange(len(batch)), far).tolist()
    return near
