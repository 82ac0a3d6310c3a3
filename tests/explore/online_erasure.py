"""An erasure where the archive is online: what `archivers/erasing/online.py` does, a transaction a place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.explore import runs
from tests.explore.commits import Run, Writes
from tests.explore.effects import Steps, checked, read, transaction
from tests.explore.expiry import check_holds
from tests.explore.online import superseding
from tests.explore.world import DAYS, IDS, Effect, Failed, Frozen


def erase_online(run: Run) -> Steps:
    """The verb `erase`: removes the buckets of one `_id` from everything, but where a hold freezes any."""
    mine = IDS[0]
    yield from checked(run.lease)
    yield from check_holds()
    if (yield read("hold")):
        return
    yield Effect(f"begins to erase {mine}", lambda world: world.erase(mine))
    yield from erase_live(run, mine)
    if ("into", mine) in (yield read("into")):
        yield from transaction(run.lease, "release its pin", lambda _: ({("pin", mine): None}, None))
        yield from erase_from(run, "archived", partial(archived, mine))
    if ("version", mine) in (yield read("version")):
        yield from erase_from(run, "versions", lambda _: {("version", mine): None})
    yield from erase_live(run, mine)  # what came since
    yield from runs.roll_up(run, DAYS, force=True)
    yield Effect("ends the erasure", lambda world: world.end_erasure())


def erase_live(run: Run, mine: int) -> Steps:
    """Removes the live bucket, if there is one."""
    if ("doc", mine) in (yield read("doc")):
        yield from erase_from(run, "live", lambda _: {("doc", mine): None, ("pin", mine): None})


def erase_from(run: Run, place: str, going: Callable[[Frozen], Writes]) -> Steps:
    """Removes what is going from a place, unless a hold was placed meanwhile. Raises Failed then."""

    def body(before: Frozen) -> tuple[Writes, None]:
        if before.of("hold"):
            raise Failed("held")
        return {key: it for key, it in going(before).items() if it is not None or key in before}, None

    yield from checked(run.lease)
    yield from transaction(run.lease, f"erase {place}", body, is_erasure=True)


def archived(mine: int, before: Frozen) -> Writes:
    """Returns the writes that remove an archived bucket. A later version that waits to be merged waits no
    more, and goes with the others that lie beside."""
    late = before.get(("merging", mine))
    writes: Writes = {} if late is None else superseding(before, late.doc)
    return writes | {(kind, mine): None for kind in ("into", "copied", "merging", "merged")}
