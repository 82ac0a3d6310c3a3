"""Parts that move to another storage class as they grow old: what `archivers/classes.py` does, by its rule of
what is due. The class is one that can be read at any time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from bucketwise.archivers.classes import Place, Schedule
from bucketwise.archivers.records.receipts import FIRST
from tests.explore.commits import Run
from tests.explore.copied import OBJECTS, waiting
from tests.explore.effects import Steps, checked, get, instant, present, read, required, transaction, written
from tests.explore.world import DAY, Effect, Frozen, Manifest, World, end_of

#: How old readings are when their parts move, and to which class.
_AFTER, _CLASS = timedelta(milliseconds=2 * DAY), "STANDARD_IA"
SCHEDULE = Schedule((Place(FIRST, cast(Any, None), None, {_CLASS: _AFTER}, required=True),))
#: Of commits that have not moved.
_NOWHERE = Frozen()


def move(run: Run) -> Steps:
    """Moves the files of all commits that are due, and of which nothing may be live. What a copy of the store
    lacks waits: it may not be readable any more."""
    if not (yield read("schedule")):
        noted = Frozen({("schedule", 0): SCHEDULE.text})
        yield from transaction(run.lease, "note the schedule of moves", partial(written, noted))
    known = yield read("receipt", "stored", "change")
    closed = [name for name, it in known.of("receipt").items() if it.state == "closed" and not it.tombstone]
    for name in closed:
        manifest: Manifest = yield from required("manifest", name)
        stored = known.get(("stored", name), _NOWHERE)
        classes = SCHEDULE.due(last_of(manifest), stored, instant(run.now))
        if classes and not {("file", name), ("manifest", name)} & waiting(known):
            yield from checked(run.lease)
            yield from move_file(name, classes[FIRST])
            moved = Frozen({("stored", name): Frozen({**stored, **classes})})
            yield from transaction(run.lease, f"note the class of {name}", partial(written, moved))


def move_file(name: str, named: str) -> Steps:
    """Copies each object of a file onto itself, which the store does as a whole, and looks at what came of
    it. One that another run has moved stays as it is."""
    for number in range(OBJECTS["file"]):
        key = "class", (name, number)

        def do(world: World, key: tuple[str, Any] = key) -> None:
            if ("file", name) in world.store:
                world.put(key, named)

        yield from present("file", name)
        if (yield get(*key)) != named:
            yield Effect(f"moves the file of {name}", do)
            yield from present("file", name)


def last_of(manifest: Manifest) -> datetime:
    """Returns the last instant of a commit."""
    return instant(max(end_of(day) for day in manifest.days))


def misplaced(world: World) -> Iterator[str]:
    """Yields the commits of which receipts tell another class than they have."""
    for name, stored in world.db.of("stored").items():
        classes = {world.store.get(("class", (name, it))) for it in range(OBJECTS["file"])}
        if ("file", name) in world.store and classes != {stored[FIRST]}:
            yield f"another class than is recorded: the file of {name}"


def not_moved(world: World) -> Iterator[str]:
    """Yields the commits that are due once runs have followed, and have not moved."""
    for name, receipt in world.db.of("receipt").items():
        manifest = world.store.get(("manifest", name))
        if receipt.state != "closed" or manifest is None or ("stored", name) in world.db:
            continue
        if SCHEDULE.due(last_of(manifest), _NOWHERE, instant(world.now - DAY)):
            yield f"not moved: {name}"
