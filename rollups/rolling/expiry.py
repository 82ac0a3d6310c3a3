"""Expiry of summaries: what is past its `retain` gets a tombstone, and goes once that has stood for its
grace, except for what a hold covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, NamedTuple

import bson
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from bucketwise.buckets.bson.cursor import SIMPLE
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.buckets.rules import SeriesRules
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
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.targets import stored_fields, target

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
    expiry.place_tombstones()
    if expiry.rules:
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
    expiry, found = _Expiry(context, slack=slack), Counter[LevelName]()
    for it in expiry.rules:
        found[it.level.name] += expiry.count_overdue(it)
    return dict(found)


def lift_tombstones(context: RunContext, within: TimeRange) -> int:
    """Lifts the tombstones on summaries whose windows touch the range, and on all that end later. Returns on
    how many of the range they stood. The guard makes it conflict with a run that deletes."""

    def step(session: ClientSession) -> int:
        expiry = _Expiry(context, session=session)
        counts = Counter[LevelName]()
        for it in expiry.rules:
            counts[it.level.name] += expiry.count_under(it, within)
        since, now = within.start_ms, to_ms(context.now)
        lifted = {name: expiry.tombstones[name].lifted(since, now) for name in +counts}
        if lifted:
            store_tombstones(context.database, context.policy, lifted, session)
        return counts.total()

    return transaction(context.database, context.guard, step) if _Expiry(context).rules else 0


class _LevelRule(NamedTuple):
    """How long the summaries of one level stay, of the series under one rule, by its number."""

    level: Level
    number: int
    retention: Retention


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
        self._series = SeriesRules(context.policy)
        self._names = context.policy.series_names
        self._paths = dict(zip(self._names, stored_fields(context.policy), strict=True))
        self._holds = Holds(context.database, context.policy.identity)
        names = [level.name for level in self._levels]
        self.report = ExpiryReport(dict.fromkeys(names, 0), dict.fromkeys(names, 0))

    @cached_property
    def rules(self) -> list[_LevelRule]:
        """Returns how long summaries stay, of the levels and series that don't stay forever."""
        by_rule = [levels_of(it) for it in self._series.policies]
        if all(level.retain is None for levels in by_rule for level in levels):
            return []
        through = self._through
        if through is None:
            through = load(self._context.database, self._context.policy).through
        return [
            _LevelRule(level, number, found)
            for place, level in enumerate(self._levels)
            for number, levels in enumerate(by_rule)
            if (found := self._retention(number, levels[place], levels, through)) is not None
        ]

    def _retention(
        self, number: int, level: Level, levels: Sequence[Level], through: Mapping[LevelName, int]
    ) -> Retention | None:
        retain = self._series.policies[number].retain
        past = expired_before(level, levels, self._now, through)
        if retain is None or level.retain is None or past is None:
            return None
        return Retention(level.retain, retain.grace, to_ms(self._now), past, self._series.scope(number))

    @cached_property
    def tombstones(self) -> Mapping[LevelName, Tombstones]:
        """Returns the tombstones of each level."""
        return self._read(self._session)

    def _read(self, session: ClientSession | None) -> Mapping[LevelName, Tombstones]:
        return load_standing(self._context.database, self._context.policy, session).tombstones

    def place_tombstones(self) -> None:
        """Places the tombstones of this run, and forgets those that are of no use."""
        if self._levels and self._placed(self.tombstones) != self.tombstones:
            self.tombstones = transaction(self._context.database, self._context.guard, self._place)

    def _place(self, session: ClientSession) -> dict[LevelName, Tombstones]:
        placed = self._placed(self._read(session))
        store_tombstones(self._context.database, self._context.policy, placed, session)
        return placed

    def _placed(self, known: Mapping[LevelName, Tombstones]) -> dict[LevelName, Tombstones]:
        now = to_ms(self._now)
        return {
            name: it.after_run([rule.retention for rule in self.rules if rule.level.name == name], now)
            for name, it in known.items()
        }

    def count(self) -> None:
        """Counts what goes, what waits, and what holds keep."""
        for it in self.rules:
            level, collection = it.level, self._collection(it.level)
            past, before = self._ended(it, it.retention.past), self._removable(it)
            if collection.find_one(past, {"_id": 1}) is None:
                continue
            holds = self._holds.active()
            unheld = partial(without_held, holds=holds, names=self._names, reach=level.reach)
            ripe = unheld(self._ended(it, before))
            gone = collection.count_documents(ripe, collation=SIMPLE) if before > NEVER else 0
            self.report.gone[level.name] += gone
            waiting = collection.count_documents(unheld(past), collation=SIMPLE)
            self.report.waiting[level.name] += waiting - gone
            for hold in holds:
                held = {"$and": [past, hold.summaries(self._names, level.reach)]}
                if count := collection.count_documents(held, collation=SIMPLE):
                    self.report.held[hold.name] += count
        for level in self._levels:
            self._limit(level, self.report.gone[level.name])

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
        for it in self.rules:
            before = self._removable(it)
            if counted[it.level.name] and not self._delete(it, before):
                continue
            if before > NEVER:
                self._note_gone(it, before)

    def _note_gone(self, it: _LevelRule, before: int, session: ClientSession | None = None) -> None:
        note_gone(self._context.database, self._context.policy, {it.level.name: before}, session, it.number)

    def _delete(self, it: _LevelRule, before: int) -> bool:
        """Deletes summaries that end before an instant. Returns False where their tombstones were lifted
        meanwhile: then the rest stays."""
        since, most = NEVER, _BATCH_SIZE
        while page := self._due(it, before, since, most):
            self._context.check()
            last, due = to_ms(page[-1]["start"]), [found for found in page if self._is_due(it, found)]
            if due:
                reached = max(to_ms(found["end"]) for found in due) + 1
                step = partial(self._delete_page, it, [found["_id"] for found in due], reached)
                gone = transaction(self._context.database, self._context.guard, step)
                if gone is None:
                    return False
                self.report.gone[it.level.name] += gone
                self._context.progress("expired summaries", gone)
            elif len(page) < most:
                break
            elif last == since:  # all of one window, and none may go
                most *= 10
            since = last
        return True

    def _due(self, it: _LevelRule, before: int, since: int, most: int) -> list[Any]:
        """Returns some of the summaries that end before an instant and that no hold covers, of windows from
        `since` on; some of them may be under another rule."""
        query = {"$and": [self._ended(it, before), {"start": {"$gte": DatetimeMS(since)}}]}
        unheld = without_held(query, self._holds.active(), self._names, it.level.reach)
        fields = ["end", "start", *self._paths.values()]
        found = self._collection(it.level).find(unheld, dict.fromkeys(fields, 1), collation=SIMPLE)
        return list(found.sort("start", 1).limit(most))

    def _is_due(self, it: _LevelRule, found: RawBSONDocument) -> bool:
        """Returns whether a summary may go by all rules that its series may be under."""
        if self._series.own == 0:
            return True
        summary = {"_id": bson.decode(found["_id"].raw, documents.OPTIONS)}
        if not documents.is_of_series(self._context.policy, summary):
            return it.number == self._series.own
        lines = {rule.number: self._removable(rule) for rule in self.rules if rule.level == it.level}
        limits = [lines.get(number, NEVER) for number in range(self._series.own + 1)]
        series = documents.series_of(self._context.policy, summary)
        return to_ms(found["end"]) < self._series.longest(series, limits)

    def _delete_page(
        self, it: _LevelRule, ids: list[Any], reached: int, session: ClientSession
    ) -> int | None:
        if self._read(session)[it.level.name].removable(it.retention) < reached:
            return None
        database, policy = self._context.database, self._context.policy
        self._note_gone(it, reached, session)
        holds = self._holds.active(session)
        query = without_held({"_id": {"$in": ids}}, holds, self._names, it.level.reach)
        return delete_summaries(database, policy, it.level, query, session)

    def count_under(self, it: _LevelRule, within: TimeRange) -> int:
        """Returns how many summaries of a range are under tombstones that were not lifted."""
        tombstones = self.tombstones[it.level.name]
        if tombstones.is_lifted(within.start_ms, it.retention.now):
            return 0
        touching = {"start": {"$lt": DatetimeMS(within.end_ms)}, "end": {"$gt": DatetimeMS(within.start_ms)}}
        query = {"$and": [self._ended(it, tombstones.covered(it.retention)), touching]}
        return self._collection(it.level).count_documents(query, session=self._session)

    def count_overdue(self, it: _LevelRule) -> int:
        """Returns how many summaries have no tombstone, or one that is due."""
        covered = self.tombstones[it.level.name].covered(it.retention)
        found = [self._ended(it, self._removable(it)), self._ended(it, it.retention.past, covered)]
        holds = self._holds.active()
        query = without_held({"$or": found}, holds, self._names, it.level.reach)
        return self._collection(it.level).count_documents(query, collation=SIMPLE)

    def _removable(self, it: _LevelRule) -> int:
        return self.tombstones[it.level.name].removable(it.retention)

    def _collection(self, level: Level) -> Collection[RawBSONDocument]:
        return target(self._context.database, level.collection)

    def _ended(self, it: _LevelRule, before: int, since: int = NEVER) -> Document:
        """Returns the query for summaries of the series of a rule, of windows that ended before an instant,
        and not before another; it may find a few under other rules."""
        ended = _ended(before, since)
        also = self._series.query({it.number}, self._paths)
        return {"$and": [ended, also]} if also else ended


def _ended(before: int, since: int = NEVER) -> Document:
    """Returns the query for summaries of windows that ended before an instant, and not before another."""
    limit = {"$lt": DatetimeMS(before)}
    # A start before the limit is implied; it is in the query because it has an index. Only summaries have
    # such an `_id`: if the collection is somebody else's by mistake, their documents stay.
    return {"start": limit, "end": {**limit, "$gte": DatetimeMS(since)}, "_id.series": {"$exists": True}}
