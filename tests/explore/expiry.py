"""The end of an offline archive: what `archivers/expiring` does, by its rule of what is past its time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from bucketwise.archivers.expiring.rule import RetentionRule
from bucketwise.buckets.fields.times import as_ms
from tests.explore.commits import DROPPED, Run, Writes, drop_replaced, kept_of, with_replaced
from tests.explore.effects import EPOCH, Steps, checked, instant, listing, read, required, transaction
from tests.explore.world import DAY, HOUR, Effect, Frozen, Halt, Manifest, Receipt, World, end_of

#: How long readings stay, what is archived at least, and what has a tombstone.
KEEP, STAY, GRACE = 2 * DAY, HOUR, HOUR


def rule_at(now: int) -> RetentionRule:
    """Returns the rule of the policy, at an instant."""
    keep, grace, after = (timedelta(milliseconds=it) for it in (KEEP, GRACE, KEEP - STAY))
    return RetentionRule(keep, grace, instant(now), after)


def ended_by(rule: RetentionRule) -> int:
    """Returns the instant before which readings are past their time, by the clock of the world."""
    return rule.end - as_ms(EPOCH)


def may_end(receipt: Receipt) -> bool:
    """Returns whether nothing of a commit is live, and something of it lies in the archive or beside it."""
    return receipt.state in ("closed", "emptied")


def is_past(rule: RetentionRule, manifest: Manifest) -> bool:
    """Returns whether all of a commit is past its time, and was archived long enough ago."""
    is_over = all(end_of(day) <= ended_by(rule) for day in manifest.days)
    return is_over and instant(manifest.created) <= rule.archived_by


def expire(run: Run) -> Steps:
    """Puts tombstones on what is past its time, and removes what is under one that is due."""
    rule, new, due, over = rule_at(run.now), list[str](), list[Manifest](), list[str]()
    for name, receipt in (yield read("receipt")).of("receipt").items():
        if not may_end(receipt):
            continue
        is_emptied = receipt.state == "emptied"
        manifest: Manifest = yield from required("link" if is_emptied else "manifest", name)
        if is_past(rule, manifest):
            is_over = is_emptied and not (yield from kept_of(manifest))
            stage = rule.stage(receipt.tombstone)
            if stage == "none":
                (over if is_over else new).append(name)
            elif stage == "due" and not receipt.tombstone.get("held"):
                due.append(manifest)
    if new or due:
        yield from check_holds()
    if new:
        yield from transaction(run.lease, "place tombstones", lambda db: (_placed(db, new, rule), None))
    for name in over:
        yield mark_over(name)
    for manifest in due:
        yield from checked(run.lease)
        yield from end(run, rule, manifest)


def check_holds() -> Steps:
    """Raises Halt where the store tells of a hold that the database lacks: what that covers is not known."""
    told, active = (yield listing("hold")), (yield read("hold")).of("hold")
    if told.keys() - active.keys():
        raise Halt("the store tells of a hold that the database does not have")


def mark_over(name: str) -> Effect:
    """Marks the record of a commit in which nothing was left, and that has left nothing, as that of any
    dropped one."""

    def do(world: World) -> None:
        world.write({("receipt", name): world.db["receipt", name]._replace(state="dropped", tombstone=None)})

    return Effect(f"marks {name} as over", do)


def _placed(before: Frozen, names: Sequence[str], rule: RetentionRule) -> Writes:
    tombstone = Frozen({**rule.tombstone, "receipt": 1})
    return {("receipt", it): before["receipt", it]._replace(tombstone=tombstone) for it in names}


def end(run: Run, rule: RetentionRule, manifest: Manifest) -> Steps:
    """Removes a commit, unless a hold covers it by now."""
    name, before = manifest.commit, (yield from with_replaced(manifest))
    known = yield read("ended", "receipt")
    is_emptied = known["receipt", name].state == "emptied"  # then nothing goes that a summary counts
    if not is_emptied and known.get(("ended", 0), -KEEP) < ended_by(rule):
        noted = {("ended", 0): ended_by(rule)}
        yield from transaction(run.lease, "note what has ended", lambda _: (noted, None))

    def decide(db: Frozen) -> tuple[Writes, bool]:
        receipt: Receipt = db["receipt", name]
        if not may_end(receipt) or rule.stage(receipt.tombstone) != "due":
            return {}, False
        if covered := holding(db, before):
            tombstone = Frozen({**(receipt.tombstone or {}), "held": covered})
            return {("receipt", name): receipt._replace(tombstone=tombstone)}, False
        writes: Writes = {("receipt", it): db["receipt", it]._replace(replaced_at=None) for it in theirs}
        ended = receipt._replace(state="replaced", replaced_by=None, replaced_at=None, ended=True)
        return {**writes, ("receipt", name): ended}, True

    theirs = taken_over((yield read("receipt")), before)
    if (yield from transaction(run.lease, f"end {name}", decide)):
        for key in [*theirs, name]:
            yield from checked(run.lease)
            yield from drop_replaced(key)


def taken_over(db: Frozen, manifests: Sequence[Manifest]) -> list[str]:
    """Returns the commits that the first of these took over, and that are to be dropped before it, in the
    order of the chain."""
    receipts = db.of("receipt")
    found = sorted(manifests[1:], key=lambda it: it.sequence)
    return [it.commit for it in found if receipts[it.commit].state == "replaced"]


def holding(db: Frozen, manifests: Sequence[Manifest]) -> frozenset[int]:
    """Returns the days of the holds that cover any of these."""
    return covering(db, frozenset[int]().union(*(it.days for it in manifests)))


def covering(db: Frozen, covered: frozenset[int]) -> frozenset[int]:
    """Returns the days of the holds that cover any of these days."""
    return frozenset(day for day, days in db.of("hold").items() if days & covered)


def not_ended(world: World) -> Iterator[str]:
    """Yields the commits that are past their time once runs have followed, and that nothing keeps; and what
    was kept of commits in which nothing was left."""
    rule = rule_at(world.now - 4 * HOUR)  # runs before the last one
    receipts, kept = world.db.of("receipt"), {key.rpartition(".")[0] for key in world.store.of("kept")}
    for name, receipt in receipts.items():
        is_left = receipt.state in DROPPED and receipt.replaced_by is None and not receipt.ended
        is_left = is_left and name in kept
        if not (is_left or receipt.state == "closed") or rule.stage(receipt.tombstone) == "lifted":
            continue
        manifest: Manifest = world.store["link" if is_left else "manifest", name]
        if is_past(rule, manifest) and not holding(world.db, [manifest]):
            yield f"not ended: {'what was kept of ' if is_left else ''}{name}"
