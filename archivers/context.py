"""What one archive run works with, and what it reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession
from pymongo.database import Database

from archivers.format.keys import Keys
from archivers.records.deletions import Deletions
from archivers.records.pins import Pins
from archivers.records.receipts import Receipts
from archivers.tasks import Executor
from buckets.bson.raw import Batch
from buckets.columns import Quarantined, Series
from buckets.decoding.decode import Lot, decode
from buckets.fields.times import DAY_MS, as_date, as_ms
from buckets.models import timeseries
from buckets.source import Source
from config.policies import Archive, Policy

Document = dict[str, Any]
#: So many quarantined buckets are reported one by one; the rest is counted.
MAX_DETAILS = 1000
#: Why buckets stay though all they hold is before what is rolled up.
NOT_ROLLED_UP = "its windows have changed since they were rolled up"


#: Why buckets stay that hold nothing of what they are for.
VALUELESS = (
    "no finite value in a value field for a whole day, of a series that had some: mend the field, or name it "
    "in nonnumeric_ok"
)


@dataclass(frozen=True)
class Valueless:
    """A day of a series in which no reading holds a finite number in a value field, though earlier or later
    ones do."""

    field: str
    series: Series
    day: int  # since 1970, UTC

    @property
    def date(self) -> str:
        return f"{as_date(self.day * DAY_MS):%Y-%m-%d}"


@dataclass
class ArchiveReport:
    """Counts of one run. `left` are expired buckets that stay; `reasons` says why, with how many."""

    to: str
    buckets: int = 0
    readings: int = 0
    parts: int = 0
    bytes: int = 0
    deleted: int = 0
    left: int = 0
    changed: int = 0  # of those left: changed between copy and delete, or while they were read
    valueless: list[Valueless] = field(default_factory=list)  # the first thousand
    quarantined: list[Quarantined] = field(default_factory=list)
    quarantined_total: int = 0
    _named: set[int] = field(default_factory=set)  # of the quarantined, 8 bytes a bucket
    reasons: Counter[str] = field(default_factory=Counter)

    def quarantine(self, found: list[Quarantined]) -> None:
        """Each bucket once; the first thousand in detail."""
        for bucket in found:
            name = hash((type(bucket.id), repr(bucket.id)))
            if name not in self._named:
                self._named.add(name)
                self.quarantined_total += 1
                if len(self.quarantined) < MAX_DETAILS:
                    self.quarantined.append(bucket)

    def hold(self, count: int, found: list[Valueless]) -> None:
        """Buckets stay since they hold no number where there should be some."""
        self.leave(count, VALUELESS)
        self.valueless += found[: MAX_DETAILS - len(self.valueless)]

    def leave(self, count: int, reason: str) -> None:
        if count:
            self.left += count
            self.reasons[reason] += count

    def change(self, count: int) -> None:
        self.changed += count
        self.leave(count, "changed between copy and delete: copied again by a later run")


#: Whether a run under this fence, at this instant, is one that the database knows of.
KnowsRun = Callable[[int, datetime], bool]


class RolledUp(Protocol):
    """Brings the summaries of the windows up to date that a range (milliseconds) touches.

    Returns whether they are now. `anew`: also where nothing tells of a change."""

    def __call__(self, start_ms: int, end_ms: int, /, *, anew: bool = False) -> bool: ...


@dataclass(frozen=True)
class Work:
    """One policy's archive run. `check` raises where the run must stop; `guard` does in a transaction."""

    database: Database[Document]
    policy: Policy
    now: datetime
    fence: int
    guard: Callable[[ClientSession], None]
    check: Callable[[], None]
    progress: Callable[[str, int], None]
    report: ArchiveReport
    dry_run: bool
    rolled_up: RolledUp
    keys: Keys
    knows_run: KnowsRun
    executor: Executor

    @property
    def archive(self) -> Archive:
        assert self.policy.archive is not None
        return self.policy.archive

    @property
    def source(self) -> Source:
        return Source(self.database, self.policy)

    @property
    def receipts(self) -> Receipts:
        return Receipts(self.database, self.policy.name)

    @cached_property
    def deletions(self) -> Deletions:
        return Deletions(self.receipts, self.policy, self.fence, self.now, self.keys)

    @cached_property
    def pins(self) -> Pins:
        return Pins(self.database, self.policy, self.now)

    def without_pinned(self, batch: Batch) -> NDArray[np.int64]:
        """Of a batch: the indices of the buckets that are not pinned."""
        return np.setdiff1d(np.arange(len(batch)), list(self.pins.of(batch)))

    @property
    def measured(self) -> bool:
        """Measurements of a native time-series collection don't change, and may share an `_id`."""
        return self.policy.model == "timeseries"

    @property
    def cutoff(self) -> int:
        """Milliseconds; a bucket whose last reading is before it has expired."""
        after = self.archive.after
        return -(2**62) if after is None else as_ms(self.now - after)

    @property
    def kept(self) -> str | None:
        """Why copies are not followed by a delete; None where they are."""
        if self.measured:
            return timeseries.KEPT
        return None if self.archive.delete else "copied and kept: the policy says delete = false"

    def in_grace(self, copied: datetime) -> bool:
        return self.now < copied + self.archive.grace

    @property
    def grace(self) -> str:
        """Why originals stay while their grace lasts."""
        return f"copied, and waits for the grace of {self.archive.grace}"

    def waits(self, copied: datetime) -> str | None:
        """Why the original of a copy of this instant stays; None where it may go."""
        return self.kept or (self.grace if self.in_grace(copied) else None)

    def going(self, copies: Batch, start_ms: int, end_ms: int) -> tuple[Batch, NDArray[np.int64]]:
        """Of copies that earlier runs made: those that end in [start, end), and whose originals neither pins
        nor roll-ups keep; and the spans of all of them."""
        decoded = decode(copies, self.policy)
        due = decoded.units[(decoded.last >= start_ms) & (decoded.last < end_ms)]
        found = copies.take(np.sort(due))
        found = found.take(self.without_pinned(found))
        spans = decoded.spans()  # what was equal all along may have been another one in between
        if len(found) and not self.rolled_up(int(spans.min()), int(spans.max()) + 1):
            found = found.take(np.zeros(0, dtype=np.int64))
        return found, spans


class Archiver(Protocol):
    """One of the two archives, at work."""

    def recover(self) -> None:
        """Undo or finish what a crash left."""

    def settle(self, start_ms: int, end_ms: int) -> None:
        """Of buckets that end in [start, end): delete what was copied by earlier runs and may go now."""

    def misfit(self, series: Series) -> tuple[str, object] | None:
        """A series field, and its value, that the archive can't hold beside what it has."""

    def fresh(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.int64]:
        """Of some expired buckets, that cover first to last: the indices of those that have to be copied."""

    def move(self, lot: Lot) -> None:
        """Copy, verify, and delete what may go, now or by the end of `finish`."""

    def finish(self) -> None:
        """Bring to its end what `move` has begun."""

    def close(self) -> None:
        """Stop what is at work; what `finish` has not finished is left to the next run."""
