"""The lease of a policy: one run at a time works on it. A pause is a field of it.

So the commands that acquire and renew the lease also tell a run of a pause."""

from __future__ import annotations

import contextlib
import threading
import uuid
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any

import pymongo
from bson.codec_options import CodecOptions
from pymongo import ReturnDocument
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError, PyMongoError

from bucketwise.config.errors import LeaseHeldError, LeaseLostError, PausedError
from bucketwise.jobs.core import clock, machine
from bucketwise.jobs.core.logs import log
from bucketwise.jobs.core.turn import Finding, Turn
from bucketwise.rollups.context import Guard, majority

Document = dict[str, Any]

COLLECTION = "bucketwise_lease"
TTL = timedelta(seconds=60)
#: How long a run may still work, or sleep, after its lease was taken from it.
_MAY_LIVE = timedelta(days=1)


class Lease:
    """The right to work on one policy, renewed in the background until the block ends.

    `with Lease(database, policy) as lease:` raises LeaseHeldError where another run holds it. `fence` grows
    by one each time it is acquired: the later holder has the higher one. `taken_at` is when that was, by the
    server's clock. `is_clean`: those that held it before have come to their end, and left nothing.
    `pausable`: it is not acquired while the policy is paused, and `check` ends the run once it is; both raise
    PausedError.
    """

    def __init__(
        self, database: Database[Document], policy: str, ttl: timedelta = TTL, *, pausable: bool = False
    ) -> None:
        self.policy = policy
        self.holder = uuid.uuid4().hex
        self.fence = 0
        self.taken_at = datetime.min.replace(tzinfo=UTC)
        self.is_clean = False
        self._may_meet = True  # a run that has lost its lease may go on
        self._leaves_clean = False
        self._ttl = ttl
        self._pausable = pausable
        self._pause: Document | None = None
        self._leases: Collection[Document] = database.get_collection(
            COLLECTION, write_concern=majority(database)
        )
        self._good_until = 0.0  # on our own steady clock, counted from before we asked the server
        self._lost = False
        self._leaving = threading.Event()
        self._renewer = threading.Thread(target=self._keep, name=f"lease {policy}", daemon=True)

    def __enter__(self) -> Lease:
        before = clock.steady()
        document = self._take()
        if document["holder"] != self.holder:
            raise LeaseHeldError(_held_by(document))
        self.fence, self.taken_at = document["fence"], _utc(document["taken_at"])
        self._may_meet = self._may_another_run(document["taken_over_at"])
        self.is_clean = document["was_clean"] and not self._may_meet
        self._good_until = before + self._ttl.total_seconds()
        self._renewer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        self._renewer.join()
        try:
            with pymongo.timeout(self._ttl.total_seconds() / 4):
                free = {"holder": None, "expires_at": "$$NOW", "clean": self._leaves_clean}
                self._leases.update_one(self._own(), [{"$set": free}])
        except PyMongoError as failure:  # it expires by itself
            log.warning("lease not released", policy=self.policy, reason=str(failure))

    def leave_clean(self) -> None:
        """Records for the next holder that this run has ended, and that neither it nor earlier ones
        left anything unfinished. Not while one of these may go on: what it leaves is looked for once more,
        by the first holder that comes when it can't any more."""
        self._leaves_clean = not self._may_meet

    def _may_another_run(self, taken_over_at: object) -> bool:
        if isinstance(taken_over_at, datetime):
            return self.taken_at < _utc(taken_over_at) + _MAY_LIVE
        return taken_over_at is not None  # no time: somebody changed it, and nothing is known

    def check(self) -> None:
        """Raises LeaseLostError unless the lease is still ours, and PausedError once the policy is paused.
        Cheap; call it before every step."""
        if loss := self.loss():
            raise loss
        if clock.steady() >= self._good_until:
            raise self._loss("it could not be renewed in time")
        if self._pause:
            raise self._paused(self._pause)

    def loss(self) -> LeaseLostError | None:
        """Returns the error to raise if another run has taken the lease; None if that is not known."""
        if not self._lost and clock.steady() >= self._good_until:
            self._renew_once()  # asleep, stopped or cut off for long: the server knows
        return self._loss("another run took it") if self._lost else None

    def guard(self, session: ClientSession) -> None:
        """Makes the transaction of `session` fail if the lease went to another holder.

        It writes to the lease, so that one who takes it later conflicts with the transaction instead of
        slipping past it. Raises LeaseLostError."""
        if not self._leases.update_one(self._own(), {"$inc": {"guards": 1}}, session=session).matched_count:
            self._lost = True
            raise self._loss("another run took it")

    def _take(self) -> Document:
        """Returns the lease as it is now: ours, or that of a holder who may be alive."""
        document = self._acquire_or_read()
        if self._pausable and (pause := document.get("paused")):
            raise self._paused(pause)
        if document["holder"] != self.holder and machine.is_known_dead(document["host"]):
            # The same holder as in the reply, and not one that came after it.
            dead = [document["holder"], document["fence"]]
            document = self._acquire_or_read({"$eq": [["$holder", "$fence"], dead]})
        return document

    def _acquire_or_read(self, *also_free: Document) -> Document:
        here = machine.this_process()
        pipeline = acquisition(self.holder, here, self._ttl, *also_free, pausable=self._pausable)
        with contextlib.suppress(DuplicateKeyError):  # two runs made the document at once; now it is there
            return self._set(pipeline)
        return self._set(pipeline)

    def _set(self, pipeline: list[Document]) -> Document:
        return self._leases.find_one_and_update(  # type: ignore[return-value]  # upserted: never None
            {"_id": self.policy}, pipeline, upsert=True, return_document=ReturnDocument.AFTER
        )

    def _keep(self) -> None:
        while not self._leaving.wait(self._ttl.total_seconds() / 4) and not self._lost:
            self._renew_once()

    def _renew_once(self) -> None:
        before = clock.steady()
        try:
            with pymongo.timeout(self._ttl.total_seconds() / 4):
                later = [{"$set": {"expires_at": _expiry_time(self._ttl)}}]
                found = self._leases.find_one_and_update(self._own(), later, projection=["paused"])
        except PyMongoError as failure:  # tried again until time runs out
            log.warning("lease not renewed", policy=self.policy, reason=str(failure))
            return
        if found is not None:
            self._pause = found.get("paused") if self._pausable else None
            self._good_until = before + self._ttl.total_seconds()
        else:
            self._lost = True

    def _own(self) -> Document:
        return {"_id": self.policy, "holder": self.holder, "fence": self.fence}

    def _paused(self, pause: Document) -> PausedError:
        pause = {**pause, "since": _utc(pause["since"])}
        return PausedError(
            f"{_subject(self.policy)}: paused since {clock.iso(pause['since'])} by {pause['by']}: "
            f"{pause['reason']}. The current step was finished; `bucketwise resume` lets it continue",
            pause,
        )

    def _loss(self, reason: str) -> LeaseLostError:
        return LeaseLostError(
            f"{_subject(self.policy)}: the lease is lost ({reason}). The run stopped before its next step; "
            "it is safe to run again"
        )


