"""Thaws parts, so that they can be read for some days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bucketwise.archivers.classes.schedule import Place, places_of
from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.manifest import DamagedError, Part
from bucketwise.archivers.format.writing import damage_at
from bucketwise.archivers.stores.base import NotFound
from bucketwise.archivers.stores.classes import FOR_GOOD, THAW_HOURS, ClassedStore, Standing, Tier
from bucketwise.buckets.fields.times import TimeRange, later
from bucketwise.config.errors import UsageError

#: How an object lies in a store without classes.
_AT_HAND = Standing("", is_readable=True, is_thawing=False)
_TRIES = 3


@dataclass(frozen=True)
class ThawOptions:
    """What to thaw: the commits that touch a range, and may hold any of these series; for how many days, and
    how soon. `skip_damaged`: parts that are missing are left out."""

    within: TimeRange
    days: int
    tier: Tier = "standard"
    series: Mapping[str, str] = field(default_factory=dict)
    skip_damaged: bool = False


@dataclass
class ThawReport:
    """Counts parts: how many there are, of which commits; how many were asked for now, wait since an earlier
    call, and can be read. `ready_at`: when S3 will have thawed the last of them, at the latest; None where
    all can be read. `classes`: the cold ones, by class, and `bytes` of these."""

    commits: int = 0
    parts: int = 0
    asked: int = 0
    waiting: int = 0
    ready: int = 0
    bytes: int = 0
    ready_at: datetime | None = None
    classes: Counter[str] = field(default_factory=Counter)

    @property
    def is_ready(self) -> bool:
        """Returns whether all parts can be read."""
        return self.ready == self.parts


def thaw(context: ArchiveContext, options: ThawOptions) -> ThawReport:
    """Asks for the cold parts of all commits that are meant, unless one of the store's copies can give
    them now; what the first store has lost is asked for in a copy. Returns how they lie. Raises
    UsageError where the class does not know the tier, DamagedError where a part is missing, and StoreError.

    It needs no lease. Where a run replaces a commit meanwhile, a part is missing; then it looks again, and
    finds what took its place."""
    for left in reversed(range(_TRIES)):
        try:
            return _look(context, options) if context.has_parts else ThawReport()
        except DamagedError:
            if not left:
                raise
    raise AssertionError("unreachable")


def _look(context: ArchiveContext, options: ThawOptions) -> ThawReport:
    report = ThawReport()
    places = list(places_of(context))
    within = options.within
    touching = context.offline().manifests(within.start_ms, within.end_ms)
    manifests = [it for it in touching if it.may_hold(context.policy, options.series)]
    for number, manifest in enumerate(manifests, start=1):
        report.commits += 1
        before = report.ready
        for part in manifest.parts:
            context.check()
            try:
                _thaw(part, places, options, report)
            except DamagedError:
                if not options.skip_damaged:
                    raise
        context.progress("parts that can be read", report.ready - before, number / len(manifests))
    if report.asked or report.waiting:
        hours = max(THAW_HOURS[it].get(options.tier, 0) for it in report.classes)
        report.ready_at = later(context.now, timedelta(hours=hours))
    return report


def _readable(part: Part, places: list[Place]) -> tuple[Place, Standing, bool]:
    """Returns the first store that has a part, how it lies there, and whether that store, or else another,
    can give it now. Raises DamagedError where none has it."""
    held = [(it, found) for it in places[:1] if (found := _standing(it, part)) is not None]
    if not held or not held[0][1].is_readable:
        held += [(it, found) for it in places[1:] if (found := _standing(it, part)) is not None]
    if not held:
        with damage_at(f"{places[0].store.url}/{part.key}"):
            raise NotFound("thaw", f"{places[0].store.url}/{part.key}", "no such object")
    return *held[0], any(found.is_readable for _, found in held)


def _standing(place: Place, part: Part) -> Standing | None:
    """Returns how a part lies in a store; None where it is not there."""
    if isinstance(place.store, ClassedStore):
        try:
            return place.store.standing(part.key)
        except NotFound:
            return None
    return None if place.store.head(part.key) is None else _AT_HAND


def _thaw(part: Part, places: list[Place], options: ThawOptions, report: ThawReport) -> None:
    place, found, is_readable = _readable(part, places)
    report.parts += 1
    if found.storage_class in THAW_HOURS:
        report.classes[found.storage_class] += 1
        report.bytes += part.bytes
    if is_readable:
        report.ready += 1
        return
    if found.is_thawing:
        report.waiting += 1
    else:
        _ask(part, place, found, options)
        report.asked += 1


def _ask(part: Part, place: Place, found: Standing, options: ThawOptions) -> None:
    known = THAW_HOURS.get(found.storage_class, {})
    if options.tier not in known:
        raise UsageError(
            f"--tier {options.tier}: class {found.storage_class} has no such tier: write {' or '.join(known)}"
        )
    assert isinstance(place.store, ClassedStore)
    days = None if found.storage_class in FOR_GOOD else options.days
    place.store.thaw(part.key, days, options.tier)
