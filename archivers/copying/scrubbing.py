"""Looks after a share of an offline archive each day, for what a store has lost or damaged since.

Within thirty days each commit has its turn, by the day on which it begins: its manifest is read, and the
store lists its files, which have to be there with their sizes. Of the share that `audit.sample` names, the
files are read as well. The store and each of its copies that is up to it are looked at by themselves. Where
something is damaged, the files of its commit are read everywhere, and what is damaged is put back from
where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.copying.changes import standings
from bucketwise.archivers.copying.places import copied, first_alone, within
from bucketwise.archivers.copying.repairing import Mended, Repair
from bucketwise.archivers.format.names import Commit, day_number
from bucketwise.archivers.stores.base import StoreError
from bucketwise.archivers.verifying.offline import verify_commits, verify_sizes
from bucketwise.archivers.verifying.report import Damage
from bucketwise.buckets.fields.times import DAY_MS, as_ms
from bucketwise.rollups.progress import progress_collection

Document = dict[str, Any]
#: Days within which each commit has its turn.
PERIOD = 30
#: Daily looks that take the whole archive. It is one less than there are days: a look ends where the archive
#: does, and does not begin it again.
_LOOKS = PERIOD - 1
#: Damaged commits that are looked at again each day until they are mended, and by each run of a day; others
#: wait for their turn.
_MOST_AGAIN, _AGAIN_EACH_RUN = 1000, 10


class Share(NamedTuple):
    """UTC days, since 1970, whose commits have their turn, and the day with which the next turn begins."""

    first: int
    last: int
    next: int


def share_of(span: tuple[int, int], begin: int, share: float) -> Share:
    """Returns about that share of a span of days, at least one, from the day `begin` on; from its first day
    where that is no day of the span."""
    first, last = span
    begin = begin if first <= begin <= last else first
    end = begin + max(1, math.ceil((last - first + 1) * share)) - 1
    return Share(begin, min(end, last), end + 1 if end < last else first)


@dataclass(frozen=True)
class _Turns:
    """The day of the last look, the days with which the next ones begin, and the commits in which damage was
    found that nothing has mended."""

    day: int
    sizes: int = 0
    contents: int = 0
    again: tuple[str, ...] = ()

    @classmethod
    def load(cls, context: ArchiveContext) -> Self | None:
        """Returns what is recorded; None before the first look."""
        found = progress_collection(context.database).find_one({"_id": {"scrub": context.policy.identity}})
        if found is None:
            return None
        return cls(found["day"], found["sizes"], found["contents"], tuple(found["again"]))

    def store(self, context: ArchiveContext) -> None:
        """Records it."""
        name = {"scrub": context.policy.identity}
        document = {"_id": name, **vars(self), "again": list(self.again)}
        progress_collection(context.database).replace_one({"_id": name}, document, upsert=True)


@dataclass
class Scrubbed:
    """Tells what was looked at, in the store and its copies together: `parts` by their sizes, `parts_read`
    by their contents. `mended`: what was put back; `lost`: what is damaged, and undamaged nowhere. `damaged`:
    the commits of both, by name."""

    parts: int = 0
    parts_read: int = 0
    mended: list[Mended] = field(default_factory=list)
    lost: list[Damage] = field(default_factory=list)
    damaged: dict[str, Commit] = field(default_factory=dict)

    @property
    def still_damaged(self) -> tuple[str, ...]:
        """Returns the names of the commits that are damaged, unless all of that was mended."""
        return tuple(sorted(self.damaged)) if self.lost else ()


def scrub(context: ArchiveContext) -> Scrubbed | None:
    """Looks at what has its turn today, and at what was damaged; puts back what is damaged where a copy has
    it; needs the lease. Returns None where that was done today and nothing was damaged, or nothing was
    archived before. Raises StoreError."""
    today, turns = as_ms(context.now) // DAY_MS, _Turns.load(context)
    if turns is not None and turns.day == today:
        return _look_again(context, turns) if turns.again else None
    span = context.receipts.span()
    if turns is None or span is None:  # what is archived today was read back today
        _Turns(today).store(context)
        return None
    elapsed = min(max(today - turns.day, 1), _LOOKS)
    sizes = share_of(span, turns.sizes, elapsed / _LOOKS)
    contents = share_of(span, turns.contents, context.policy.audit.sample or 0)
    read = _current(context, turns.again)
    if context.policy.audit.sample is not None:
        read |= _beginning(context, contents)
    found = _mended(context, _look(context, _beginning(context, sizes), read))
    _Turns(today, sizes.next, contents.next, found.still_damaged[:_MOST_AGAIN]).store(context)
    return found


def _look_again(context: ArchiveContext, turns: _Turns) -> Scrubbed:
    """Looks at what was damaged when it had its turn."""
    again, others = turns.again[:_AGAIN_EACH_RUN], turns.again[_AGAIN_EACH_RUN:]
    found = _mended(context, _look(context, {}, _current(context, again)))
    replace(turns, again=(*found.still_damaged, *others)).store(context)
    return found


def _mended(context: ArchiveContext, found: Scrubbed) -> Scrubbed:
    """Returns what was found, once what is damaged was put back where a copy has it."""
    if found.damaged and (store := copied(context)) is not None:
        if not context.binding.state.is_claimed:
            context.binding.check_claim()  # nothing is put where a disk is not mounted
        repaired = Repair(context, store, writes=True, pieces=list(found.damaged.values())).run()
        urls = tuple(f"{it.url}/" for it in store.stores)
        records = [it for it in found.lost if not it.place.startswith(urls)]  # no copy mends these
        found.mended, found.lost = repaired.objects, [*repaired.lost, *records]
    return found


def _beginning(context: ArchiveContext, share: Share) -> dict[str, Commit]:
    """Returns the current commits that begin on these days, by name."""
    near = context.receipts.within(share.first, share.last)
    return {it.name: it for it in near if share.first <= day_number(it.first) <= share.last}


def _current(context: ArchiveContext, names: Sequence[str]) -> dict[str, Commit]:
    """Returns those of these commits that must be there."""
    if not names:
        return {}
    current = context.receipts.current(names)
    return {name: it for name, it in context.receipts.registered(names).items() if name in current}


def _look(context: ArchiveContext, listed: dict[str, Commit], read: dict[str, Commit]) -> Scrubbed:
    """Returns what is found in the store, and in each copy that is up to it. A copy that can't be reached is
    left out, unless it is required."""
    found = _look_at(first_alone(context), listed, read, Scrubbed())
    store, complete = copied(context), {it.name for it in standings(context) if it.behind == 0}
    for copy in (it for it in store.copies if it.name in complete) if store else ():
        try:
            found = _look_at(within(context, copy.store), listed, read, found)
        except StoreError as error:
            if copy.required:
                raise
            context.progress(f"copy {copy.name} is left out: {error}", 0)
    return found


def _look_at(
    place: ArchiveContext, listed: dict[str, Commit], read: dict[str, Commit], found: Scrubbed
) -> Scrubbed:
    """Returns what was found before, with what is found in one place."""
    archive, bad, damaged = place.offline(), list(found.lost), dict(found.damaged)
    parts = {}
    for commits, verify in ((listed, verify_sizes), (read, verify_commits)):
        report, intact = verify(place, archive, list(commits.values()))
        parts[verify] = report.parts
        known = {it.place for it in bad}
        whole = {it.piece.name for it in intact} | {it.commit for it in report.cold}
        bad += [it for it in report.bad if it.place not in known]
        damaged |= {name: it for name, it in commits.items() if name not in whole}
    return Scrubbed(
        found.parts + parts[verify_sizes], found.parts_read + parts[verify_commits], [], bad, damaged
    )
