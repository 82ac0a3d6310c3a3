"""The binding of the archive, and `adopt`: what `archivers/binding.py` and `jobs/adopt.py` do, by their rules
of what tells databases apart and whose a step of the lineage is.

The record of the database and the files of the store are the very classes of bucketwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from bucketwise.archivers.binding import Checked
from bucketwise.archivers.markers import BindingRecord, Deployment, Lineage, OwnerFile, Step
from tests.explore.commits import Run, Writes
from tests.explore.effects import (
    Held,
    Maker,
    Steps,
    acquire,
    delete,
    get,
    listing,
    put,
    read,
    release,
    transaction,
    write,
)
from tests.explore.recovery import check_adoptable, needs_adoption, recover
from tests.explore.world import Effect, Frozen, Halt, World

KEY = ("binding", 0)
NEW = BindingRecord()


class Known(NamedTuple):
    """What a run knows of whose archive it is: what it found, and its own name."""

    checked: Checked
    run: str

    @property
    def record(self) -> BindingRecord:
        """Returns what the database has recorded."""
        return self.checked.record


class Binding:
    """The binding of the archive in one run."""

    def __init__(self, known: Known, *, is_claimed: bool = False) -> None:
        self.known = known
        self.mark = "c" if known.run.startswith("C") else ""
        self.is_claimed = is_claimed

    def claim(self, run: Run) -> Steps:
        """Makes sure, once, that the archive is this database's."""
        if not self.is_claimed:
            self.is_claimed = True
            yield from claim(run, self.known)

    def check_lineage(self) -> Steps:
        """Raises Halt where somebody else has written there."""
        judge_all(self.known, (yield from steps()))


def bound(work: Callable[[Run], Steps]) -> Maker:
    """Returns a program that works while it holds the lease, and claims the archive before it writes
    there."""

    def program(holder: str, now: int, grace: int) -> Steps:
        lease: Held | None = yield acquire(holder)
        if lease is None:
            return "11: another run holds the lease"
        yield write("notes its run", {("fence", lease.fence): True})
        known = yield from look(holder)
        run = Run(lease, now, grace, bound=Binding(known))
        yield from claiming(run, work(run))
        yield release(lease, is_clean=run.is_clean)
        return "0"

    return program


def claiming(run: Run, work: Steps) -> Steps:
    """Does some work, and claims the archive before the first write to the store."""
    reply = None
    while True:
        try:
            effect: Effect = work.send(reply)
        except StopIteration:
            return
        if effect.put is not None or effect.name.startswith("deletes the"):
            yield from run.claim()
        reply = yield effect


def adopting(holder: str, now: int, grace: int) -> Steps:
    """The verb `adopt`."""
    lease: Held | None = yield acquire(holder)
    if lease is None:
        return "11: another run holds the lease"
    yield write("notes its run", {("fence", lease.fence): True})
    known = yield from _look(holder)
    run = Run(lease, now, grace, bound=Binding(known))
    yield from adopt(run, known)
    yield release(lease, is_clean=run.is_clean)
    return "0"


def look(holder: str) -> Steps:
    """Looks whose archive it is. Raises Halt where it is another database's."""
    known = yield from _look(holder)
    check_ours(known.checked)
    return known


def _look(holder: str) -> Steps:
    record: BindingRecord = (yield read("binding")).get(KEY, NEW)
    file: OwnerFile | None = yield get("owner", "it")
    present: Deployment = yield Effect("asks what database it is", lambda world: world.deployment)
    return Known(Checked(record, file, present), holder)


def check_ours(checked: Checked) -> None:
    """Raises Halt where the archive is another database's."""
    if reason := checked.difference:
        raise Halt(reason)


def judge_all(known: Known, listed: list[Step]) -> None:
    """Raises Halt where `judge` does, or somebody went on from a step that was never done here."""
    judge(known.record.lineage, listed)
    if known.record.lineage.went_on(listed, has_owner=known.checked.stored is not None):
        raise Halt("somebody else went on from the last step")


