"""How many summaries there are, by the UTC month in which their windows begin: "2018-06". Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from bucketwise.buckets.fields.times import as_date
from bucketwise.rollups.calendar.levels import Span
from bucketwise.rollups.calendar.windows import to_ms

#: The months of summaries, and how many there are of each.
Months = Mapping[str, int]
_DECEMBER = 12


def month_of(start_ms: int) -> str:
    """Returns the month of a window that begins at this instant."""
    at = as_date(start_ms)
    return f"{at.year:04}-{at.month:02}"


def span_of(month: str) -> Span:
    """Returns the instants at which a month begins and ends, milliseconds."""
    year, number = int(month[:4]), int(month[5:])
    following = (year, number + 1) if number < _DECEMBER else (year + 1, 1)
    return to_ms(datetime(year, number, 1, tzinfo=UTC)), to_ms(datetime(*following, 1, tzinfo=UTC))


@dataclass(frozen=True)
class SummaryCount:
    """What runs have counted of one level, by month: the summaries that stand; how many there were where
    somebody has removed some, until a run has made them again (`wanted`); and those that no reading gives
    again (`lost`). `beside`: by how much MongoDB's own estimate differs."""

    standing: Months = field(default_factory=dict)
    wanted: Months = field(default_factory=dict)
    lost: Months = field(default_factory=dict)
    beside: int = 0

    def legible(self) -> SummaryCount:
        """Returns the count as it was stored, where lost ones are none if more have come than were lost."""
        return replace(self, lost=_positive(self.lost))

    def fits(self, estimate: int) -> bool:
        """Returns whether nothing has come or gone, by MongoDB's estimate."""
        return estimate == sum(self.standing.values()) + self.beside and not self.wanted

    def missing(self, found: Months) -> dict[str, int]:
        """Returns how many summaries of each month are no longer there."""
        known = {month: max(count, self.wanted.get(month, 0)) for month, count in self.standing.items()}
        return _positive({month: n - found.get(month, 0) for month, n in {**self.wanted, **known}.items()})

    def recounted(self, found: Months, estimate: int) -> SummaryCount:
        """Returns the count with what was found, before anything is made again. What came from elsewhere,
        such as a backup, is lost no more."""
        wanted = {month: found.get(month, 0) + count for month, count in self.missing(found).items()}
        came = {month: max(0, found.get(month, 0) - self.standing.get(month, 0)) for month in self.lost}
        lost = _positive({month: count - came[month] for month, count in self.lost.items()})
        return SummaryCount(dict(found), wanted, lost, estimate - sum(found.values()))

    def settled(self) -> SummaryCount:
        """Returns the count once all has been made again that readings give: the rest is lost."""
        lost = {month: count - self.standing.get(month, 0) for month, count in self.wanted.items()}
        return replace(self, wanted={}, lost=dict(Counter(self.lost) + Counter(_positive(lost))))


def _positive(counts: Months) -> dict[str, int]:
    return {month: count for month, count in counts.items() if count > 0}
