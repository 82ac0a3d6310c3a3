"""Coverage in few lines: runs of days in one state, months, and what was deleted in each month."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from pymongo.database import Database

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.coverage import Row, State
from bucketwise.archivers.evidence.summary_counts import SUMMARIES
from bucketwise.archivers.format.names import day
from bucketwise.archivers.records.receipt_files import chained
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.summaries import documents

Document = dict[str, Any]


class Run(NamedTuple):
    """UTC days from first to last. `readings`: None where their number is not known exactly."""

    first: str
    last: str
    days: int
    state: State
    readings: int | None


@dataclass
class Volume:
    """Readings or summaries, and bytes. None: the number is not known exactly."""

    count: int | None = 0
    bytes: int = 0

    def add(self, count: int | None, size: int) -> None:
        """Adds a count and bytes. From a count of None on, the sum is None."""
        self.count = None if self.count is None or count is None else self.count + count
        self.bytes += size


@dataclass
class Month:
    """What there is of a month of readings, in UTC. `summaries`: of windows that begin in it."""

    month: str  # 2018-06
    live: Volume = field(default_factory=Volume)
    archived: Volume = field(default_factory=Volume)
    online: Volume = field(default_factory=Volume)
    summaries: Volume = field(default_factory=Volume)


@dataclass
class Deleted:
    """What was deleted in a month, by its receipts: how many, and the first and last of their numbers."""

    month: str
    receipts: int
    buckets: int
    first: int
    last: int


def runs(rows: Iterable[Row]) -> list[Run]:
    """Returns the runs of a coverage's days, which follow one another."""
    found = []
    for state, same in groupby(rows, lambda it: it.state):
        those = list(same)
        counts = [it.readings for it in those]
        known = [it for it in counts if it is not None]
        readings = sum(known) if len(known) == len(counts) else None
        found.append(Run(day(those[0].start), day(those[-1].start), len(those), state, readings))
    return found


def by_month(rows: Iterable[Row], summaries: Mapping[str, Volume]) -> list[Month]:
    """Returns the months in which there is anything."""
    found = {month: Month(month, summaries=volume) for month, volume in summaries.items()}
    for row in rows:
        month = found.setdefault(day(row.start)[:7], Month(day(row.start)[:7]))
        month.live.add(row.live, row.live_bytes)
        month.archived.add(row.archived, row.archived_bytes)
        month.online.add(row.online, row.online_bytes)
    return [it for _, it in sorted(found.items()) if it != Month(it.month)]


def summaries_by_month(database: Database[Document], policy: Policy) -> dict[str, Volume]:
    """Returns how many summaries of all levels there are. The server counts them."""
    found: dict[str, Volume] = {}
    month = {"$dateTrunc": {"date": "$start", "unit": "month"}}
    counted = {"count": {"$sum": 1}, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}
    stages = [{"$match": {**SUMMARIES, "start": {"$type": "date"}}}, {"$group": {"_id": month, **counted}}]
    for level in levels_of(policy):
        collection = database.get_collection(level.collection, codec_options=documents.OPTIONS)
        for it in collection.aggregate(stages):
            name = day(to_ms(it["_id"]))[:7]
            found.setdefault(name, Volume()).add(it["count"], int(it["bytes"]))
    return found


def deleted_by_month(context: ArchiveContext) -> list[Deleted]:
    """Returns the months in which anything was deleted. Raises DamagedError where a file of old receipts is
    not as it was written."""
    found: dict[str, Deleted] = {}
    for receipt, _ in chained(context.receipts, context.receipt_files):
        number, at = receipt.get("sequence"), receipt.get("at")
        if receipt.get("kind") != "delete" or not isinstance(number, int) or not isinstance(at, datetime):
            continue
        month = found.setdefault(f"{at:%Y-%m}", Deleted(f"{at:%Y-%m}", 0, 0, number, number))
        month.receipts += 1
        month.buckets += int(receipt["buckets"])
        month.first, month.last = min(month.first, number), max(month.last, number)
    return [found[name] for name in sorted(found)]
