"""What becomes of buckets, their copies and commits: decisions as functions of what is known, apart from IO.

A bucket has a name, equal for `_id`s that MongoDB takes for the same, and a unit, which is equal for buckets
that are equal to the last byte. Whether a copy may be live, its commit's receipt says. Both archives and
their readers ask here; so do the tests that explore the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

Name = Hashable
Unit = Hashable
#: A bucket that an archive holds: name, unit.
Copy = tuple[Name, Unit]
Document = dict[str, Any]
N = TypeVar("N", bound=Hashable)
K = TypeVar("K", bound=Hashable, covariant=True)
S = TypeVar("S", bound=Sequence[int])


class Flags(Protocol):
    """A truth for each index: a list, or an array."""

    def __getitem__(self, index: int, /) -> Any:
        """Returns it."""


class Outcome(NamedTuple):
    """Indices of the buckets of a batch that were deleted, that had changed, and that were gone already."""

    deleted: list[int]
    changed: list[int]
    gone: list[int]


def compared(verified: Iterable[Copy], live: Mapping[Any, Unit]) -> Outcome:
    """Returns which verified copies are live as they are, live but changed, or gone. Only originals of the
    first may be deleted."""
    outcome = Outcome([], [], [])
    for i, (name, unit) in enumerate(verified):
        now = live.get(name)
        if now is None:
            outcome.gone.append(i)
        else:
            (outcome.deleted if now == unit else outcome.changed).append(i)
    return outcome


def counting(copies: Iterable[Copy], may_be_live: Flags, live: Mapping[Any, Unit]) -> list[int]:
    """Returns the indices of the copies that count beside what is live. A live bucket counts, and not its
    copy, though that may be an older one. A document that took the `_id` of a deleted bucket is another."""
    return [
        i
        for i, (name, unit) in enumerate(copies)
        if name not in live or not (may_be_live[i] or live[name] == unit)
    ]


class HeldCopies(NamedTuple):
    """Indices of a commit's copies that live buckets equal, and of those that have to leave the commit since
    live ones are newer."""

    same: list[int]
    outdated: list[int]


def held_copies(
    copies: Sequence[Copy],
    may_be_live: Flags,
    names: Collection[Any],
    units: Collection[Any],
    not_last: Callable[[list[int]], Collection[int]],
) -> HeldCopies:
    """Returns what a commit holds of live buckets, given by their `names` and `units`.

    A live bucket that has the name of a deleted one is another bucket; one that equals it came back as it
    was. `not_last`: those of the copies that came back of which the archive holds later versions; such a
    bucket is now the last version, and has to be copied again, after the others."""
    equal = [i for i, (_, unit) in enumerate(copies) if unit in units]
    came_back = [i for i in equal if not may_be_live[i]]
    again = not_last(came_back) if came_back else ()
    of_live = (i for i, (name, _) in enumerate(copies) if name in names)
    newer = [i for i in of_live if copies[i][1] not in units and may_be_live[i]]
    return HeldCopies([i for i in equal if i not in again], sorted([*again, *newer]))


def with_older_copy(mine: Mapping[N, Any], others: Iterable[tuple[N, Any]]) -> list[N]:
    """Returns the names of the copies, of some that were archived first then, of which another open commit
    has an older copy: once their originals are deleted, both would count. `others`: name, archived first."""
    return [name for name, archived_before in others if name in mine and archived_before < mine[name]]


def left_behind(copies: Iterable[tuple[N, S]], live: Mapping[N, S]) -> list[S]:
    """Returns the spans (first and last instant) of copies that are about to leave the archive, as far as the
    live buckets of their names don't cover them. A copy may have counted there once its bucket had gone; what
    tells of a bucket that was written anew elsewhere names its own span alone."""
    found = ((span, live.get(name)) for name, span in copies)
    return [span for span, now in found if now is None or not (now[0] <= span[0] and span[1] <= now[1])]


class HasName(Protocol):
    """What has the name of a commit, and says which commits it has taken over."""

    @property
    def commit(self) -> str:
        """Returns the name."""

    @property
    def replaces(self) -> Sequence[str]:
        """Returns the names of those that it has taken over."""


C = TypeVar("C", bound=HasName)


def standing(commits: Iterable[C], known: Iterable[HasName]) -> list[C]:
    """Returns those of these commits that no known one has taken over: a crash may leave both."""
    replaced = {name for it in known for name in it.replaces}
    return [it for it in commits if it.commit not in replaced]


def is_unfinished(replaces: Iterable[str], listed: Collection[str], has_files: Callable[[], bool]) -> bool:
    """Returns whether a commit without a receipt is to be dropped, and not to be adopted: what it was to
    replace is still there, so that the exchange wasn't finished; or its files have been cleared already, as
    they are where its run had lost the lease."""
    return any(it in listed for it in replaces) or not has_files()


def no_longer_live(found: Outcome, *, is_forgotten: bool) -> list[int]:
    """Returns which buckets of an adopted commit are not live. With a forgotten commit, a live bucket that
    differs from its copy is an older one or another bucket, never a newer version."""
    return [*found.gone, *found.changed] if is_forgotten else found.gone


def held_elsewhere(
    mine: Sequence[Copy], units: Collection[Any], later: Collection[Any]
) -> tuple[list[int], list[int]]:
    """Returns which copies of an adopted commit others hold as they are (`units`), and which a later run has
    archived in a newer version (`later`: names): nothing was deleted because of this commit, so these changed
    while they were live."""
    equal = [i for i, (_, unit) in enumerate(mine) if unit in units]
    newer = [i for i, (name, unit) in enumerate(mine) if name in later and unit not in units]
    return equal, newer


class Ending(NamedTuple):
    """Indices of archived buckets that are past their time: of those that go, and of those that stay since
    their originals, or later versions of them, are live and wait to be deleted."""

    removable: list[int]
    live: list[int]


def ending(names: Iterable[Name], held: Collection[int], waiting: Collection[Any]) -> Ending:
    """Returns what becomes of archived buckets, given by their `names`, that are past their time. Those that
    are `held` (indices) stay. `waiting`: the names of those that wait to be deleted or merged."""
    found = Ending([], [])
    for i, name in enumerate(names):
        if i not in held:
            (found.live if name in waiting else found.removable).append(i)
    return found


def droppable(
    replaced: Iterable[Document], now: datetime, delay: timedelta, held: Container[str] = ()
) -> list[Document]:
    """Returns the receipts of replaced commits that no query can be reading any more, in the order of the
    chain, without those that are `held`. One whose predecessors stay has to stay as well: only its manifest
    says what it took over."""
    staying, found = set[str | None](), []
    for receipt in sorted(replaced, key=lambda it: int(it["sequence"])):
        is_read = "replaced_at" in receipt and now < receipt["replaced_at"] + delay
        name = receipt["_id"]["name"]
        if is_read or name in held or name in staying:
            staying.add(receipt["replaced_by"])
        else:
            found.append(receipt)
    return found


def successors(name: str, replaced_by: Mapping[str, str | None]) -> list[str | None]:
    """Returns the commits that have taken over a replaced one, one after another. The last one stands in its
    place by now, and alone has to be sound for the others to go: it has all that they had, whatever they have
    lost since. None: nothing of it is left. `replaced_by`: of all commits that others have taken over."""
    found: list[str | None] = [replaced_by[name]]
    while (last := found[-1]) is not None and last in replaced_by and last not in (name, *found[:-1]):
        found.append(replaced_by[last])
    return found


def left_over(files: Iterable[tuple[str, int]], fence: int) -> list[str]:
    """Returns the keys of files of no commit that a run may clear: those written under older leases. A newer
    holder's carry a higher fence, so a run that has lost its lease can't take them away."""
    return [key for key, of in files if of < fence]


def left_in_copy(
    objects: Iterable[tuple[N, str, int]], fence: int, *, staying: Container[str], own: Container[int]
) -> list[N]:
    """Returns the keys of what a run may clear of the objects that a copy has, and its store has not: what
    runs of this database (`own` leases) wrote under older leases, for commits that do not stay. What is of
    one that stays the store has lost. `objects`: key, commit, fence."""
    return [key for key, commit, of in objects if of < fence and of in own and commit not in staying]


class Changed(Protocol[K]):
    """Keys at which a copy of a store may differ from it. `deleted`: they were deleted there."""

    @property
    def keys(self) -> Sequence[K]:
        """Returns them."""

    @property
    def deleted(self) -> bool:
        """Returns whether they were deleted."""


def outstanding(changes: Sequence[Changed[K]]) -> tuple[list[list[K]], set[K]]:
    """Returns the keys at which a copy is made like its store with each of these changes: those that no later
    one names; and all that may go from the copy. What was deleted by any of them may: clocks of two hosts may
    differ, so that a delete may come before an earlier put."""
    last = {key: at for at, change in enumerate(changes) for key in change.keys}
    deleted = {key for change in changes if change.deleted for key in change.keys}
    return [[it for it in change.keys if last[it] == at] for at, change in enumerate(changes)], deleted
