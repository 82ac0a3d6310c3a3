"""Records of holds: a receipt of each, and a small sealed file in the store, which names no series.

A hold is placed in the store first, and released in the database first: what a crash leaves is a file too
many. A database that was put back to a state before a hold was placed lacks what the store tells of. What
that hold covers is not known then, so nothing is destroyed until it is placed again, or released by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import UNSEALED, DamagedError, encoded, seal_of, sealed
from bucketwise.archivers.format.names import hold_key, holds_prefix
from bucketwise.archivers.records.deletions import Deletions
from bucketwise.archivers.records.receipt_files import REMEDY
from bucketwise.archivers.records.receipt_files import seal_of as seal_of_receipt
from bucketwise.archivers.records.receipts import CODEC, HELD, REPLACED, TOMBSTONE, Receipts
from bucketwise.archivers.stores.base import NotFound, ObjectStore
from bucketwise.buckets.fields.times import DAY_MS, as_text
from bucketwise.config.errors import HaltedError, UsageError
from bucketwise.rollups.context import Guard, transaction
from bucketwise.rollups.holds import Hold, Holds


class HoldFile(BaseModel):
    """A hold as the store tells of it. `hold_sha256`: the digest of the hold, which receipts have as well."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: str
    placed_at: datetime
    hold: str
    since: datetime | None
    until: datetime | None
    freeze: bool
    reason: str
    by: str
    hold_sha256: str
    sha256: str = UNSEALED
    signature: str | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Returns what receipts say of the hold."""
        return self.model_dump(exclude={"policy", "placed_at", "sha256", "signature"})


class HoldFiles:
    """The files of the holds on one policy. Without a store there are none."""

    def __init__(self, store: ObjectStore | None, policy: str, keys: Keys) -> None:
        self._store = store
        self._policy = policy
        self._keys = keys

    def put(self, holds: Iterable[Hold], known: Collection[str] = ()) -> None:
        """Writes the files of these holds, but for those whose digests are `known`. Raises HaltedError where
        the store returns other bytes."""
        if (store := self._store) is None:
            return
        for hold in (it for it in holds if it.digest not in known):
            facts = {"policy": self._policy, "placed_at": hold.placed_at, **facts_of(hold)}
            file = sealed(HoldFile.model_validate(facts))
            file = file.model_copy(update={"signature": self._keys.sign(file.sha256)})
            key, data = hold_key(self._policy, hold.name, hold.digest), encoded(file)
            store.put_bytes(key, data)
            if store.get_bytes(key) != data:
                raise HaltedError(f"{self.place(file)}: the store returned other bytes than were written")

    def standing(self, name: str = "") -> list[HoldFile]:
        """Returns the files, by their names; only those of the hold of this name, if one is given. Raises
        DamagedError where one is not as it was written."""
        prefix = holds_prefix(self._policy)
        keys = [it.key for it in self._store.list(f"{prefix}{name}")] if self._store else []
        found = [self._read(key) for key in keys]
        return [it for it in found if it is not None and name in ("", it.hold)]

    def remove(self, files: Iterable[HoldFile]) -> None:
        """Removes files."""
        if self._store is not None:
            self._store.delete([hold_key(self._policy, it.hold, it.hold_sha256) for it in files])

    def place(self, file: HoldFile) -> str:
        """Returns the place of a file, for messages."""
        assert self._store is not None
        return f"{self._store.url}/{hold_key(self._policy, file.hold, file.hold_sha256)}"

    def _read(self, key: str) -> HoldFile | None:
        assert self._store is not None
        place = f"{self._store.url}/{key}"
        try:
            data = self._store.get_bytes(key)
            file = HoldFile.model_validate_json(data)
        except NotFound:  # it was released since
            return None
        except ValidationError:
            file, data = None, b""
        key_of = None if file is None else hold_key(self._policy, file.hold, file.hold_sha256)
        if file is None or seal_of(data) != file.sha256 or key != key_of:
            raise DamagedError("hold-differs", place, "the file of a hold is not as it was written", REMEDY)
        self._keys.lenient().check(file.sha256, file.signature, place)
        return file


def facts_of(hold: Hold) -> dict[str, Any]:
    """Returns what receipts and files say of a hold."""
    return {
        "hold": hold.name,
        "since": hold.within.since,
        "until": hold.within.until,
        "freeze": hold.freeze,
        "reason": hold.reason,
        "by": hold.by,
        "hold_sha256": hold.digest,
    }


def lost(receipts: Receipts, files: HoldFiles, *, mends: bool = False) -> list[HoldFile]:
    """Returns the holds that the store tells of, that the database lacks, and of which no receipt says that
    they were released. Raises DamagedError where a file is not as it was written. `mends`: also makes the
    files that are missing, as they are of holds of earlier versions, and removes those of released ones."""
    told = files.standing()
    active = Holds(receipts.collection.database, receipts.policy).active()
    standing = {it.digest for it in active}
    missing = [it for it in told if it.hold_sha256 not in standing]
    released = _released(receipts, missing) if missing else set()
    if mends:
        files.put(active, {it.hold_sha256 for it in told})
        files.remove(it for it in missing if it.hold_sha256 in released)
    return [it for it in missing if it.hold_sha256 not in released]


def _released(receipts: Receipts, files: Iterable[HoldFile]) -> set[str]:
    """Returns the digests of those of which an intact receipt says that they were released."""
    digests = {"$in": [it.hold_sha256 for it in files]}
    query = {"_id.policy": receipts.policy, "kind": "release", "hold_sha256": digests}
    found = receipts.collection.with_options(codec_options=CODEC).find(query)
    return {it["hold_sha256"] for it in found if seal_of_receipt(it) == it["sha256"]}


Document = dict[str, Any]


class HoldWriter:
    """Places and releases the holds on one policy. `guard` makes its transactions conflict with those of a
    run, so that each sees what the other has done. Both raise DamagedError where receipts are signed, and
    not by one of the keys."""

    def __init__(
        self,
        database: Database[Document],
        policy: str,
        deletions: Deletions,
        guard: Guard,
        files: HoldFiles,
    ) -> None:
        self._database = database
        self._policy = policy
        self._deletions = deletions
        self._guard = guard
        self._files = files
        self._holds = Holds(database, policy)

    def place(self, hold: Hold) -> bool:
        """Places a hold. Returns False where the same hold is already active. Raises UsageError where another
        hold has its name. The store is told first: what a crash leaves there keeps, until it is looked at."""

        def step(session: ClientSession) -> bool:
            self._deletions.check_last(session)
            if self._is_active(hold, session):
                return False
            self._holds.put(hold, session)
            self._deletions.record_event("hold", facts_of(hold), session)
            return True

        self._deletions.check_last()
        told, active = self._files.standing(), self._holds.active()
        added = [] if self._is_active(hold) else [hold]
        self._files.put([*active, *added], {it.hold_sha256 for it in told})
        placed = transaction(self._database, self._guard, step)
        standing = {it.digest for it in self._holds.active()}
        self._files.remove(it for it in self._files.standing(hold.name) if it.hold_sha256 not in standing)
        return placed

    def release(self, name: str, by: str, reason: str | None = None) -> bool:
        """Releases a hold. Returns whether there was one. The next run may remove what it kept. One that the
        database lacks, and the store tells of, is released for a `reason`."""
        told = self._files.standing(name)

        def step(session: ClientSession) -> bool:
            hold = self._named(name, session)
            found = [facts_of(hold)] if hold else [it.facts for it in told]
            if found and hold is None and reason is None:
                raise UsageError(
                    f"hold release {name}: policy {self._policy}: the store tells of this hold, and the "
                    "database does not have it. If it is over, say why with --reason TEXT; receipts keep it"
                )
            self._deletions.check_last(session)
            if hold is not None:
                self._holds.remove(name, session)
                _note_released(Receipts(self._database, self._policy), hold, session)
            why = {} if reason is None else {"release_reason": reason}
            for facts in found:
                self._deletions.record_event("release", {**facts, "by": by, **why}, session)
            return bool(found)

        released = transaction(self._database, self._guard, step)
        self._files.remove(told)
        return released

    def _is_active(self, hold: Hold, session: ClientSession | None = None) -> bool:
        before = self._named(hold.name, session)
        if before is not None and not before.is_same(hold):
            raise UsageError(
                f"policy {self._policy}: another hold named {hold.name} stands since "
                f"{as_text(before.placed_at)}. Release it first, or take another name"
            )
        return before is not None

    def _named(self, name: str, session: ClientSession | None = None) -> Hold | None:
        return next((it for it in self._holds.active(session) if it.name == name), None)


def note_held(receipts: Receipts, names: Iterable[str], session: ClientSession) -> None:
    """Records that these replaced commits are not dropped until a hold is released."""
    named = {"_id": {"$in": [receipts.identity(name) for name in names]}, "state": REPLACED}
    receipts.collection.update_many(named, {"$set": {"state": HELD}}, session=session)


def _note_released(receipts: Receipts, hold: Hold, session: ClientSession) -> None:
    """Allows replaced commits to be dropped again, what is under a tombstone to go, and others of the range
    to be merged."""
    within = hold.within
    kept = {"kind": {"$in": ["offline", "dropped", TOMBSTONE]}, "tombstone.held": hold.name}
    free = {"$unset": {"tombstone.held": ""}}
    receipts.collection.update_many({"_id.policy": receipts.policy, **kept}, free, session=session)
    held = {"_id.policy": receipts.policy, "kind": "offline", "state": HELD}
    receipts.collection.update_many(held, {"$set": {"state": REPLACED}}, session=session)
    days = {"$gte": within.start_ms // DAY_MS, "$lte": (within.end_ms - 1) // DAY_MS}
    looked_at = {**receipts.is_current, "first_day": days, "compacted": True}
    receipts.collection.update_many(looked_at, {"$set": {"compacted": False}}, session=session)


def damage_of_holds(receipts: Receipts, files: HoldFiles, *, mends: bool) -> list[DamagedError]:
    """Returns an error for each hold that the database lacks, and for a file that is not as it was written.
    `mends`: also
    makes the files that are missing."""
    try:
        return [_lost(it, files.place(it)) for it in lost(receipts, files, mends=mends)]
    except DamagedError as error:
        return [error]


def _lost(file: HoldFile, place: str) -> DamagedError:
    ends = (("since", file.since), ("until", file.until))
    span = "".join(f", {name} {as_text(at)}" for name, at in ends if at is not None)
    what = (
        f"the hold {file.hold} was placed at {as_text(file.placed_at)} by {file.by} ({file.reason}{span}), "
        "and the database does not have it: it was put back to a state before, or somebody took the hold "
        "out. Nothing expires, and nothing is erased"
    )
    remedy = (
        f"Place it again: `bucketwise hold add {file.hold}` with its series and range. Or, if it is over: "
        f"`bucketwise hold release {file.hold} --reason TEXT`"
    )
    return DamagedError("hold-missing", place, what, remedy)
