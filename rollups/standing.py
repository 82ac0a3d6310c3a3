"""What is recorded of the summaries of each level, beside how far it is rolled up: how many there are, how
long they stay, and their tombstones. One document a policy in `bucketwise_progress`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

from bson.datetime_ms import DatetimeMS
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.buckets.decoding.plausible import EARLIEST, Plausible
from bucketwise.buckets.fields.times import as_ms
from bucketwise.config.policies import LevelName, Policy
from bucketwise.rollups.calendar.levels import Level, Span, levels_of
from bucketwise.rollups.calendar.windows import LOWEST, to_ms
from bucketwise.rollups.progress import Progress, gone_before, progress_collection, progress_of, records_of
from bucketwise.rollups.summaries.months import SummaryCount, month_of, span_of
from bucketwise.rollups.summaries.targets import target
from bucketwise.rollups.summaries.tombstones import Lift, Tombstone, Tombstones

Document = dict[str, Any]
KIND = "summaries"  # of the record
#: Looks at what is missing, while a run may be writing.
_TRIES = 3


@dataclass(frozen=True)
class Standing:
    """What is recorded of each level: what runs have counted, how long its summaries stay by the last one (as
    the policy file writes it), and their tombstones. Records of another collection do not count."""

    counts: Mapping[LevelName, SummaryCount]
    retentions: Mapping[LevelName, str]
    tombstones: Mapping[LevelName, Tombstones]

    def has_before(self, instant: datetime) -> bool:
        """Returns whether any summary that runs have counted is of a month before that of an instant."""
        first = month_of(as_ms(instant))
        counted = (month for it in self.counts.values() for month, count in it.standing.items() if count)
        return any(month < first for month in counted)


def load_standing(
    database: Database[Document], policy: Policy, session: ClientSession | None = None
) -> Standing:
    """Returns what is recorded of the summaries of a policy."""
    return standing_of(progress_collection(database).find_one(_identity(policy), session=session), policy)


def load_both(database: Database[Document], policy: Policy) -> tuple[Progress, Standing]:
    """Returns how far a policy is rolled up, and what is recorded of its summaries. Asks once."""
    found = records_of(database, policy, KIND)
    return progress_of(found, policy), standing_of(found.get(KIND), policy)


def plausible_times(policy: Policy, standing: Standing, now: datetime) -> Plausible:
    """Returns the times that live buckets of a policy may have."""
    return Plausible.of(policy, now, has_earlier=standing.has_before(EARLIEST))


def standing_of(record: Document | None, policy: Policy) -> Standing:
    """Returns what the record of a policy's summaries tells."""
    found = record or {}
    counts, tombstones = (_of_levels(policy, found.get(it, {})) for it in ("counts", "tombstones"))
    names = ("standing", "wanted", "lost", "beside")
    return Standing(
        {level: SummaryCount(*(it[name] for name in names)).legible() for level, it in counts.items()},
        found.get("retentions", {}),
        {it.name: _tombstones(tombstones.get(it.name)) for it in levels_of(policy)},
    )


def _of_levels(policy: Policy, found: Mapping[str, Document]) -> dict[LevelName, Document]:
    return {
        it.name: found[it.name]
        for it in levels_of(policy)
        if found.get(it.name, {}).get("collection") == it.collection
    }


def store_tombstones(
    database: Database[Document],
    policy: Policy,
    changed: Mapping[LevelName, Tombstones],
    session: ClientSession,
) -> None:
    """Stores the tombstones of some levels, in a transaction."""
    targets = policy.rollup.targets if policy.rollup else {}
    update = {f"tombstones.{name}": _document(targets[name], it) for name, it in changed.items()}
    progress_collection(database).update_one(
        _identity(policy), {"$set": update}, upsert=True, session=session
    )


def store_counts(
    database: Database[Document], policy: Policy, counts: Mapping[LevelName, SummaryCount]
) -> None:
    """Stores what was counted of some levels. Only who holds the lease may."""
    targets = policy.rollup.targets if policy.rollup else {}
    update = {f"counts.{name}": {"collection": targets[name], **asdict(it)} for name, it in counts.items()}
    progress_collection(database).update_one(_identity(policy), {"$set": update}, upsert=True)


