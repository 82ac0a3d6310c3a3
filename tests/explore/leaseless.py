"""What needs no lease, since it must not wait for a run to end: `undelete`, `hold`, `pause` and `resume`. Its
transactions conflict with those of whoever has the lease."""

from __future__ import annotations

from functools import partial
from typing import Any

from bucketwise.archivers.expiring.rule import lifted
from bucketwise.jobs.core.lease import pausing
from tests.explore.commits import CURRENT, Writes
from tests.explore.effects import (
    Steps,
    delete,
    instant,
    listing,
    make_lease,
    pipeline,
    put_sound,
    read,
    transaction,
)
from tests.explore.world import Effect, Frozen, Receipt, World


def undelete(now: int) -> Steps:
    """The verb `undelete`: lifts all tombstones, one a transaction."""
    yield make_lease()
    while found := under_tombstones((yield read("receipt", "tombstone"))):
        yield from transaction(None, "lift tombstones", partial(lifting, found[0], now))


def under_tombstones(db: Frozen) -> list[Any]:
    """Returns what is under a tombstone: the keys of receipts of commits, and of days."""
    states = (*CURRENT, "emptied")
    commits = [("receipt", it) for it, receipt in db.of("receipt").items() if receipt.state in states]
    days = [("tombstone", it) for it in db.of("tombstone")]
    return [it for it in (*commits, *days) if "due" in (tombstone_of(db, it) or ())]


def tombstone_of(db: Frozen, key: Any) -> Frozen | None:
    """Returns the tombstone on a commit or a day."""
    found: Any = db.get(key)
    return found.tombstone if isinstance(found, Receipt) else found


def under(found: Any, tombstone: Frozen) -> Any:
    """Returns the record of a commit or a day with another tombstone."""
    return found._replace(tombstone=tombstone) if isinstance(found, Receipt) else tombstone


def lifting(key: Any, now: int, before: Frozen) -> tuple[Writes, None]:
    """Returns the writes that lift a tombstone, unless what was under it is gone by then."""
    if "due" not in (tombstone_of(before, key) or ()):
        return {}, None
    return {key: under(before[key], Frozen({**lifted(instant(now)), "receipt": 1}))}, None


def hold(_now: int) -> Steps:
    """The verb `hold add`: freezes the first day. The store is told first."""
    yield make_lease()
    placed = frozenset({0})
    if 0 not in (yield listing("hold")):
        yield from put_sound("hold", 0, placed)
    yield from transaction(None, "place a hold", lambda _: ({("hold", 0): placed}, None))
    active = (yield read("hold")).of("hold")
    if 0 in (yield listing("hold")) and 0 not in active:
        yield delete("hold", 0)


def pause(now: int) -> Steps:
    """The verb `pause`, by the very pipeline that it sends to MongoDB."""

    def do(world: World) -> None:
        changed = pipeline(pausing({"since": now}), world.db.get(("lease", 0), Frozen()), now)
        world.write({("lease", 0): changed})

    yield Effect("pauses", do)


def resume(_now: int) -> Steps:
    """The verb `resume`."""
    yield Effect("resumes", resuming)


def resuming(world: World) -> None:
    """Ends the pause, if there is one."""
    if (lease := world.db.get(("lease", 0))) is not None and lease.get("paused") is not None:
        world.write({("lease", 0): lease.but({"paused": None})})
