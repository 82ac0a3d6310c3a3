"""Where a bucket is, which rule of its policy applies, and what comes next: decided from facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from bucketwise.archivers.kinds.evidence import ArchivedState
from bucketwise.archivers.records.pins import Pin
from bucketwise.buckets.columns import Quarantined
from bucketwise.buckets.fields.times import as_date, as_ms
from bucketwise.buckets.models import model_of
from bucketwise.config.durations import format_duration
from bucketwise.config.policies import Archive, Policy
from bucketwise.rollups.holds import Hold

BucketState = ArchivedState | Literal["live", "both", "quarantined", "unknown"]


#: `archive`: it is copied, and deleted at once or after its grace; `delete`: it goes, and its copy stays;
#: `expire`: the copy goes, for good.
Action = Literal["archive", "delete", "expire"]


_MS = timedelta(milliseconds=1)


_NOTHING = timedelta(0)


class End(NamedTuple):
    """When an archived bucket goes by `retain.archive`, and whether it is under a tombstone."""

    keep: str
    at: datetime
    has_tombstone: bool


class Windows(NamedTuple):
    """How far windows are rolled up. `through`: what ends before it (milliseconds) is; None where nothing has
    to be. `settled`: returns the present (milliseconds) from which on a run rolls up those of an instant."""

    through: int | None = None
    settled: Callable[[int], int | None] = lambda _: None


@dataclass(frozen=True)
class Facts:
    """The facts of one bucket. `last`: its last time, milliseconds. `copied`: when the last copy was made
    that equals it and whose original no run has deleted; None where there is none. `end`: of what is
    archived; None: it stays forever. `hold`: keeps it from being destroyed."""

    is_live: bool
    archived: ArchivedState | None  # where a copy is that counts
    last: int | None = None
    copied: datetime | None = None
    pin: Pin | None = None
    freeze: Hold | None = None
    fault: Quarantined | None = None
    windows: Windows = field(default_factory=Windows)
    end: End | None = None
    hold: Hold | None = None


@dataclass(frozen=True)
class Fate:
    """What happens to a bucket. `at`: a run after this instant does it; None where nothing is to come."""

    state: BucketState
    rule: str | None = None
    action: Action | None = None
    at: datetime | None = None


def fate(policy: Policy, it: Facts) -> Fate:
    """Returns what will happen to a bucket, and by which rule."""
    if it.is_live and it.fault is not None:
        return Fate("quarantined", f"it breaks its model, and stays: {it.fault.field}: {it.fault.reason}")
    if it.is_live:
        return _of_live(policy, it, "both" if it.archived else "live")
    if (state := it.archived) is None or policy.archive is None:
        return Fate("unknown")
    if it.end is None:
        return Fate(state, f'archive.to = "{policy.archive.to}": it stays there')
    rule = f'retain.archive = "{it.end.keep}"'
    if it.hold is not None:
        return Fate(state, f"{rule}; held by {it.hold.name}: it stays until that is released")
    if it.end.has_tombstone:
        rule += ", under a tombstone: `bucketwise undelete` lifts it"
    return Fate(state, rule, "expire", it.end.at)


def _of_live(policy: Policy, it: Facts, state: BucketState) -> Fate:
    if (archive := policy.archiving) is None:
        return Fate(state, "the policy archives nothing: it stays")
    if it.freeze is not None:
        return Fate(state, it.freeze.freeze_reason)
    due = None if it.last is None else due_at(archive, it.last)
    if it.pin is not None and (it.pin.until is None or due is None):
        return Fate(state, it.pin.reason)
    if due is None:
        return Fate(state, 'archive.after = "forever": it stays')
    if it.copied is None:
        return _pinned(it, Fate(state, _waiting(archive, it), "archive", max(due, _rolled_up(it) or due)))
    if reason := model_of(policy).undeletable:
        return Fate(state, reason)
    if not archive.delete:
        return Fate(state, "archive.delete = false: it is copied, and stays")
    rule = _waiting(archive, it)
    if archive.grace > _NOTHING:
        rule = f'archive.grace = "{format_duration(archive.grace)}": it is copied, and waits'
    return _pinned(it, Fate(state, rule, "delete", max(due, _later(it.copied, archive.grace))))


def _pinned(it: Facts, unpinned: Fate) -> Fate:
    if it.pin is None or it.pin.until is None or unpinned.at is None:
        return unpinned
    return Fate(unpinned.state, it.pin.reason, unpinned.action, max(unpinned.at, it.pin.until))


def _waiting(archive: Archive, it: Facts) -> str:
    rule = f'archive.after = "{format_duration(archive.after)}"'
    if archive.batch is not None:
        rule += f', archive.batch = "{format_duration(archive.batch)}"'
    return rule if _rolled_up(it) is None else f"{rule}, once its windows are rolled up"


def _rolled_up(it: Facts) -> datetime | None:
    """Returns when a run can roll up the bucket's windows; None where they are rolled up."""
    through, settled = it.windows
    if through is None or it.last is None or it.last < through:
        return None
    at = settled(it.last)
    return None if at is None else as_date(at)


def due_at(archive: Archive, last_ms: int) -> datetime | None:
    """Returns when a bucket with this last reading, and all of its batch, has expired; None where it never
    does."""
    if archive.after is None:
        return None
    if archive.batch is not None:
        batch = archive.batch // _MS
        last_ms = (last_ms // batch + 1) * batch
    return as_date(last_ms + archive.after // _MS)


def _later(at: datetime, by: timedelta) -> datetime:
    return max(at, as_date(as_ms(at) + by // _MS))
