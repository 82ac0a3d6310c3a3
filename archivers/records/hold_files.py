"""What the store says of the holds that stand: a small sealed file for each, which names no series.

A database that was put back to a state before a hold was placed has lost it; the store still tells of it. A
hold is placed in the store first, and released in the database first: what a crash leaves is a file too many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import UNSEALED, DamagedError, encoded, seal_of, sealed
from bucketwise.archivers.format.names import hold_key, holds_prefix
from bucketwise.archivers.records.receipt_files import REMEDY
from bucketwise.archivers.records.receipt_files import seal_of as seal_of_receipt
from bucketwise.archivers.records.receipts import CODEC, Receipts
from bucketwise.archivers.stores.base import NotFound, ObjectStore
from bucketwise.config.errors import HaltedError
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
