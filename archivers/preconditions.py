"""What keeps a run from going on: one list, at the first of which a run or a plan stops, and all of which
`check` reports.

To add one: write a function that yields a `Problem` where something is not as a run needs it, and changes
nothing. Put it into one of the lists at the end, before those that rely on it. Its code goes into the table
of `check` in docs/operations.md. tests/jobs/keeping/test_preconditions.py wants a case of it. It is asked
once a run, and may cost a command or two, and a request to the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.forward import behind
from bucketwise.archivers.impact import unmakeable, unreadable
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.moving.archive import check_kind
from bucketwise.archivers.records.policies import PolicyRecord
from bucketwise.archivers.stores.base import Missing
from bucketwise.config.errors import BucketwiseError, HaltedError
from bucketwise.config.policies import Policy
from bucketwise.rollups.progress import COLLECTION as PROGRESS


@dataclass(frozen=True)
class Problem:
    """What keeps a run from going on. `code` is stable and for machines; `place` says where. The message of
    `error` says what, which value, and how to fix it; its class is that of the exit code."""

    code: str
    place: str
    error: BucketwiseError


Precondition = Callable[[ArchiveContext], Iterator[Problem]]


def problems(context: ArchiveContext, preconditions: Iterable[Precondition]) -> Iterator[Problem]:
    """Yields what keeps a run from going on. What this run has found in order is not asked again."""
    for precondition in preconditions:
        if precondition not in context.state.met:
            found = list(precondition(context))
            yield from found
            if not found:
                context.state.met.add(precondition)


def require(context: ArchiveContext, preconditions: Iterable[Precondition]) -> None:
    """Raises the error of the first problem."""
    for problem in problems(context, preconditions):
        raise problem.error


def destroying(context: ArchiveContext) -> ArchiveContext:
    """Returns a context in which no transaction begins while the database lacks a hold that the store tells
    of. The store is asked when the first one does."""

    def guard(session: ClientSession) -> None:
        context.guard(session)
        require(context, OF_DESTROYERS)

    return replace(context, guard=guard)


def has_source(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the policy's collection does not exist."""
    policy = context.policy
    if policy.may_be_missing or any(it["name"] == policy.collection for it in context.listed):
        return
    error = BucketwiseError(
        f"policy {policy.name}: there is no collection {policy.collection} in the database "
        f"{context.database.name}: is the name right? Where it may be missing, write may_be_missing = true. "
        "Nothing was changed"
    )
    yield Problem("source-missing", policy.collection, error)


