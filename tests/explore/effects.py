"""What actors do, each at once: reads and transactions of MongoDB, requests to the store, the lease."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, NamedTuple

from bucketwise.jobs.core.lease import acquisition
from tests.explore.world import HOUR, Effect, Failed, Frozen, Halt, Lost, Paused, World

TTL = HOUR // 60
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Held(NamedTuple):
    """A lease that an actor has acquired."""

    holder: str
    fence: int
    is_clean: bool
    is_pausable: bool = False


Steps = Generator[Effect, Any, Any]
#: A program: given its holder, the time by its host's clock, and the grace of the policy.
Maker = Callable[[str, int, int], Steps]


def instant(now: int) -> datetime:
    """Returns an instant, from milliseconds."""
    return EPOCH + timedelta(milliseconds=now)


# MongoDB


def read(*kinds: str) -> Effect:
    """Reads all documents of these kinds at one instant. The reply is a `Frozen`."""

    def do(world: World) -> Frozen:
        return Frozen({key: value for key, value in world.db.items() if key[0] in kinds})

    return Effect(f"reads {', '.join(kinds)}", do, is_blind="doc" not in kinds)


def write(name: str, changes: Mapping[Any, Any]) -> Effect:
    """Writes to the database, in one command and outside of transactions."""
    return Effect(name, lambda world: world.write(changes))


Body = Callable[[Frozen], tuple[Mapping[Any, Any], Any]]


class Begun(NamedTuple):
    """A transaction that has read what it needs: what it writes over, what it writes, and its result. Its
    snapshot is of one instant, so that all of this is known when it begins."""

    before: Frozen
    writes: Frozen
    result: Any


def transaction(
    lease: Held | None, name: str, body: Body, *, is_erasure: bool = False, is_blind: bool = False
) -> Steps:
    """Runs a transaction, which fails once another one has the lease; without one, it conflicts with those of
    whoever has it. Returns what `body` returns, beside its writes. `is_blind`: it reads no documents."""

    def begin(world: World) -> Begun | Exception:
        try:
            ours = touched(world.db) if lease is None else guard(lease, world.db)
            writes, result = body(world.db)
            guarded = Frozen({**ours, **writes})
        except (Lost, Failed, Halt) as error:
            return error
        return Begun(Frozen({key: world.db.get(key) for key in guarded}), guarded, result)

    for _ in range(3):
        begun: Begun | Exception = yield Effect(f"begins to {name}", begin, lease=lease, is_blind=is_blind)
        if isinstance(begun, Exception):
            raise begun
        if (yield commit(lease, name, begun, is_erasure=is_erasure)):
            return begun.result
    raise Failed("write conflicts")


def written(writes: Mapping[Any, Any], _before: Frozen) -> tuple[Mapping[Any, Any], None]:
    """Returns the writes of a transaction that are known before it begins."""
    return writes, None


def commit(lease: Held | None, name: str, begun: Begun, *, is_erasure: bool) -> Effect:
    """Commits a transaction. The reply is False where it conflicts with another one's write."""

    def do(world: World) -> bool:
        return world.commit(begun.before, begun.writes, is_erasure=is_erasure)

    return Effect(f"commits: {name}", do, lease=lease)


def guard(lease: Held, before: Frozen) -> Mapping[Any, Any]:
    """Returns the write to the lease by which a transaction conflicts with whoever acquires it. Raises Lost
    where somebody has. The lease stays as it is: no other transaction is under way while one has it."""
    if not has(before, lease):
        raise Lost
    return {("lease", 0): before["lease", 0]}


def touched(before: Frozen) -> Mapping[Any, Any]:
    """Returns the write to the lease by which a transaction of somebody without it conflicts with those of
    whoever has it."""
    lease = before["lease", 0]
    return {("lease", 0): lease.but({"guards": lease.get("guards", 0) + 1})}


def make_lease() -> Effect:
    """Makes the record of the lease, where there is none."""

    def do(world: World) -> None:
        if ("lease", 0) not in world.db:
            world.write({("lease", 0): Frozen({"holder": None, "fence": 0})})

    return Effect("makes the record of the lease", do, is_blind=True)


def has(db: Frozen, lease: Held) -> bool:
    """Returns whether nobody has acquired the lease since."""
    found = db["lease", 0]
    return (found["holder"], found["fence"]) == (lease.holder, lease.fence)


# The lease


def acquire(holder: str, *, is_pausable: bool = False) -> Effect:
    """Acquires the lease, by the very pipeline that runs send to MongoDB. The reply is `Held`, or None.
    `is_pausable`: not while the policy is paused."""

    def do(world: World) -> Held | None:
        before = world.db.get(("lease", 0), Frozen())
        found = acquired(holder, before, world.now, is_pausable)
        world.write({("lease", 0): found})
        if found["holder"] != holder:
            return None
        if is_pausable and before.get("paused"):
            world.broken.append("begins though it is paused")
        is_clean = found["was_clean"] and found["taken_over_at"] is None
        return Held(holder, found["fence"], is_clean, is_pausable)

    return Effect("acquires the lease", do)


