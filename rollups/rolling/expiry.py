"""Expiry of summaries: what is past its `retain` gets a tombstone, and goes once that has stood for its
grace, except for what a hold covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from typing import Any

from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from bucketwise.buckets.bson.cursor import SIMPLE
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.config.amounts import RemovalLimit
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import LevelName
from bucketwise.rollups.calendar.levels import Level, expired_before, levels_of
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.context import RunContext, transaction
from bucketwise.rollups.holds import Holds, without_held
from bucketwise.rollups.progress import load, note_gone
from bucketwise.rollups.standing import (
    NEVER,
    Retention,
    Tombstones,
    delete_summaries,
    load_standing,
    store_tombstones,
)
from bucketwise.rollups.summaries.targets import target

Document = dict[str, Any]
_BATCH_SIZE = 1000


@dataclass(frozen=True)
class ExpiryLimit(RemovalLimit):
    """How many summaries of a collection a run would remove, of how many, and how many it may."""

    level: LevelName

    @property
    def message(self) -> str:
        """Says by how much the run is too large, and what to do."""
        return (
            f"it would remove {self.due:,} of the {self.total:,} summaries of {self.collection}, and "
            f"archive.max_delete ({self.written}) allows {self.most:,}. Check that retain.{self.level} says "
            "what you mean (a longer one lifts their tombstones, as `bucketwise undelete` does); if so, run "
            "once with --allow-large"
        )


@dataclass
class ExpiryReport:
    """How many summaries went, or would go, by level; how many are past their time and wait until their
    tombstones have stood; and how many stay, by the name of the hold. One that several holds cover counts for
    each."""

    gone: dict[str, int]
    waiting: dict[str, int]
    held: Counter[str] = field(default_factory=Counter)
    limits: list[ExpiryLimit] = field(default_factory=list)


def expire_summaries(context: RunContext, *, allow_large: bool = False) -> ExpiryReport:
    """Places tombstones on summaries whose window ended before now − retain, and deletes those whose
    tombstones have stood for the grace; but for those that a coarser level is yet to be made of, and those
    under a hold. Raises HaltedError, before it deletes any, where it would delete more of a collection than
    `archive.max_delete` allows; `allow_large`: any number."""
    expiry = _Expiry(context)
    if expiry.rules:
        expiry.place_tombstones()
        expiry.count()
        if not allow_large:
            expiry.check_limits()
        expiry.delete()
    return expiry.report


def count_expired(context: RunContext, through: Mapping[LevelName, int] | None = None) -> ExpiryReport:
    """Returns how many summaries `expire_summaries` would delete, and how many wait. Deletes nothing.
    `through`: how far each level is rolled up by then; None: as far as it is."""
    expiry = _Expiry(context, through)
    expiry.count()
    return expiry.report


def count_overdue(context: RunContext, slack: timedelta) -> dict[LevelName, int]:
    """Returns how many summaries should have got a tombstone, or been removed, so long ago, by level."""
    expiry = _Expiry(context, slack=slack)
    return {level.name: expiry.count_overdue(level) for level in expiry.rules}


def lift_tombstones(context: RunContext, within: TimeRange) -> int:
    """Lifts the tombstones on summaries whose windows touch the range, and on all that end later. Returns on
    how many of the range they stood. The guard makes it conflict with a run that deletes."""

    def step(session: ClientSession) -> int:
        expiry = _Expiry(context, session=session)
        counts = {level: expiry.count_under(level, within) for level in expiry.rules}
        names = [level.name for level, count in counts.items() if count]
        since, now = within.start_ms, to_ms(context.now)
        if names:
            lifted = {name: expiry.tombstones[name].lifted(since, now) for name in names}
            store_tombstones(context.database, context.policy, lifted, session)
        return sum(counts.values())

    return transaction(context.database, context.guard, step) if _Expiry(context).rules else 0


class _Expiry:
    """The summaries of one policy at the present, or so much earlier (`slack`)."""

    def __init__(
        self,
        context: RunContext,
        through: Mapping[LevelName, int] | None = None,
        slack: timedelta = timedelta(0),
        session: ClientSession | None = None,
    ) -> None:
        self._context = context
        self._through = through
        self._now = context.now - slack
        self._session = session
        self._levels = levels_of(context.policy)
        self._names = context.policy.series_names
        self._holds = Holds(context.database, context.policy.identity)
        names = [level.name for level in self._levels]
        self.report = ExpiryReport(dict.fromkeys(names, 0), dict.fromkeys(names, 0))

    @cached_property
    def rules(self) -> dict[Level, Retention]:
        """Returns how long summaries stay, of the levels that don't stay forever."""
        retain, levels = self._context.policy.retain, self._levels
        if retain is None or all(level.retain is None for level in levels):
            return {}
        through = self._through
        if through is None:
            through = load(self._context.database, self._context.policy).through
        past = {level: expired_before(level, levels, self._now, through) for level in levels}
        return {
            level: Retention(level.retain, retain.grace, to_ms(self._now), before)
            for level, before in past.items()
            if level.retain is not None and before is not None
        }

    @cached_property
    def tombstones(self) -> Mapping[LevelName, Tombstones]:
        """Returns the tombstones of each level."""
        return self._read(self._session)

    def _read(self, session: ClientSession | None) -> Mapping[LevelName, Tombstones]:
        return load_standing(self._context.database, self._context.policy, session).tombstones

    def place_tombstones(self) -> None:
        """Places the tombstones of this run, and forgets those that are of no use."""
        if self._placed(self.tombstones) != self.tombstones:
            self.tombstones = transaction(self._context.database, self._context.guard, self._place)

    def _place(self, session: ClientSession) -> dict[LevelName, Tombstones]:
        placed = self._placed(self._read(session))
        store_tombstones(self._context.database, self._context.policy, placed, session)
        return placed

    def _placed(self, known: Mapping[LevelName, Tombstones]) -> dict[LevelName, Tombstones]:
        return {**known, **{level.name: known[level.name].after_run(it) for level, it in self.rules.items()}}

    def count(self) -> None:
        """Counts what goes, what waits, and what holds keep."""
        for level, rule in self.rules.items():
            past, collection = _ended(rule.past), self._collection(level)
            if collection.find_one(past, {"_id": 1}) is None:
                continue
            holds, before = self._holds.active(), self._removable(level)
            unheld = partial(without_held, holds=holds, names=self._names, reach=level.reach)
            gone = (
                collection.count_documents(unheld(_ended(before)), collation=SIMPLE) if before > NEVER else 0
            )
            self.report.gone[level.name] = gone
            waiting = collection.count_documents(unheld(past), collation=SIMPLE)
            self.report.waiting[level.name] = waiting - gone
            for hold in holds:
                held = {"$and": [past, hold.summaries(self._names, level.reach)]}
                if count := collection.count_documents(held, collation=SIMPLE):
                    self.report.held[hold.name] += count
            self._limit(level, gone)

    def _limit(self, level: Level, due: int) -> None:
        archive = self._context.policy.archive
        if due and archive is not None and archive.max_delete is not None:
            total = self._collection(level).estimated_document_count()
            limit = ExpiryLimit(level.collection, archive.max_delete, due, total, level.name)
            self.report.limits.append(limit)

    def check_limits(self) -> None:
        """Raises HaltedError where more summaries would go than may."""
        if exceeded := [it.message for it in self.report.limits if it.is_exceeded]:
            name = self._context.policy.name
            raise HaltedError(
                f"policy {name}: this run stopped: {'; '.join(exceeded)}. No summary was removed"
            )

    def delete(self) -> None:
        """Deletes what was counted, the oldest first, and records up to where summaries are gone."""
        counted, self.report.gone = self.report.gone, dict.fromkeys(self.report.gone, 0)
        for level in self.rules:
            before = self._removable(level)
            if counted[level.name] and not self._delete(level, before):
                continue
            if before > NEVER:
                note_gone(self._context.database, self._context.policy, {level.name: before})

    def _delete(self, level: Level, before: int) -> bool:
        """Deletes summaries that end before an instant. Returns False where their tombstones were lifted
        meanwhile: then the rest stays."""
        context = self._context
        while page := self._due(level, before):
            context.check()
            reached = to_ms(page[-1]["end"]) + 1
            step = partial(self._delete_page, level, [it["_id"] for it in page], reached)
            gone = transaction(context.database, context.guard, step)
            if gone is None:
                return False
            self.report.gone[level.name] += gone
            context.progress("expired summaries", gone)
        return True

    def _due(self, level: Level, before: int) -> list[Any]:
        """Returns some of the summaries that end before an instant and that no hold covers."""
        query = without_held(_ended(before), self._holds.active(), self._names, level.reach)
        found = self._collection(level).find(query, {"end": 1}, collation=SIMPLE)
        return list(found.sort("start", 1).limit(_BATCH_SIZE))

    def _delete_page(self, level: Level, ids: list[Any], reached: int, session: ClientSession) -> int | None:
        if self._read(session)[level.name].removable(self.rules[level]) < reached:
            return None
        database, policy = self._context.database, self._context.policy
        note_gone(database, policy, {level.name: reached}, session)
        holds = self._holds.active(session)
        query = without_held({"_id": {"$in": ids}}, holds, self._names, level.reach)
        return delete_summaries(database, policy, level, query, session)

    def count_under(self, level: Level, within: TimeRange) -> int:
        """Returns how many summaries of a range are under tombstones that were not lifted."""
        rule, tombstones = self.rules[level], self.tombstones[level.name]
        if tombstones.is_lifted(within.start_ms, rule):
            return 0
        touching = {"start": {"$lt": DatetimeMS(within.end_ms)}, "end": {"$gt": DatetimeMS(within.start_ms)}}
        query = {"$and": [_ended(tombstones.covered(rule)), touching]}
        return self._collection(level).count_documents(query, session=self._session)

    def count_overdue(self, level: Level) -> int:
        """Returns how many summaries have no tombstone, or one that is due."""
        rule, tombstones = self.rules[level], self.tombstones[level.name]
        found = [_ended(self._removable(level)), _ended(rule.past, tombstones.covered(rule))]
        holds = self._holds.active()
        query = without_held({"$or": found}, holds, self._names, level.reach)
        return self._collection(level).count_documents(query, collation=SIMPLE)

    def _removable(self, level: Level) -> int:
        return self.tombstones[level.name].removable(self.rules[level])

    def _collection(self, level: Level) -> Collection[RawBSONDocument]:
        return target(self._context.database, level.collection)


def _ended(before: int, since: int = NEVER) -> Document:
    """Returns the query for summaries of windows that ended before an instant, and not before another."""
    limit = {"$lt": DatetimeMS(before)}
    # A start before the limit is implied; it is in the query because it has an index. Only summaries have
    # such an `_id`: if the collection is somebody else's by mistake, their documents stay.
    return {"start": limit, "end": {**limit, "$gte": DatetimeMS(since)}, "_id.series": {"$exists": True}}
