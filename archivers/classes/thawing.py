"""Thaws parts, so that they can be read for some days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

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
    asked = set[str]()
    for left in reversed(range(_TRIES)):
        try:
            return _look(context, options, asked) if context.has_parts else ThawReport()
        except DamagedError:
            if not left:
                raise
    raise AssertionError("unreachable")


class _Request(NamedTuple):
    """A part to ask a store for, and how it lies there."""

    part: Part
    place: Place
    found: Standing

    def check(self, tier: Tier) -> None:
        """Raises UsageError where the class does not know the tier."""
        known = THAW_HOURS.get(self.found.storage_class, {})
        if tier not in known:
            raise UsageError(
                f"--tier {tier}: class {self.found.storage_class} has no such tier: "
                f"write {' or '.join(known)}"
            )

    def send(self, options: ThawOptions) -> None:
        """Asks for the part. Raises DamagedError where it is missing by now."""
        assert isinstance(self.place.store, ClassedStore)
        days = None if self.found.storage_class in FOR_GOOD else options.days
        with damage_at(f"{self.place.store.url}/{self.part.key}"):
            self.place.store.thaw(self.part.key, days, options.tier)


def _look(context: ArchiveContext, options: ThawOptions, asked: set[str]) -> ThawReport:
    """Looks at all parts, then asks for those that are cold. `asked`: the keys of those that this call has
    asked for."""
    report, requests = ThawReport(), list[_Request]()
    places = list(places_of(context))
    within = options.within
    touching = context.offline().manifests(within.start_ms, within.end_ms)
    manifests = [it for it in touching if it.may_hold(context.policy, options.series)]
    for number, manifest in enumerate(manifests, start=1):
        report.commits += 1
        before = report.ready
        for part in manifest.parts:
            context.check()
            with _skipping(options):
                requests += _to_ask(part, places, report, asked)
        context.progress("parts that can be read", report.ready - before, number / len(manifests))
    for it in requests:
        it.check(options.tier)
    for it in requests:
        context.check()
        with _skipping(options):
            it.send(options)
            asked.add(it.part.key)
            report.asked += 1
    if report.asked or report.waiting:
        hours = max(THAW_HOURS[it].get(options.tier, 0) for it in report.classes)
        report.ready_at = later(context.now, timedelta(hours=hours))
    return report


@contextmanager
def _skipping(options: ThawOptions) -> Iterator[None]:
    """Passes over a part that is missing, where that is asked for."""
    try:
        yield
    except DamagedError:
        if not options.skip_damaged:
            raise


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


def _to_ask(part: Part, places: list[Place], report: ThawReport, asked: set[str]) -> Iterator[_Request]:
    """Counts a part, and yields the request for it where it has to be asked for."""
    place, found, is_readable = _readable(part, places)
    report.parts += 1
    if found.storage_class in THAW_HOURS:
        report.classes[found.storage_class] += 1
        report.bytes += part.bytes
    if is_readable:
        report.ready += 1
    elif part.key in asked:
        report.asked += 1
    elif found.is_thawing:
        report.waiting += 1
    else:
        yield _Request(part, place, found)