@lru_cache(10_000)
def acquired(holder: str, lease: Frozen, now: int, is_pausable: bool) -> Frozen:
    """Returns the lease as it is once `holder` has asked for it."""
    return pipeline(_acquisition(holder, is_pausable), lease, now)


@cache
def _acquisition(holder: str, is_pausable: bool) -> list[dict[str, Any]]:
    return acquisition(holder, {"name": holder}, timedelta(milliseconds=TTL), pausable=is_pausable)


def check(lease: Held) -> Effect:
    """Goes on only if the lease is ours, or nobody has taken it since it has expired. Actors raise Lost where
    the reply is False, and Paused where it is None."""

    def do(world: World) -> bool | None:
        if not has(world.db, lease):
            return False
        if lease.is_pausable and world.db["lease", 0].get("paused"):
            return None
        world.write({("lease", 0): world.db["lease", 0].but({"expires_at": world.now + TTL})})
        return True

    return Effect("checks its lease", do, lease=lease, is_blind=True)


def checked(lease: Held) -> Steps:
    """Raises Lost where another one has the lease, and Paused where the policy is paused by now."""
    if (is_ours := (yield check(lease))) is None:
        raise Paused
    if not is_ours:
        raise Lost


def release(lease: Held, *, is_clean: bool) -> Effect:
    """Releases the lease. `is_clean`: nothing was left unfinished."""

    def do(world: World) -> None:
        if has(world.db, lease):
            free = {"holder": None, "expires_at": world.now, "clean": is_clean}
            world.write({("lease", 0): Frozen({**world.db["lease", 0], **free})})

    return Effect("releases the lease", do, lease=lease)


def pipeline(stages: Iterable[Mapping[str, Any]], document: Frozen, now: int) -> Frozen:
    """Returns a document after an update by a pipeline, as MongoDB computes it: `$set` and `$unset`, and what
    leases use of expressions. Missing fields are null."""
    found = dict(document)
    for stage in stages:
        if "$unset" in stage:
            found.pop(stage["$unset"], None)
        else:
            found |= {key: _value(it, found, now) for key, it in stage["$set"].items()}
    return Frozen({key: Frozen(it) if isinstance(it, dict) else it for key, it in found.items()})


def _value(expression: Any, document: Mapping[str, Any], now: int) -> Any:
    if isinstance(expression, str) and expression.startswith("$"):
        return now if expression == "$$NOW" else document.get(expression[1:])
    if isinstance(expression, list):
        return [_value(it, document, now) for it in expression]
    if not isinstance(expression, dict):
        return expression
    ((name, given),) = expression.items()
    if name == "$literal":
        return given
    args = _value(given, document, now)
    if name == "$cond":
        return args[1] if args[0] else args[2]
    if name == "$ifNull":
        return next((it for it in args if it is not None), None)
    if name == "$lte":
        return args[0] is None or args[0] <= args[1]
    simple: dict[str, Callable[[Any], Any]] = {
        "$and": all,
        "$or": any,
        "$add": sum,
        "$eq": lambda it: it[0] == it[1],
    }
    return simple[name](args)


# The store


def put(kind: str, name: Any, value: Any) -> Effect:
    """Writes an object. A manifest is written only where there is none."""
    key = kind, name
    return Effect(f"puts the {kind} of {name}", lambda world: world.put(key, value), (key, value))


def get(kind: str, name: Any) -> Effect:
    """Reads an object; None where it is not there."""
    return Effect(f"reads the {kind} of {name}", lambda world: world.store.get((kind, name)), is_blind=True)


def listing(kind: str) -> Effect:
    """Lists objects of a kind. The reply is a `Frozen` of their values, by name."""

    def do(world: World) -> Frozen:
        return Frozen(world.store.of(kind))

    return Effect(f"lists each {kind}", do, lists=True, is_blind=True)


def delete(kind: str, *names: Any) -> Effect:
    """Removes objects."""
    keys = tuple((kind, name) for name in names)
    what = f"deletes the {kind} of {', '.join(map(str, names))}"
    return Effect(what, lambda world: world.remove(keys), removes=keys)


def put_sound(kind: str, name: Any, value: Any) -> Steps:
    """Writes an object, and reads it back. Raises Halt where it is not what was written."""
    yield put(kind, name, value)
    if (yield get(kind, name)) != value:
        raise Halt(f"the {kind} of {name} is not as it was written")


def required(kind: str, name: str, *, is_everywhere: bool = False) -> Steps:
    """Returns an object; from a copy of the store, if need be. Raises Halt where it is gone, or, where it has
    to be everywhere, is not in each copy."""
    found = yield get(kind, name)._replace(needs=(kind, name), is_everywhere=is_everywhere)
    if found is None:
        raise Halt(f"the {kind} of {name} is missing")
    return found


def present(kind: str, name: str) -> Steps:
    """Asks the store itself for an object. Raises Halt where it is gone."""
    if (yield get(kind, name)) is None:
        raise Halt(f"the {kind} of {name} is missing")