def acquisition(
    holder: str, host: Document, ttl: timedelta, *also_free: Document, pausable: bool
) -> list[Document]:
    """Returns the update, as a pipeline, by which `holder` acquires a lease that is released or has expired,
    by the server's clock. `also_free`: expressions by which it may be acquired as well. `pausable`: not while
    the policy is paused."""
    is_released = {"$eq": [{"$ifNull": ["$holder", None]}, None]}
    free: list[Document] = [is_released, {"$lte": ["$expires_at", "$$NOW"]}, *also_free]
    may_take: list[Document] = [{"$or": free}]
    if pausable:
        may_take.append({"$eq": [{"$ifNull": ["$paused", None]}, None]})
    ours = {
        "holder": holder,
        "host": {"$literal": host},
        "fence": {"$add": [{"$ifNull": ["$fence", 0]}, 1]},
        "taken_at": "$$NOW",
        "expires_at": _expiry_time(ttl),
        "was_clean": {"$and": [is_released, {"$eq": ["$clean", True]}]},
        "taken_over_at": {"$cond": [is_released, {"$ifNull": ["$taken_over_at", None]}, "$$NOW"]},
        "clean": False,
    }
    kept = {key: {"$cond": ["$free", value, f"${key}"]} for key, value in ours.items()}
    return [{"$set": {"free": {"$and": may_take}}}, {"$set": kept}, {"$unset": "free"}]


