"""What an archive run reports: what was moved, what stays, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bucketwise.buckets.columns import Quarantined, Series
from bucketwise.buckets.fields.times import DAY_MS, as_date
from bucketwise.config.amounts import RemovalLimit

#: Quarantined buckets that are reported one by one; the rest are counted.
MAX_DETAILS = 1000
#: Why buckets stay though they end before the watermark.
NOT_ROLLED_UP = "its windows have changed since they were rolled up"
#: Why buckets stay that hold no numbers.
VALUELESS = (
    "no finite value in a value field for a whole day, of a series that had some: correct the field, or name "
    "it in nonnumeric_ok"
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
        """Returns the day as YYYY-MM-DD."""
        return f"{as_date(self.day * DAY_MS):%Y-%m-%d}"


class DeleteLimit(RemovalLimit):
    """How many buckets a run would delete, of how many in the collection, and how many it may."""

    @property
    def message(self) -> str:
        """Says by how much the run is too large, and what to do."""
        return (
            f"it would delete {self.due:,} of the {self.total:,} buckets of {self.collection}, and "
            f"archive.max_delete ({self.written}) allows {self.most:,}. Check that the policy says what "
            "you mean; if so, run once with --allow-large"
        )

    def message_after(self, deleted: int) -> str:
        """Returns a message that more is due than was counted, after `deleted` deletes."""
        return (
            f"more is due than the {self.due:,} buckets of {self.collection} that were counted, such as "
            "archived buckets that were put back by hand, or quarantined ones that are sound again. "
            f"It has deleted {deleted:,}, and archive.max_delete ({self.written}) allows {self.most:,}. If "
            "the others may go as well, run once with --allow-large"
        )


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
    changed: int = 0  # among those left: changed between copy and delete, or while they were read
    valueless: list[Valueless] = field(default_factory=list)  # the first thousand
    quarantined: list[Quarantined] = field(default_factory=list)
    quarantined_total: int = 0
    _named: set[int] = field(default_factory=set)  # quarantined buckets, 8 bytes each
    reasons: Counter[str] = field(default_factory=Counter)
    limit: DeleteLimit | None = None  # where the policy has one

    def archived(self, buckets: int, readings: int) -> None:
        """Counts what has been copied and verified, and is in the archive."""
        self.buckets += buckets
        self.readings += readings

    def quarantine(self, found: list[Quarantined]) -> None:
        """Counts each broken bucket once; keeps the first thousand in detail."""
        for bucket in found:
            name = hash((type(bucket.id), repr(bucket.id)))
            if name not in self._named:
                self._named.add(name)
                self.quarantined_total += 1
                if len(self.quarantined) < MAX_DETAILS:
                    self.quarantined.append(bucket)

    def hold(self, count: int, found: list[Valueless]) -> None:
        """Counts buckets that stay since they hold no number where there should be some."""
        self.leave(count, VALUELESS)
        self.valueless += found[: MAX_DETAILS - len(self.valueless)]

    def leave(self, count: int, reason: str) -> None:
        """Counts expired buckets that stay, and why."""
        if count:
            self.left += count
            self.reasons[reason] += count

    def change(self, count: int) -> None:
        """Counts buckets that changed between copy and delete. They stay."""
        self.changed += count
        self.leave(count, "changed between copy and delete: copied again by a later run")
