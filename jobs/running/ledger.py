"""The ledger: what each run did to each policy, also the runs that never came to their end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import ObjectId
from pymongo import DESCENDING
from pymongo.database import Database

from config.secrets import hide_secrets
from jobs import clock
from jobs.running import lease, machine
from jobs.version import VERSION

COLLECTION = "bucketwise_runs"
RUNNING, DIED = "running", "died"
#: So many runs of a policy rely on the index that the one before them has seen.
_RUNS_PER_LOOK = 100
COMPLETED = (0, 3)  # exit codes of runs after which nothing due was left undone

Document = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One entry as people ask for it. `outcome` is "running", "died" or what the exit code means."""

    run: str
    verb: str
    policy: str
    started: datetime
    ended: datetime | None
    exit_code: int | None
    outcome: str
    counts: Document
    error: str | None
    version: str


class Ledger:
    """The entries in `database`: one document a run and policy.

    `{_id, run, verb, policy, now, started, ended, exit_code, outcome, counts, error, host, holder, fence,
    version}`; `run` is common to the policies of one command, `holder` and `fence` are those of its lease.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._runs = database[COLLECTION]

    def start(self, run: str, verb: str, policy: str, now: datetime, held: lease.Lease) -> ObjectId:
        """Enter a run before its first step, and mark those that died before it."""
        if held.fence % _RUNS_PER_LOOK == 1:  # a policy's first, and now and then: they are there, mostly
            self._runs.create_index([("policy", 1), ("started", -1)])
            running = {"outcome": RUNNING}
            self._runs.create_index([("policy", 1), ("fence", 1)], partialFilterExpression=running)
        self._mark_died(policy, held.fence)
        entry = ObjectId()
        self._runs.insert_one(
            {
                "_id": entry,
                "run": run,
                "verb": verb,
                "policy": policy,
                "now": now,
                "started": clock.current(),
                "ended": None,
                "exit_code": None,
                "outcome": RUNNING,
                "counts": {},
                "error": None,
                "host": machine.this_process(),
                "holder": held.holder,
                "fence": held.fence,
                "version": VERSION,
            }
        )
        return entry

    def _mark_died(self, policy: str, fence: int) -> None:
        """A run under an older fence works no more. One that slept meanwhile still says how it ended."""
        unended = {"policy": policy, "outcome": RUNNING, "fence": {"$lt": fence}}
        # Seldom more than one. The driver tries again what changes one document, and not what changes many.
        while self._runs.update_one(unended, {"$set": {"outcome": DIED}}).modified_count:
            pass

    def finish(
        self, entry: ObjectId, exit_code: int, outcome: str, counts: Document, error: str | None
    ) -> None:
        """Say how the run ended; `counts` is the policy's part of the report."""
        said = {
            "ended": clock.current(),
            "exit_code": exit_code,
            "outcome": outcome,
            "counts": counts,
            "error": None if error is None else hide_secrets(error),
        }
        self._runs.update_one({"_id": entry}, {"$set": said})

    def knows(self, policy: str, fence: int, now: datetime) -> bool:
        """Whether there was a run under this fence, at this instant."""
        return self._runs.find_one({"policy": policy, "fence": fence, "now": now}) is not None

    def last_runs(self, policy: str, count: int) -> list[Run]:
        """The latest entries of the policy, the newest first."""
        found = self._runs.find({"policy": policy}).sort([("started", DESCENDING), ("_id", DESCENDING)])
        return [self._read(document) for document in found.limit(count)]

    def last_completed(self, policy: str, verb: str) -> datetime | None:
        """When the latest run that came to its end without failing began.

        One that began in the future had a wrong clock, and does not count.
        """
        past = {"$lte": clock.current() + clock.MAX_SKEW}
        query = {"policy": policy, "verb": verb, "exit_code": {"$in": COMPLETED}, "started": past}
        found = self._runs.find_one(query, sort=[("started", DESCENDING)])
        return None if found is None else found["started"]

    def _read(self, document: Document) -> Run:
        outcome = document["outcome"]
        if outcome == RUNNING and not self._is_alive(document):
            outcome = DIED
        kept = ("run", "verb", "policy", "started", "ended", "exit_code", "counts", "error", "version")
        return Run(outcome=outcome, **{key: document[key] for key in kept})

    def _is_alive(self, document: Document) -> bool:
        if machine.surely_gone(document["host"]):
            return False
        held = {"_id": document["policy"], "holder": document["holder"], "fence": document["fence"]}
        unexpired = {"$expr": {"$gt": ["$expires_at", "$$NOW"]}}
        return self._database[lease.COLLECTION].find_one(held | unexpired) is not None
