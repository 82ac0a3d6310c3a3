"""A collection is rewritten in another model: what `jobs/remodel` does, in batches of one document.

The source never changes. Where `_id`s of the target are not unique (`native`), a document that is written
twice is there twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.explore.commits import Run
from tests.explore.effects import Steps, checked, read, write
from tests.explore.world import Effect, Failed, Frozen, World

#: What is written of the source.
DOCUMENTS = range(2)
_TASK = ("task", 0)
#: A person has to begin anew: where a run that had lost its lease has written what another one wrote.
TWICE = "readings are there twice"


def remodel(run: Run) -> Steps:
    """The verb `remodel`."""
    known = yield read("task", "target")
    task: Frozen | None = known.get(_TASK) if ("target", 0) in known else None
    if task is None or not task["done"]:
        yield from write_target(run, task)
    written: Frozen = (yield looking()).of("other")
    if any(it not in written for it in DOCUMENTS):
        raise Failed("readings are missing")
    if max(written.values()) > 1:
        raise Failed(TWICE)
    yield noting("notes that all is written", documents=len(DOCUMENTS), done=True)


def write_target(run: Run, task: Frozen | None) -> Steps:
    """Writes what is not there yet. `task`: how far it came, where the target is there."""
    if task is None:
        yield write("begins to remodel", {_TASK: Frozen({"documents": 0, "done": False})})
        yield write("makes the target", {("target", 0): True})
    yield noting("notes the target", made=True)
    known = 0 if task is None else task["documents"]
    for number in DOCUMENTS[known:]:
        yield from checked(run.lease)
        present = (yield looking()).of("other") if task is not None and number == known else ()
        if number not in present:
            yield from insert(run, number)
        yield noting(f"reaches document {number + 1}", documents=number + 1, done=False)


def insert(run: Run, number: int) -> Steps:
    """Writes a document. Raises Failed where it is there, and Lost where another run has written it."""

    def do(world: World) -> bool:
        count = world.db.get(("other", number), 0)
        if count and ("native", 0) not in world.db:
            return False
        world.write({("other", number): count + 1})
        return True

    is_new = yield Effect(f"inserts document {number + 1}", do)
    if not is_new or ("native", 0) in (yield read("native")):
        yield from checked(run.lease)
    if not is_new:
        raise Failed("it is there")


def looking() -> Effect:
    """Reads what is written."""
    return read("other")._replace(name="looks at what is written")


def noting(name: str, **changes: Any) -> Effect:
    """Records the state of the task, unless another run has come further."""

    def do(world: World) -> None:
        task = world.db[_TASK]
        if task["documents"] <= changes.get("documents", task["documents"]):
            world.write({_TASK: task.but(changes)})

    return Effect(name, do)


def not_remodelled(world: World) -> Iterator[str]:
    """Yields what a task lacks that is told to be done. A run that has lost its lease may write a document
    twice where nothing keeps it from that: whoever compares tells so."""
    if (task := world.db.get(_TASK)) is not None and task["done"]:
        written, most = world.db.of("other"), 9 if ("native", 0) in world.db else 1
        for it in DOCUMENTS:
            if not 1 <= written.get(it, 0) <= most:
                yield f"remodelled, and document {it + 1} is there {written.get(it, 0)} times"
