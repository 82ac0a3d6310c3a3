"""A store with a copy that is required: what `archivers/stores/copied.py` and `archivers/copying` do.

What programs do to the store is done to both, and a journal says beforehand where the two may differ."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any, NamedTuple

from bucketwise.archivers import decisions
from tests.explore.commits import CURRENT, DROPPED, Run, fence_of, kept_under
from tests.explore.effects import Steps, checked, delete, get, put, read, write
from tests.explore.world import Effect, Failed, Frozen, Halt, World, in_copy, is_in_copy

#: What the database knows of the copy: that it has had all that the store has.
FILLED = ("filled", 0)
#: What says whose store it is.
MARKER = ("marker", 0)
#: How effects on the copy are named.
IN_COPY = "in the copy: "
#: Objects that a file stands for: a part, and the file of what it can't carry.
OBJECTS = {"file": 2}
Key = tuple[str, Any]


class Change(NamedTuple):
    """Keys at which the copy may differ from the store. `deleted`: they were deleted there."""

    keys: tuple[Key, ...]
    deleted: bool


class _Numbered(NamedTuple):
    """A change that a run writes down, by its clock and in its turn."""

    name: tuple[str, Any]
    change: Change

    def begin(self) -> Effect:
        return write(f"writes down a change of {_named(*self.change.keys)}", {self.name: self.change})

    def end(self) -> Effect:
        return write(f"crosses off a change of {_named(*self.change.keys)}", {self.name: None})


def _numbered(run: Run, keys: tuple[Key, ...], *, deleted: bool) -> _Numbered:
    return _Numbered(("change", (run.now, run.lease.fence, next(run.changes))), Change(keys, deleted))


def _named(*keys: Key) -> str:
    return ", ".join(f"the {kind} of {name}" for kind, name in keys)


def mirrored(run: Run, work: Steps) -> Steps:
    """Does some work on a store with a copy, if the policy names one."""
    reply = None
    run.has_copy = yield has_copy()
    if not run.has_copy:
        return (yield from work)
    yield from require_filled()
    yield from catch_up(run)
    if (yield get(*MARKER)) is None:
        here = _numbered(run, (MARKER,), deleted=False)
        yield from put_in_both(put(*MARKER, True), here)
    while True:
        try:
            effect: Effect = work.send(reply)
        except StopIteration:
            return None
        reply = None
        if effect.name.startswith("puts the"):
            assert effect.put is not None
            here = _numbered(run, (effect.put[0],), deleted=False)
            yield from put_in_both(effect, here)
        elif effect.name.startswith("deletes the"):
            yield from delete_in_both(effect, _numbered(run, effect.removes, deleted=True))
        elif effect.needs is not None:
            reply = yield from get_from_either(effect)
        else:
            reply = yield effect


def has_copy() -> Effect:
    """Reads whether the policy file names a copy."""
    return Effect("reads whether the store has a copy", lambda world: world.has_copy)


def put_in_both(effect: Effect, here: _Numbered) -> Steps:
    """Writes an object into the store, and then into the copy."""
    assert effect.put is not None
    key, value = effect.put
    for _ in range(OBJECTS.get(key[0], 1)):
        yield here.begin()
        yield effect
        yield from put_compared(in_copy(key), value)
        yield here.end()


def put_compared(key: Key, value: Any) -> Steps:
    """Writes an object, and reads it back. Raises Failed where it is not what was written."""
    yield _at(key, put(_kind(key), key[1], value))
    if (yield _at(key, get(_kind(key), key[1]))) != value:
        raise Failed(f"{_named(key)} is not as it was written")


def delete_in_both(effect: Effect, here: _Numbered) -> Steps:
    """Removes objects from the copy, and then from the store."""
    yield here.begin()
    yield from delete_in_copy(here.change.keys)
    yield effect
    yield here.end()


def delete_in_copy(keys: tuple[Key, ...]) -> Steps:
    """Removes objects from the copy."""
    gone = delete(keys[0][0], *(name for _, name in keys))
    theirs = [in_copy(it) for it in keys]
    yield gone._replace(name=f"{IN_COPY}{gone.name}", do=lambda world: world.remove(theirs), removes=())


def get_from_either(effect: Effect) -> Steps:
    """Reads an object that has to be there: of the copy, where the store has lost it, and no change waits for
    the copy. One that has to be everywhere is looked for in both."""
    found, key = (yield effect), effect.needs
    if (found is not None) == effect.is_everywhere:
        theirs = yield _at(in_copy(key), get(*key))
        if found is not None or key not in waiting((yield read("change"))):
            return theirs
    return found


def waiting(db: Frozen) -> set[Key]:
    """Returns the keys at which the copy may differ from the store."""
    return {key for it in db.of("change").values() for key in it.keys}


def require_filled() -> Steps:
    """Raises Halt where the copy has not all that was archived before it was named."""
    if (yield read("filled")):
        return
    if not (yield Effect("looks whether it is a new archive", _is_new)):
        raise Halt("the copy was not filled")
    yield write("notes that the copy has all", {FILLED: True})


def _is_new(world: World) -> bool:
    return not world.store and not world.db.of("receipt") and not world.db.of("begun")


def catch_up(run: Run) -> Steps:
    """Makes the copy like the store wherever a run may have left them unlike."""
    changes: dict[Any, Change] = (yield read("change")).of("change")
    if not changes:
        return
    named, deleted = decisions.outstanding(list(changes.values()))
    for keys in named:
        yield from checked(run.lease)
        gone: list[Key] = []
        for key in keys:
            found = yield get(*key)
            if found is not None:
                yield from put_compared(in_copy(key), found)
            elif key in deleted:
                gone.append(key)
        if gone:
            yield from delete_in_copy(tuple(gone))
    yield write("crosses off changes", {("change", it): None for it in changes})


def copy_again(run: Run, key: Key) -> Steps:
    """Makes the copy like the store at a key, whatever is written down of it."""
    yield _numbered(run, (key,), deleted=False).begin()
    yield from catch_up(run)


def clear_copy(run: Run) -> Steps:
    """Takes away what runs have left in the copy alone, after others had taken their lease: once the store is
    settled, what that would be cleared of. What the store may have lost stays."""
    theirs = yield Effect(f"{IN_COPY}lists all", _keys, lists=True, is_blind=True)
    ours = yield Effect("lists all", _keys, lists=True, is_blind=True)
    alone = {key for key in map(_elsewhere, filter(is_in_copy, theirs)) if key not in ours}
    known = yield read("change", "receipt")
    _, going = decisions.outstanding(list(known.of("change").values()))
    if late := sorted(late_of(alone - going, theirs, ours, known, run.lease.fence)):
        yield from checked(run.lease)
        yield _numbered(run, tuple(late), deleted=True).begin()
        yield from catch_up(run)


def late_of(alone: Set[Key], theirs: Set[Key], ours: Set[Key], known: Frozen, fence: int) -> list[Key]:
    """Returns which objects that the copy alone has are cleared there."""
    receipts = known.of("receipt")
    registered = {name for name, it in receipts.items() if it.state not in DROPPED}
    filed = {name for kind, name in theirs | ours if _kind((kind, name)) == "file"}
    manifests = {name for kind, name in theirs if kind == "copy manifest" and ("link", name) not in ours}
    standing = manifests & filed
    of_commits = [(key, key[1], fence_of(key[1])) for key in alone if key[0] in ("file", "manifest")]
    kept = [(key, *kept_under(key[1])) for key in alone if key[0] == "kept"]
    exchanging = {name for name in registered if receipts[name].state not in CURRENT}
    own = range(fence)  # another database has no copy
    return [
        *decisions.left_in_copy(of_commits, fence, staying=registered | standing, own=own),
        *decisions.left_in_copy(kept, fence, staying=exchanging, own=own),
    ]


def _keys(world: World) -> frozenset[Key]:
    return frozenset(world.store)


# What is lost


def mend(run: Run) -> Steps:
    """Looks at all that has to be there, in the store and in the copy by themselves, and puts back what one
    has lost and the other has. Looks again where it has put something."""
    if not (yield has_copy()):
        return
    bad: dict[str, list[Key]] = {}
    for place in ("", "copy "):
        bad[place] = yield from damage(place)
    while any(bad.values()):
        mended: list[str] = []
        for place, keys in bad.items():
            for key in keys:
                if _elsewhere(key) not in bad["" if place else "copy "] and (yield from put_back(run, key)):
                    mended.append(place)
        if not mended:
            raise Halt("what is damaged lies nowhere else")
        for place in dict.fromkeys(mended):
            bad[place] = yield from damage(place)


def put_back(run: Run, key: Key) -> Steps:
    """Puts an object back. Returns whether the other place has it."""
    yield from checked(run.lease)
    other = _elsewhere(key)
    if (yield _at(other, get(_kind(other), other[1]))) is None:
        return False
    if (found := (yield _at(other, get(_kind(other), other[1])))) is None:
        raise Failed(f"{_named(other)} is gone by now")
    yield from put_compared(key, found)
    return True


def damage(place: str) -> Steps:
    """Returns what is missing in the store, or in the copy. Reads what is listed there."""
    bad: list[Key] = []
    there: Frozen = yield Effect(f"{IN_COPY if place else ''}lists all", lambda world: world.store)
    receipts = (yield read("receipt")).of("receipt")
    for name in [name for name, it in receipts.items() if it.state in CURRENT]:
        for kind in ("manifest", "file"):
            key = f"{place}{kind}", name
            if key not in there or (yield _at(key, get(kind, name))) is None:
                bad.append(key)
                break
    return bad


def _elsewhere(key: Key) -> Key:
    return (_kind(key), key[1]) if is_in_copy(key) else in_copy(key)


def _kind(key: Key) -> str:
    return key[0].removeprefix("copy ")


def _at(key: Key, effect: Effect) -> Effect:
    """Returns what is done in the store, done where a key is: there or in the copy."""
    if not is_in_copy(key):
        return effect._replace(name=effect.name.replace("puts the", "puts back the"))
    name = f"{IN_COPY}{effect.name}"
    if effect.put is None:
        return effect._replace(name=name, do=lambda world: world.store.get(key))
    value = effect.put[1]
    return effect._replace(name=name, do=lambda world: world.put(key, value), put=(key, value))


# The verbs


def repair(run: Run) -> Steps:
    """The verb `repair`."""
    yield from mend(run)


def fill(run: Run) -> Steps:
    """The verb `copy`: puts all that the store has, and the copy lacks, into the copy."""
    if not (yield has_copy()):
        return
    yield write("notes that the copy is being filled", {FILLED: None})
    yield from catch_up(run)
    there: dict[Key, Any] = yield Effect(f"{IN_COPY}lists all", lambda world: world.store)
    ours: dict[Key, Any] = yield Effect("lists all", lambda world: world.store)
    missing = [
        it for it in ours if not is_in_copy(it) and it[0] != "class" and there.get(in_copy(it)) != ours[it]
    ]
    for key in sorted(missing, key=lambda it: (it[0] == "manifest", it)):
        yield from checked(run.lease)
        if (found := (yield get(*key))) is not None:
            yield from put_compared(in_copy(key), found)
    yield write("notes that the copy has all", {FILLED: True})


# What must hold


def differing(world: World) -> Iterator[str]:
    """Yields what lies otherwise in the copy than in the store, though nothing says that it may."""
    if not world.has_copy or FILLED not in world.db:
        return
    for key in {(_kind(it), it[1]) for it in world.store if it[0] != "class"}:
        theirs = in_copy(key)
        if key[0] == "aside" and theirs not in world.store:
            continue  # it came to the store too late, and nobody reads it
        if not world.lost & {key, theirs} and world.store.get(key) != world.store.get(theirs):
            yield f"differs in the copy: {_named(key)}"


def needed(world: World) -> Iterator[str]:
    """Yields the verbs that somebody has to call before runs go on."""
    if world.has_copy and FILLED not in world.db and not _is_new(world):
        yield "copy"
    replaced = {name for name, it in world.db.of("receipt").items() if it.state == "replaced"}
    if any(name not in replaced for _, name in world.lost):
        yield "repair"


def losable(world: World) -> Iterator[Key]:
    """Yields what the store or the copy may lose: what the other one has, and nothing waits for; and whatever
    is left of commits that others have taken over."""
    states = {name: it.state for name, it in world.db.of("receipt").items()}
    for key in world.store:
        ours = _kind(key), key[1]
        if ours[0] in ("file", "manifest") and ours not in waiting(world.db):
            is_elsewhere = {ours, in_copy(ours)} <= world.store.keys()
            if states.get(ours[1]) == "replaced" or (is_elsewhere and states.get(ours[1]) in CURRENT):
                yield key