def judge(lineage: Lineage, listed: Iterable[Step]) -> None:
    """Raises Halt where the store was rolled back, or somebody else has written there."""
    steps = sorted(listed)
    if lineage.is_behind(steps):
        raise Halt("the store was rolled back")
    if lineage.foreign(steps):
        raise Halt("somebody else has written there")


def steps() -> Steps:
    """Returns the steps in the store."""
    return sorted((yield listing("step")))


def claim(run: Run, known: Known) -> Steps:
    """Makes sure, before a run writes for the first time, that the archive is its database's; and moves the
    lineage."""
    check_ours(known.checked)
    listed: list[Step] = yield from steps()
    judge_all(known, listed)
    step = known.record.lineage.next(listed, known.run)
    lineage = known.record.lineage.begin(step, listed[-1:])
    owner = known.record.owner or known.run
    deployment = known.checked.renewed
    deployment = replace(deployment, collections=Frozen(deployment.collections))
    began = replace(known.record, owner=owner, deployment=deployment, lineage=lineage)

    def body(before: Frozen) -> tuple[Writes, None]:
        found: BindingRecord = before.get(KEY, NEW)
        if (found.owner, found.lineage) != (known.record.owner, known.record.lineage):
            raise Halt("another run has moved the lineage meanwhile")
        return {KEY: began}, None

    yield from transaction(run.lease, "begin a step", body)
    yield from remove(listed[:-1])
    yield from move(lineage, step)
    if known.checked.file is None or known.checked.stored != deployment:
        yield from put_owner(owner, deployment)
    yield Effect("owns the archive", lambda world: world.own())


def move(lineage: Lineage, step: Step) -> Steps:
    """Puts a step that was begun, and looks that no other came with it."""
    yield put("step", step, True)
    yield get("step", step)
    listed: list[Step] = yield from steps()
    for it in (lineage, lineage.finish(step)):
        judge(it, listed)

    def do(world: World) -> bool:
        record: BindingRecord = world.db[KEY]
        if record.lineage.begun == lineage.begun:
            world.write({KEY: replace(record, lineage=record.lineage.finish(step))})
        return record.lineage.begun == lineage.begun

    if not (yield Effect("notes that the step is done", do)):
        raise Halt("another run has moved the lineage meanwhile")
    yield from remove(it for it in listed if it.number < step.number)


def remove(old: Iterable[Step]) -> Steps:
    """Removes steps."""
    if names := list(old):
        yield delete("step", *names)


def put_owner(owner: str, deployment: Deployment) -> Steps:
    """Puts the owner's file. Raises Halt where another one's has come in its place."""
    yield put("owner", "it", OwnerFile(owner, deployment, deployment.name))
    if (yield get("owner", "it")).owner != owner:
        raise Halt("another database has just begun to archive there")


def adopt(run: Run, known: Known) -> Steps:
    """Takes the archive over, if a run would halt at it."""
    if not (yield from is_needed(known)) and not (yield from needs_adoption()):
        return
    yield from check_adoptable()
    record, listed = known.record, (yield from steps())
    step, owner = record.lineage.next(listed, known.run), known.run
    lineage = Lineage().begin(step)
    began = replace(record, owner=owner, deployment=known.checked.present, lineage=lineage, adopting=Frozen())
    yield from transaction(run.lease, "begin to adopt", lambda _: ({KEY: began}, None))
    yield from remove(listed)
    yield from move(lineage, step)
    yield from put_owner(owner, known.checked.present)
    yield Effect("takes the archive over", lambda world: world.own(takes_over=True))
    run.bound = Binding((yield from _look(known.run)), is_claimed=True)
    yield from recover(run, adopts=True)

    def done(before: Frozen) -> tuple[Writes, None]:
        return {KEY: replace(before[KEY], adopting=None)}, None

    yield from transaction(run.lease, "end the adoption", done)
    yield Effect("has taken the archive over", lambda world: setattr(world, "took_over", True))


def is_needed(known: Known) -> Steps:
    """Returns whether a run would halt, or an adoption was cut off."""
    listed = yield from steps()
    try:
        check_ours(known.checked)
        judge_all(known, listed)
    except Halt:
        return True
    return known.record.adopting is not None
