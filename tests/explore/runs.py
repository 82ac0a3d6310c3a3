"""The archive run of the offline archive: what `archivers/moving` does, an effect a command or request.

What it decides, it decides by `archivers/decisions.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from bucketwise.archivers import decisions
from tests.explore.commits import CURRENT, Run, Writes, check_files, copy, make_manifest, register, rewrite
from tests.explore.effects import (
    Steps,
    checked,
    present,
    read,
    required,
    transaction,
)
from tests.explore.world import (
    DAYS,
    Doc,
    Effect,
    Failed,
    Frozen,
    Manifest,
    Pin,
    Receipt,
    Summary,
    World,
    counting,
    has_ended,
    readings_on,
)

# Roll-ups


def roll_up(run: Run, days: Collection[int], *, force: bool = False) -> Steps:
    """Rolls days up where the change stream tells of changes, and writes the summaries that differ. Returns
    True."""

    def look(world: World) -> Frozen:
        summaries = world.db.of("summary")
        changed = {
            day: world.dirty[day]
            for day in days
            if day in world.dirty and (day not in summaries or summaries[day].seen < world.dirty[day])
        }
        left = world.db.of("left")
        due = set(days) if force else {*changed, *left}
        ended = {day for day in due if has_ended(day, world.db)}
        found = counting(world.db, world.readable) if due else []
        made = {
            day: summaries[day]._replace(seen=world.dirty.get(day, 0))
            if day in ended and day in summaries
            else Summary(readings_on(day, found), world.dirty.get(day, 0))
            for day in due
        }
        return Frozen({day: it for day, it in made.items() if day in left or summaries.get(day) != it})

    due: Frozen = yield Effect(f"rolls up{' again' if force else ''} days {sorted(days)}", look)
    if due:
        writes: Writes = {("summary", day): summary for day, summary in due.items()}
        writes |= {("left", day): None for day in due}
        yield from transaction(run.lease, "write summaries", lambda _: (writes, None), is_blind=True)
    return True


# Deletes


def open_commits(run: Run, receipts: Frozen) -> list[str]:
    """Returns the open commits whose grace is over."""
    found = receipts.of("receipt")
    return [name for name, it in found.items() if it.state == "open" and not run.waits(it.created)]


def settle(run: Run) -> Steps:
    """Deletes what earlier runs have copied and may go now, the oldest commits first."""
    receipts = yield read("receipt")
    manifests = []
    for name in open_commits(run, receipts):
        manifests.append((yield from required("manifest", name)))
    for manifest in sorted(manifests, key=lambda it: min(it.origins)):
        known = yield read("receipt", "pin", "hold")
        receipt: Receipt = known["receipt", manifest.commit]
        docs: tuple[Doc, ...] = yield from required("file", manifest.commit)
        due = [i for i, it in enumerate(docs) if receipt.live[i] and may_move(known, it)]
        due = yield from without_older(manifest, docs, due)
        if due and (yield from roll_up(run, manifest.days)):
            changed = yield from delete_originals(run, manifest, docs, due)
            if changed:
                yield from amend(run, manifest, docs, changed)


def may_move(known: Frozen, doc: Doc) -> bool:
    """Returns whether neither a pin nor a hold keeps a bucket."""
    return ("pin", doc.id) not in known and not any(doc.day in days for days in known.of("hold").values())


def without_older(manifest: Manifest, docs: Sequence[Doc], due: list[int]) -> Steps:
    """Returns those of these places of which no other open commit has an older copy."""
    if not due:
        return due
    receipts = yield read("receipt")
    mine = {docs[i].id: manifest.origins[i] for i in due}
    older: list[tuple[int, tuple[int, int]]] = []
    for name, receipt in receipts.of("receipt").items():
        if receipt.state == "open" and name != manifest.commit:
            other = yield from required("manifest", name)
            there = yield from required("file", name)
            older += [(it.id, other.origins[i]) for i, it in enumerate(there) if receipt.live[i]]
    moved = decisions.with_older_copy(mine, older)
    return [i for i in due if docs[i].id not in moved]


def delete_originals(run: Run, manifest: Manifest, docs: Sequence[Doc], due: Sequence[int]) -> Steps:
    """Deletes the originals of these copies. Returns those that had changed."""
    name = manifest.commit
    yield from check_files(name)
    yield from checked(run.lease)
    yield from run.claim()
    yield from present("manifest", name)

    def body(before: Frozen) -> tuple[Writes, decisions.Outcome]:
        verified = [(docs[i].id, docs[i]) for i in due]
        outcome = decisions.compared(verified, before.of("doc"))
        check_not_frozen(before, (docs[i] for i in due))
        gone = {due[i] for i in outcome.deleted}
        writes: Writes = {("doc", docs[i].id): None for i in gone}
        return {**writes, **no_longer_live(before, name, gone)}, outcome

    outcome: decisions.Outcome = yield from transaction(run.lease, f"delete originals of {name}", body)
    if outcome.gone:
        gone = [due[i] for i in outcome.gone]
        run.deleted_by_others |= {docs[i].id for i in gone}
        if (yield from roll_up(run, manifest.days, force=True)):
            yield from note_gone(run, name, {i: docs[i].id for i in gone})
    return [due[i] for i in outcome.changed]


def check_not_frozen(before: Frozen, docs: Iterable[Doc]) -> None:
    """Raises Failed where a hold, placed meanwhile, freezes any of them."""
    frozen = {day for days in before.of("hold").values() for day in days}
    if any(it.day in frozen for it in docs):
        raise Failed("held")


def no_longer_live(before: Frozen, name: str, gone: Collection[int]) -> Writes:
    """Returns the write that records that these buckets of a commit are no longer live."""
    receipt: Receipt = before["receipt", name]
    live = tuple(it and i not in gone for i, it in enumerate(receipt.live))
    return {("receipt", name): receipt._replace(state="open" if any(live) else "closed", live=live)}


def note_gone(run: Run, name: str, gone: Mapping[int, int]) -> Steps:
    """Records that these buckets of a commit, place -> `_id`, are no longer live, unless their `_id`s are
    there again."""

    def body(before: Frozen) -> tuple[Writes, None]:
        still = [i for i, identity in gone.items() if ("doc", identity) not in before]
        return no_longer_live(before, name, still), None

    yield from transaction(run.lease, f"note what is gone of {name}", body)


def amend(run: Run, manifest: Manifest, docs: Sequence[Doc], leaving: Sequence[int]) -> Steps:
    """Takes changed buckets out of a commit. Those that are gone by now stay, and count; those that change
    while the windows are rolled up that they have left stay for the next run."""
    live = (yield read("doc")).of("doc")
    there = [i for i in leaving if docs[i].id in live]
    left = decisions.left_behind(_days(docs[i] for i in there).items(), _days(live.values()))
    if left:
        yield from roll_up(run, {day for day, _ in left}, force=True)
        there = yield from as_they_were(docs, there, live)
    run.deleted_by_others |= {docs[i].id for i in leaving if i not in there}
    if there:
        yield from rewrite(run, manifest, there, there)


def as_they_were(docs: Sequence[Doc], some: Sequence[int], live: Mapping[int, Doc]) -> Steps:
    """Returns those of these places whose buckets are live as they were before a roll-up: the copy of one
    that somebody has deleted meanwhile may have counted in it."""
    now = (yield read("doc")).of("doc")
    return [i for i in some if now.get(docs[i].id) == live[docs[i].id]]


def _days(docs: Iterable[Doc]) -> dict[int, tuple[int, int]]:
    return {it.id: (it.day, it.day) for it in docs}


# The sweep


def sweep(run: Run) -> Steps:
    """Copies what is due day by day, commits each copy once the next is under way; deletes what may go."""
    waiting: list[tuple[str, list[Doc]]] = []
    for day in DAYS:
        known = yield read("doc", "pin", "hold")
        yield from roll_up_pinned(run, known, day)
        batch = [it for it in known.of("doc").values() if it.day == day and may_move(known, it)]
        if batch and (docs := (yield from still_movable(run, batch, day))):
            run.unsettled.append({it.id for it in docs})
            name = yield from copy(run, docs)
            waiting.append((name, docs))
            if len(waiting) > run.ahead:
                yield from settle_copy(run, *waiting.pop(0))
    for name, docs in waiting:
        yield from settle_copy(run, name, docs)


def roll_up_pinned(run: Run, known: Frozen, day: int) -> Steps:
    """Rolls up pinned buckets that have changed: where summaries hold them, as the pin tells, and where their
    copies are."""
    pins: dict[int, Pin] = known.of("pin")
    live = {it.id: it for it in known.of("doc").values() if it.day == day and it.id in pins}
    changed = {name: it for name, it in live.items() if pins[name].seen != it}
    if changed:
        now = _days(changed.values())
        before = [(it, (day, day)) for it in changed for day in (pins[it].day, pins[it].archived)]
        if left := decisions.left_behind(before, now):
            yield from roll_up(run, {first for first, _ in left}, force=True)
        seen = {("pin", name): pins[name]._replace(seen=it, day=it.day) for name, it in changed.items()}
        yield from transaction(run.lease, "note what is pinned", lambda _: (seen, None))


def still_movable(run: Run, batch: list[Doc], day: int) -> Steps:
    """Returns the buckets that are to be copied: not copied yet, and as they are rolled up."""
    batch = yield from not_copied(run, batch, day)
    if not batch or not (yield from roll_up(run, {day})):
        return []
    live = (yield read("doc")).of("doc")
    outcome = decisions.compared([(it.id, it) for it in batch], live)
    return [batch[i] for i in outcome.deleted]


def not_copied(run: Run, batch: list[Doc], day: int) -> Steps:
    """Returns the buckets that no commit holds as they are; takes old copies of them out of theirs."""
    receipts = (yield read("receipt")).of("receipt")
    others: list[Manifest] = []
    names = {it.id for it in batch}
    for name, receipt in receipts.items():
        if receipt.state in CURRENT and name not in run.made:
            manifest = yield from required("manifest", name)
            is_near = day in manifest.days
            if not is_near and is_looked_at(run, receipt):
                docs = yield from required("file", name)
                is_near = any(it.id in names for it, live in zip(docs, receipt.live, strict=True) if live)
            if is_near:
                others.append(manifest)
    held: set[Doc] = set()
    for manifest in decisions.standing(others, others):
        receipt = (yield read("receipt")).get(("receipt", manifest.commit))
        docs = yield from required("file", manifest.commit)
        copies = [(it.id, it) for it in docs]
        not_last = partial(_not_last, docs, (yield from last_versions(docs)))
        found = decisions.held_copies(copies, receipt.live, names, set(batch), not_last)
        held |= {docs[i] for i in found.same}
        yield from settle_held(run, manifest, docs, found, receipt)
    met = copied_in_this_run(run)
    return [it for it in batch if it not in held and it.id not in met]


def is_looked_at(_run: Run, receipt: Receipt) -> bool:
    """Returns whether a commit of another time may have copies of buckets that have moved."""
    return receipt.state == "open"


def copied_in_this_run(run: Run) -> set[int]:
    """Returns the buckets that this run has copied and not deleted, which it may read again."""
    return run.staying.union(*run.unsettled) | run.deleted_by_others


def _not_last(docs: Sequence[Doc], last: dict[int, Doc], some: list[int]) -> list[int]:
    return [i for i in some if last[docs[i].id] != docs[i]]


def last_versions(docs: Sequence[Doc]) -> Steps:
    """Returns the last version that the archive holds of each bucket: `_id` -> it."""
    receipts = (yield read("receipt")).of("receipt")
    wanted, versions = {it.id for it in docs}, []
    for name, receipt in receipts.items():
        if receipt.state in CURRENT:
            manifest = yield from required("manifest", name)
            there = yield from required("file", name)
            versions += [(manifest.origins[i], it) for i, it in enumerate(there) if it.id in wanted]
    return {it.id: it for _, it in sorted(versions, key=lambda it: it[0])}


def settle_held(
    run: Run, manifest: Manifest, docs: Sequence[Doc], found: decisions.HeldCopies, receipt: Receipt
) -> Steps:
    """Settles the live buckets of a commit: those that equal its copies, and those that are newer."""
    same, outdated = found
    waits = run.waits(manifest.created)
    if not all(receipt.live[i] for i in same):  # they were deleted, and came back as they were
        live = [it or i in same for i, it in enumerate(receipt.live)]
        yield from register(run, manifest, live)
    if same and not waits and (yield from roll_up(run, manifest.days)):
        due = yield from without_older(manifest, docs, same)
        changed = yield from delete_originals(run, manifest, docs, due)
        outdated = sorted({*outdated, *changed})
    if outdated:
        yield from amend(run, manifest, docs, outdated)


def settle_copy(run: Run, name: str, docs: list[Doc]) -> Steps:
    """Commits a copy, and deletes the originals that may go."""
    manifest = yield from make_manifest(run, name, docs)
    yield from register(run, manifest, [True] * len(docs))
    run.made.add(name)
    stays = run.waits(run.now) or not (yield from roll_up(run, manifest.days))
    if not stays:
        changed = yield from delete_originals(run, manifest, docs, range(len(docs)))
        if changed:
            yield from amend(run, manifest, docs, changed)
    names = run.unsettled.pop(0)
    if stays:
        run.staying |= names