def is_known(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the policy has no records, and one that has left the file has some of the same
    collection and model: it may be that one, renamed."""
    policy, records = context.policy, context.policy_records
    context.state.record = records.get(policy.identity)
    if context.state.record or policy.id == policy.name or records.has_any(policy.identity):
        return
    for other in records.departed(policy, context.known):
        under = f" under its id {policy.id}" if policy.id else ""
        error = HaltedError(
            f"policy {policy.name}: it has no records{under}, and policy {other}, which is not in this file, "
            f"has some of the same collection ({policy.collection}) and model ({policy.model}). If it is "
            f'{other}, renamed: write id = "{other}" into [policies.{policy.name}]. If {other} has ended: '
            f"`bucketwise retire {other} --reason TEXT`. If {other} goes on in another policy file: write "
            f'id = "{policy.name}". Nothing was changed'
        )
        yield Problem("policy-renamed", f"{PROGRESS}, {other}", error)


def reads_archive(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the policy reads buckets by other rules than before, and archived ones break
    these."""
    before = _changed_from(context)
    if before is not None and (fault := unreadable(context.policy, archive_of(context).evidence, before)):
        error = HaltedError(f"policy {context.policy.name}: {fault}. Nothing was changed")
        yield Problem("archive-unreadable", context.policy.collection, error)


def can_be_made_anew(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where series or days are others than before, and summaries stand that can't be made
    again."""
    before = _changed_from(context)
    if before is not None and (fault := unmakeable(context, archive_of(context).evidence, before)):
        error = HaltedError(f"policy {context.policy.name}: {fault}. Nothing was changed")
        yield Problem("summaries-lost", context.policy.collection, error)


def _changed_from(context: ArchiveContext) -> Policy | None:
    """Returns the policy as it was when it ran last; None where it has not changed since."""
    record = context.state.record
    return None if record is None or record == PolicyRecord.of(context.policy) else record.policy


def has_one_kind(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the policy has archived to another kind of archive than it says."""
    try:
        check_kind(context.database, context.policy)
    except BucketwiseError as error:
        yield Problem("archive-kind", context.policy.collection, error)


def has_store(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the directory of the policy's store does not exist."""
    try:
        context.binding.check_there()
    except (HaltedError, Missing) as error:
        yield Problem("store-absent", context.binding.place, error)


def is_ours(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the archive belongs to another deployment; where nothing is written, also where
    a run would halt at its first write."""
    if context.policy.archiving is None:
        return
    try:
        context.binding.check()
        if not context.fence:
            context.binding.check_claim()
    except Missing:
        pass  # which `has_store` tells
    except HaltedError as error:
        yield Problem("archive-not-ours", context.binding.place, error)


def has_heads(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the store does not hold the last commits, or collections of an online archive
    are not as they were left. A run that writes finds that when it recovers, before anything else."""
    if context.fence:
        return
    archive = archive_of(context)
    try:
        context.state.heads = archive.heads()
    except HaltedError as error:
        yield Problem("archive-incomplete", archive.place, error)


def has_all_commits(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the store lacks a registered commit, or one that was dropped has come back. A
    run lists all commits, and finds that, after one that was cut off; until then `check` tells."""
    if has_heads not in context.state.met:
        return
    archive = archive_of(context)
    yield from _halting("archive-incomplete", archive.place, archive.check_complete)


def has_no_others(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the store holds a commit, or a file named for one, that no run of this database
    has left there. A run lists these where the last one was cut off, or the last commit is unknown."""
    if has_heads not in context.state.met:
        return
    archive = archive_of(context)
    yield from _halting("archive-foreign", archive.place, archive.check_own)


def _halting(code: str, place: str, check: Callable[[], None]) -> Iterator[Problem]:
    try:
        check()
    except HaltedError as error:
        yield Problem(code, place, error)


def goes_forward(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the run's `now` lies before what the archive has recorded. It may roll up all
    the same. Where the last commits are missing, `has_heads` and recovery tell."""
    with suppress(HaltedError):
        if (error := behind(context)) is not None:
            yield Problem("time-recorded", context.receipts.collection.name, error)


def has_holds(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem for each hold that the store tells of, and the database lacks or can't compare."""
    for error in context.damage_of_holds():
        yield Problem("hold-missing", error.place, error)


#: Those of whatever reads the archive. It finds by itself whether what it reads is there.
OF_READERS: tuple[Precondition, ...] = (is_known, has_one_kind)
#: Those of whatever works on the archive.
OF_ARCHIVES: tuple[Precondition, ...] = (*OF_READERS, has_store, has_heads, is_ours)
#: Those of whatever changes the archive without the source.
OF_REWRITERS: tuple[Precondition, ...] = (*OF_ARCHIVES, goes_forward)
#: Those of a run, in the order in which it asks for them, before it rolls up.
PRECONDITIONS: tuple[Precondition, ...] = (
    has_source, *OF_ARCHIVES, reads_archive, can_be_made_anew,
)  # fmt: skip
#: Those of whatever destroys something that a hold may cover.
OF_DESTROYERS: tuple[Precondition, ...] = (has_holds,)
#: All: also those that it asks for once it has rolled up.
OF_WRITERS: tuple[Precondition, ...] = (*PRECONDITIONS, goes_forward)
#: What `check` looks for.
OF_CHECKS: tuple[Precondition, ...] = (*OF_WRITERS, *OF_DESTROYERS, has_all_commits, has_no_others)