def count_changes(
    database: Database[Document],
    policy: Policy,
    level: Level,
    changes: Counter[str],
    session: ClientSession,
    again: Mapping[str, int] | None = None,
) -> None:
    """Adds to the count of a level, in the transaction that writes its summaries, by month. `again`: how many
    of those that were lost came. Without a count nothing is added: the next run counts all."""
    added = {f"counts.{level.name}.standing.{month}": count for month, count in changes.items() if count}
    added |= {f"counts.{level.name}.lost.{month}": -count for month, count in (again or {}).items()}
    if added:
        counted = {**_identity(policy), f"counts.{level.name}.collection": level.collection}
        progress_collection(database).update_one(counted, {"$inc": added}, session=session)


def delete_summaries(
    database: Database[Document],
    policy: Policy,
    level: Level,
    query: Mapping[str, Any],
    session: ClientSession,
) -> int:
    """Deletes the summaries of a level that match, in a transaction. Returns how many went."""
    collection, changes = target(database, level.collection), Counter[str]()
    found = collection.find(query, {"start": 1}, session=session)
    changes.subtract(month_of(to_ms(it["start"])) for it in found)
    collection.delete_many(query, session=session)
    count_changes(database, policy, level, changes, session)
    return -changes.total()


def months_in(database: Database[Document], level: Level) -> dict[str, int]:
    """Returns how many summaries of a level there are, counted one by one."""
    month = {"$dateToString": {"date": "$start", "format": "%Y-%m"}}
    stages: list[Document] = [
        {"$match": {"_id.series": {"$exists": True}, "start": {"$type": "date"}}},  # as only summaries have
        {"$group": {"_id": month, "count": {"$sum": 1}}},
    ]
    return {it["_id"]: it["count"] for it in database[level.collection].aggregate(stages)}


class Removed(NamedTuple):
    """Summaries of one level and month that somebody has removed. `is_lost`: no reading gives them again."""

    level: Level
    span: Span  # of the month, milliseconds
    summaries: int
    is_lost: bool


def removed_summaries(database: Database[Document], policy: Policy, levels: Iterable[Level]) -> list[Removed]:
    """Returns the summaries that somebody has removed, and that are not past their time by now. Counts them
    only where MongoDB's estimate says that their number has changed."""
    known = load_standing(database, policy).counts
    for _ in range(_TRIES):
        counts, found = known, list[Removed]()
        for level in levels:
            if (count := counts.get(level.name)) is None:
                continue
            missing = {}
            if not count.fits(database[level.collection].estimated_document_count()):
                missing = count.missing(months_in(database, level))
            expired = gone_before(database, policy).get(level.name, LOWEST) if count.lost else LOWEST
            lost = {month: it for month, it in count.lost.items() if span_of(month)[1] > expired}
            for is_lost, months in ((False, missing), (True, lost)):
                found += [Removed(level, span_of(it), months[it], is_lost) for it in sorted(months)]
        if all(it.is_lost for it in found):
            break
        known = load_standing(database, policy).counts
        if known == counts:  # else a run has written meanwhile
            break
    return found


def store_retentions(
    database: Database[Document], policy: Policy, retentions: Mapping[LevelName, str]
) -> None:
    """Stores how long each level is kept."""
    update = {"$set": {"retentions": dict(retentions)}}
    progress_collection(database).update_one(_identity(policy), update, upsert=True)


def _identity(policy: Policy) -> Document:
    return {"_id": {KIND: policy.identity}}


def _tombstones(found: Document | None) -> Tombstones:
    if found is None:
        return Tombstones()
    return Tombstones(
        found["keep"],
        tuple(Tombstone(to_ms(it["before"]), to_ms(it["at"])) for it in found["placed"]),
        tuple(Lift(to_ms(it["since"]), to_ms(it["until"])) for it in found["lifts"]),
    )


def _document(collection: str, it: Tombstones) -> Document:
    return {
        "collection": collection,
        "keep": it.keep,
        "placed": [{"before": DatetimeMS(mark.before), "at": DatetimeMS(mark.at)} for mark in it.placed],
        "lifts": [{"since": DatetimeMS(lift.since), "until": DatetimeMS(lift.until)} for lift in it.lifts],
    }
