"""Which summaries of a policy with rules are gone, by the rule of their series: windows in which only some
are gone are rolled up for the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import bson
from bson.raw_bson import RawBSONDocument

from bucketwise.buckets.rules import SeriesRules
from bucketwise.config.policies import LevelName, Policy
from bucketwise.rollups.calendar.levels import Level, levels_of
from bucketwise.rollups.calendar.windows import LOWEST, to_ms
from bucketwise.rollups.progress import Progress
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.targets import SummaryDiff


@dataclass(frozen=True)
class GoneByRule:
    """Before when summaries are gone, or are never made, as one run takes it. `loaded`: what was recorded."""

    policy: Policy
    now: datetime
    loaded: Progress

    @cached_property
    def _rules(self) -> SeriesRules:
        return SeriesRules(self.policy)

    @cached_property
    def first_made(self) -> Mapping[int, Mapping[LevelName, int]]:
        """Returns, of levels that are rolled up for the first time, the instant before which no window is
        made, where there is one: by rule and level."""
        found: dict[int, dict[LevelName, int]] = {}
        for number, policy in enumerate(self._rules.policies):
            new = (it for it in levels_of(policy) if it.name not in self.loaded.through)
            past = {level.name: level.expired_before(self.now) for level in new}
            found[number] = {name: ms for name, ms in past.items() if ms is not None}
        return found

    def _line(self, number: int, level: LevelName) -> int:
        found = self.loaded.by_rule if level in self.loaded.through else self.first_made
        return found.get(number, {}).get(level, LOWEST)

    def of(self, level: LevelName) -> int:
        """Returns the instant (milliseconds) before which summaries of some series are gone."""
        return max(self._line(number, level) for number in range(self._rules.own + 1))

    def leave(self, changes: SummaryDiff) -> None:
        """Takes out of what is written the summaries that are gone by the rule of their series, as those of
        all series are where there are no rules: such windows are not rolled up."""
        if self.policy.rules:
            changes.replaced = [it for it in changes.replaced if not self._is_gone(changes.level, it[0])]
            changes.deleted = [it for it in changes.deleted if not self._is_gone(changes.level, it)]

    def _is_gone(self, level: Level, identity: RawBSONDocument) -> bool:
        start = to_ms(identity["start"])
        if start >= self.of(level.name):
            return False
        summary = {"_id": bson.decode(identity.raw, documents.OPTIONS)}
        if not documents.is_of_series(self.policy, summary):
            return False
        lines = [self._line(number, level.name) for number in range(self._rules.own + 1)]
        end = level.edges(start, start + 1)[-1]
        return end < self._rules.longest(documents.series_of(self.policy, summary), lines)
