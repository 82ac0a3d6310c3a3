"""The archive run of the online archive: what `OnlineRun` and `Merging` do.

Of each `_id` the database has what is archived: the versions that are merged there; its copy that waits to be
deleted, or, of a later version, to be merged; and versions that no longer count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bucketwise.archivers import decisions
from tests.explore import runs
from tests.explore.commits import Run, Writes
from tests.explore.effects import Steps, checked, read, transaction
from tests.explore.runs import check_not_frozen, may_move
from tests.explore.world import DAYS, Doc, Frozen, Halt, hides, last_day


class Late(NamedTuple):
    """A copy of a later version, which waits to be merged."""

    doc: Doc
    copied: int


def archive_online(run: Run) -> Steps:
    """The verb `archive`."""
    yield from runs.roll_up(run, DAYS)
    yield from settle(run)
    yield from settle_late(run)
    yield from sweep(run)


def settle(run: Run) -> Steps:
    """Deletes the originals of copies whose grace is over."""
    known = yield read("copied", "into", "merged", "pin", "hold")
    yield from roll_up_merged(run, known.of("merged"))
    due = [name for name, at in known.of("copied").items() if not run.waits(at)]
    copies = [known["into", name][-1] for name in due]
    copies = [it for it in copies if may_move(known, it)]
    if copies and (yield from runs.roll_up(run, {it.day for it in copies})):
        yield from delete_originals(run, copies)


def delete_originals(run: Run, copies: list[Doc]) -> Steps:
    """Deletes the originals of these copies. One that has changed, and contains its copy, loses that."""
    yield from checked(run.lease)

    def body(before: Frozen) -> tuple[Writes, decisions.Outcome]:
        live = before.of("doc")
        outcome = decisions.compared([(it.id, it) for it in copies], live)
        check_not_frozen(before, copies)
        writes: Writes = {}
        for i in outcome.deleted:
            writes |= {("doc", copies[i].id): None, ("copied", copies[i].id): None}
        for i in outcome.changed:
            if copies[i].readings <= live[copies[i].id].readings:
                writes |= {("into", copies[i].id): None, ("copied", copies[i].id): None}
        return writes, outcome

    outcome: decisions.Outcome = yield from transaction(run.lease, "delete originals", body)
    gone = [copies[i] for i in outcome.gone]
    if gone:
        yield from runs.roll_up(run, {it.day for it in gone}, force=True)

        def note(before: Frozen) -> tuple[Writes, None]:
            return {("copied", it.id): None for it in gone if ("doc", it.id) not in before}, None

        yield from transaction(run.lease, "note what is gone", note)


def settle_late(run: Run) -> Steps:
    """Merges later versions whose grace is over."""
    known = yield read("merging", "pin", "hold")
    late: dict[int, Late] = known.of("merging")
    due = [it.doc for it in late.values() if not run.waits(it.copied) and may_move(known, it.doc)]
    if due and (yield from runs.roll_up(run, {it.day for it in due})):
        yield from merge(run, due)


def merge(run: Run, late: list[Doc]) -> Steps:
    """Merges copies of later versions into what is archived, and deletes the originals."""
    yield from checked(run.lease)

    def body(before: Frozen) -> tuple[Writes, dict[int, int]]:
        outcome = decisions.compared([(it.id, it) for it in late], before.of("doc"))
        check_not_frozen(before, late)
        writes: Writes = {}
        for i in outcome.changed:
            writes |= superseding(before, late[i])
        for i in merged(outcome):
            if (there := before.get(("into", late[i].id))) is None:
                raise Halt(f"{late[i].id} has gone from the archive")
            writes["into", late[i].id] = (*(it for it in there if it != late[i]), late[i])
            writes |= noting(before, run, writes["into", late[i].id])
            if i in outcome.gone or hides(late[i], there):
                writes["merged", late[i].id] = late[i].day
        writes |= {("merging", it.id): None for it in late}
        writes |= {("doc", late[i].id): None for i in outcome.deleted}
        return writes, {name: day for (kind, name), day in writes.items() if kind == "merged"}

    outdated: dict[int, int] = yield from transaction(run.lease, "merge later versions", body)
    yield from roll_up_merged(run, outdated)


def roll_up_merged(run: Run, merged: Mapping[int, int]) -> Steps:
    """Rolls days up again of what was merged after somebody else had deleted it, or took the place of other
    readings: `_id` -> its day."""
    if merged and (yield from runs.roll_up(run, set(merged.values()), force=True)):
        writes = {("merged", it): None for it in merged}
        yield from transaction(run.lease, "note what is rolled up again", lambda _: (writes, None))


def merged(outcome: decisions.Outcome) -> list[int]:
    """Returns which later versions are merged: those of what somebody has deleted meanwhile as well."""
    return sorted([*outcome.deleted, *outcome.gone])


def superseding(before: Frozen, *docs: Doc) -> Writes:
    """Returns the writes that keep versions which no longer count."""
    writes: Writes = {}
    for it in docs:
        kept = writes.get(("version", it.id)) or before.get(("version", it.id), ())
        writes["version", it.id] = (*kept, it)
    return writes


def sweep(run: Run) -> Steps:
    """Copies what is due, and deletes or merges what may go, day by day."""
    known = yield read("doc", "into", "copied", "merging", "pin", "hold")
    new, due, late = list[Doc](), list[Doc](), list[Doc]()
    for doc in known.of("doc").values():
        copies, copied = known.get(("into", doc.id)), known.get(("copied", doc.id))
        waiting: Late | None = known.get(("merging", doc.id))
        if not may_move(known, doc):
            continue
        if copies is None or (copied is not None and copies != (doc,)):
            new.append(doc)
        elif copies == (doc,):
            if copied is None or not run.waits(copied):
                due.append(doc)
        elif waiting is None or waiting.doc != doc or not run.waits(waiting.copied):
            late.append(doc)
    docs = [*new, *due, *late]
    if not docs or not (yield from runs.roll_up(run, {it.day for it in docs})):
        return
    live = (yield read("doc")).of("doc")
    for day in sorted({it.day for it in docs}):
        these = [[it for it in some if it.day == day and live.get(it.id) == it] for some in (new, due, late)]
        if these[0] or these[1]:
            yield from copy(run, *these[:2])
        if these[2]:
            yield from copy_late(run, these[2])


def copy(run: Run, new: list[Doc], due: list[Doc]) -> Steps:
    """Writes copies, in place of outdated ones, and deletes the originals that may go."""
    known = yield read("into")
    older = [known["into", it.id][-1] for it in new if ("into", it.id) in known]
    left = decisions.left_behind(_days(older).items(), _days(new))
    if left:
        yield from runs.roll_up(run, {first for first, _ in left}, force=True)
        live = (yield read("doc")).of("doc")
        stale = {it.id for it in older}
        new = [it for it in new if it.id not in stale or live.get(it.id) == it]

    def body(before: Frozen) -> tuple[Writes, None]:
        writes: Writes = {}
        for it in new:
            stale = before.get(("into", it.id), ())
            lacking = [old for old in stale if not old.readings <= it.readings]
            waiting: Late | None = before.get(("merging", it.id))
            writes |= superseding(before, *lacking, *([] if waiting is None else [waiting.doc]))
            writes |= {("into", it.id): (it,), ("copied", it.id): run.now, ("merging", it.id): None}
            writes |= noting(before, run, [it])
        writes |= {("copied", it.id): run.now for it in due}
        return writes, None

    yield from transaction(run.lease, "write copies", body)
    if not run.waits(run.now):
        yield from delete_originals(run, [*new, *due])


def noting(before: Frozen, run: Run, docs: Iterable[Doc]) -> Writes:
    """Returns the write that notes, where the archive has an end, that something was archived of the day on
    which a bucket ends."""
    if ("ends", 0) not in before:
        return {}
    day = last_day(docs)
    return {("archived", day): max(run.now, before.get(("archived", day), run.now))}


def copy_late(run: Run, late: list[Doc]) -> Steps:
    """Writes copies of later versions, in place of those of earlier states of them; merges what may go."""

    def body(before: Frozen) -> tuple[Writes, None]:
        writes: Writes = {}
        for it in late:
            old: Late | None = before.get(("merging", it.id))
            if old is not None and not old.doc.readings <= it.readings:
                writes |= superseding(before, old.doc)
            writes["merging", it.id] = Late(it, run.now)
        return writes, None

    yield from transaction(run.lease, "copy later versions", body)
    if not run.waits(run.now):
        yield from merge(run, late)


def _days(docs: Iterable[Doc]) -> dict[int, tuple[int, int]]:
    return {it.id: (it.day, it.day) for it in docs}
