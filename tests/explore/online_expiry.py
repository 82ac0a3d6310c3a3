"""The end of an online archive: what `archivers/expiring/online.py` does, day by day.

A day is that of the last reading of a bucket, with all versions that are merged in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from bucketwise.archivers import decisions
from bucketwise.archivers.expiring.rule import RetentionRule
from tests.explore.commits import Run, Writes
from tests.explore.effects import Steps, checked, instant, read, transaction, written
from tests.explore.expiry import check_holds, covering, ended_by, rule_at
from tests.explore.online import archive_online
from tests.explore.world import DAYS, HOUR, Doc, Frozen, World, end_of, has_ended, last_day


def run_online(run: Run) -> Steps:
    """The verb `run`, of a policy whose archive ends."""
    yield from archive_online(run)
    yield from expire(run)


def expire(run: Run) -> Steps:
    """Removes what is under a tombstone that is due, and puts tombstones on days that are past their time."""
    rule, new, due = rule_at(run.now), list[int](), list[int]()
    known = yield read("into", "archived", "tombstone")
    for day in days_of(known):
        if end_of(day) > ended_by(rule) or instant(known["archived", day]) > rule.archived_by:
            continue
        tombstone = known.get(("tombstone", day))
        stage = rule.stage(tombstone)
        if stage == "none" and ending_on(day, known):
            new.append(day)
        elif stage == "due" and not tombstone.get("held"):
            due.append(day)
    if new or due:
        yield from check_holds()
    for day in due:
        yield from end(run, rule, day)
    if new:
        placed = Frozen({**rule.tombstone, "receipt": 1})
        tombstones = {("tombstone", day): placed for day in new}
        yield from transaction(run.lease, "place tombstones", partial(written, tombstones))


def days_of(db: Frozen) -> Iterator[int]:
    """Yields the days on which archived buckets end, and those after one of them that are known."""
    is_met = False
    for day in DAYS:
        if ending_on(day, db) or (is_met and ("archived", day) in db):
            is_met = True
            yield day


def ending_on(day: int, db: Frozen) -> dict[int, Sequence[Doc]]:
    """Returns the archived buckets that end on a day: `_id` -> the versions that are merged in it."""
    return {name: docs for name, docs in db.of("into").items() if last_day(docs) == day}


def end(run: Run, rule: RetentionRule, day: int) -> Steps:
    """Removes the buckets of a day, one a transaction, but for those that a hold keeps, or that are live."""
    held, stays = frozenset[int](), False
    for name, docs in ending_on(day, (yield read("into"))).items():
        yield from checked(run.lease)
        if not has_ended(day, (yield read("ended"))):
            yield from transaction(run.lease, "note what has ended", partial(written, noting_end(day)))

        def body(db: Frozen, name: int = name, docs: Sequence[Doc] = docs) -> tuple[Writes, Outcome]:
            tombstone = db.get(("tombstone", day))
            if db.get(("into", name)) != docs or rule.stage(tombstone) != "due":
                return {}, (frozenset(), True)
            return removing(db, day, name)

        kept, is_left = yield from transaction(run.lease, f"end buckets of day {day}", body)
        held, stays = held | kept, stays or is_left
    if not stays:
        yield from transaction(run.lease, f"settle day {day}", lambda db: (settling(db, day, held), None))


def noting_end(day: int) -> Writes:
    """Returns the write that notes that readings of a day may have gone for good."""
    return {("ended", 0): end_of(day)}


#: The days of holds that keep a bucket; whether it stays for another reason.
Outcome = tuple[frozenset[int], bool]


def removing(db: Frozen, day: int, name: int) -> tuple[Writes, Outcome]:
    """Returns the writes that remove a bucket and its versions, if it may go."""
    held = holding(db, name)
    waiting = {key for kind, key in db if kind in ("copied", "merging")}
    found = decisions.ending([name], [0] if held else [], waiting)
    if not found.removable:
        return {}, (held, bool(found.live))
    tombstone = db["tombstone", day]
    counted = tombstone.but({"expired": tombstone.get("expired", 0) + 1})
    return {("tombstone", day): counted, ("into", name): None, ("version", name): None}, (held, False)


def holding(db: Frozen, name: int) -> frozenset[int]:
    """Returns the days of the holds that cover an archived bucket, or any version of it."""
    docs: Iterable[Doc] = (*db.get(("into", name), ()), *db.get(("version", name), ()))
    return covering(db, frozenset(it.day for it in docs))


def settling(db: Frozen, day: int, held: frozenset[int]) -> Writes:
    """Returns the writes after which a day of which all has gone has no tombstone, and one of which holds
    keep the rest is not looked at before they are released: none, where one was released meanwhile."""
    if not held:
        return {("tombstone", day): None, ("archived", day): None}
    return noting_held(db, day, held) if held <= db.of("hold").keys() else {}


def noting_held(db: Frozen, day: int, held: frozenset[int]) -> Writes:
    """Returns the write that notes which holds keep the rest of a day."""
    return {("tombstone", day): db["tombstone", day].but({"held": held})}


def not_ended(world: World) -> Iterator[str]:
    """Yields the days that are past their time once runs have followed, and that nothing keeps."""
    rule, db = rule_at(world.now - 4 * HOUR), world.db  # runs before the last one
    for day in DAYS:
        found = ending_on(day, db)
        if not found or end_of(day) > ended_by(rule) or instant(db["archived", day]) > rule.archived_by:
            continue
        is_held = any(holding(db, name) for name in found)
        waits = any(("copied", name) in db or ("merging", name) in db for name in found)
        if not is_held and not waits and rule.stage(db.get(("tombstone", day))) != "lifted":
            yield f"not ended: day {day}"