def pausing(pause: Document) -> list[Document]:
    """Returns the update, as a pipeline, that pauses a policy, unless it is paused already."""
    kept = {
        "holder": {"$ifNull": ["$holder", None]},
        "fence": {"$ifNull": ["$fence", 0]},
        "paused": {"$ifNull": ["$paused", {"$literal": pause}]},
    }
    return [{"$set": kept}]


def _expiry_time(ttl: timedelta) -> Document:
    return {"$add": ["$$NOW", round(ttl.total_seconds() * 1000)]}


def _held_by(document: Document) -> str:
    host = document["host"]
    since, until = (clock.iso(_utc(document[key])) for key in ("taken_at", "expires_at"))
    return (
        f"{_subject(document['_id'])}: another run holds the lease: pid {host['pid']} on {host['name']}, "
        f"since {since}, until {until} unless renewed. Wait for it to end, or stop it"
    )


def _subject(name: str) -> str:
    """Returns the words for a lease: of a policy, or of a command that has one of its own; only that has a
    blank in its name."""
    return name if " " in name else f"policy {name}"


def _utc(instant: datetime) -> datetime:
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def fence_of(database: Database[Document], policy: str) -> int | None:
    """Returns the fence of the last one who took a policy's lease; None where nobody has."""
    found = database[COLLECTION].find_one({"_id": policy}, {"fence": 1})
    return None if found is None else int(found["fence"])


def is_held(database: Database[Document], policy: str) -> bool:
    """Returns whether anybody holds a policy's lease, by the server's clock."""
    unexpired = {"$expr": {"$gt": ["$expires_at", "$$NOW"]}}
    held = {"_id": policy, "holder": {"$ne": None}} | unexpired
    return database[COLLECTION].find_one(held, {"_id": 1}) is not None


def touching(database: Database[Document], policy: str) -> Guard:
    """Returns a guard for what needs no lease: it makes a transaction conflict with those of whoever holds
    it, so that each sees what the other did."""
    leases = database.get_collection(COLLECTION, write_concern=majority(database))
    with contextlib.suppress(DuplicateKeyError):
        leases.update_one({"_id": policy}, {"$setOnInsert": {"holder": None, "fence": 0}}, upsert=True)

    def touch(session: ClientSession) -> None:
        leases.update_one({"_id": policy}, {"$inc": {"guards": 1}}, session=session)

    return touch


def pauses(turn: Turn) -> Document:
    """Returns the JSON of pauses: the one that stands, and how the last one ended."""
    found = leases(turn).find_one({"_id": turn.policy.identity}, ["paused", "resumed"]) or {}
    return {key: found.get(key) for key in ("paused", "resumed")}


def pause_findings(turn: Turn) -> list[Finding]:
    """Returns a warning where the policy is paused."""
    if (pause := pauses(turn)["paused"]) is None:
        return []
    message = f"paused since {clock.iso(pause['since'])} by {pause['by']}: {pause['reason']}"
    return [Finding("paused", turn.policy.name, turn.policy.collection, "warning", message)]


def leases(turn: Turn) -> Collection[Document]:
    """Returns the collection of leases, as a pause reads and writes it."""
    database = turn.context.database
    options: CodecOptions[Document] = CodecOptions(tz_aware=True)
    return database.get_collection(COLLECTION, options, write_concern=majority(database))
