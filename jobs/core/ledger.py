"""The ledger: what each run did to each policy, also the runs that never came to their end.

It stays small. Consecutive runs of a verb that did nothing share one entry, and runs that were completed
remove old entries. Neither takes away what recovery asks for, which is whether the ledger knows the run that
made a commit without a receipt:

- A run that ended with 0 has registered all its commits: it does so right after making each, and fails if it
  can't.
- A run that was completed has registered or dropped whatever earlier ones had left without a receipt. Only
  such runs remove entries: `run` those of all verbs, the others their own. (`restore` and `unpin` have no
  recovery, and make no commits.)

Should an entry be missed all the same (receipts were lost, say), its commit counts as one that this database
has forgotten: nothing is lost, and a bucket that has changed since then counts in both versions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from bson import ObjectId
from pymongo import ASCENDING, DESCENDING, DeleteOne, IndexModel
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import ConnectionFailure

from bucketwise.archivers.records.receipts import RunIdentity
from bucketwise.buckets.fields.times import MAX_SKEW
from bucketwise.config.errors import hide_secrets
from bucketwise.jobs.core import clock, lease, machine
from bucketwise.jobs.core.logs import log
from bucketwise.rollups.context import transaction

Document = dict[str, Any]

COLLECTION = "bucketwise_runs"
RUNNING, DIED = "running", "died"
#: Runs of a policy that rely on the index that an earlier run has checked.
_RUNS_PER_LOOK = 100
#: One run in so many removes old entries; a prime, so that verbs that take turns all get to it.
_RUNS_PER_REMOVAL = 11
MOST_REMOVED = 1000
#: The verb that a schedule runs: the last one that was completed stays.
SCHEDULED = "run"
#: Verbs whose work a scheduled run does as well.
COVERED = ("rollup", "archive")
#: Counts of what stands as it did: where a table is, what waits in a grace or is held back.
_STANDING = ("snapshot", "waiting", "standing", "held")
COMPLETED = (0, 3)  # exit codes of runs after which nothing due was left undone
REFUSED = 2  # that of a run that did nothing, and would do nothing again
#: Verbs that look and change nothing. Their entries are a history of proofs, made without a lease.
LOOKS = ("audit", "verify")


@dataclass(frozen=True)
class Run:
    """One entry as people ask for it. `outcome` is "running", "died" or what the exit code means.

    It stands for so many consecutive `runs`, the first of which started at `since`; all but the last of them
    did nothing. `now` is the run's, `now_given` that of `--now`, and `taken_at` the server's time when it
    began. Entries of what only looks lack some of these.
    """

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
    runs: int
    since: datetime
    now: datetime | None = None
    host: str | None = None
    user: str | None = None
    now_given: datetime | None = None
    taken_at: datetime | None = None


@dataclass(frozen=True)
class Repeat:
    """A run to be given again, and with what. None: with series that the ledger does not keep."""

    run: Run
    arguments: list[str] | None


class Ledger:
    """The entries in `database`: one document a run and policy, or for consecutive runs that did nothing.

    `{_id, run, verb, policy, now, started, ended, exit_code, outcome, counts, error, host, holder, fence,
    user, version, now_given, taken_at, runs, since, arguments, open}`; `run` is common to the policies of
    one command; `holder` and `fence` are those of its lease, and `taken_at` is when it was acquired, by the
    server's clock. `open`: it was not completed, and has not been given again. Where it
    stands for several runs, all but `runs` and `since` is of the last one.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._runs = database[COLLECTION]
        self._begun: dict[ObjectId, Document] = {}  # by this process: which runs before are of the same kind

    def start(
        self,
        run: RunIdentity,
        verb: str,
        policy: str,
        now: datetime,
        held: lease.Lease,
        arguments: Sequence[str] | None = (),
    ) -> ObjectId:
        """Records a run before its first step, and marks earlier runs that died.

        `arguments`: the arguments of the verb; None: they named series, which the ledger does not keep.
        """
        if held.fence % _RUNS_PER_LOOK == 1:  # a policy's first, and now and then: they are there, mostly
            self._create_indexes()
        self._mark_died(policy, held.fence)
        entry, started = ObjectId(), clock.current()
        kept = None if arguments is None else [hide_secrets(it) for it in arguments]
        if kept is not None:
            same = {"policy": policy, "verb": verb, "arguments": kept, "fence": {"$lt": held.fence}}
            self._begun[entry] = same
        self._runs.insert_one(
            {
                "_id": entry,
                "run": run.run,
                "verb": verb,
                "policy": policy,
                "now": now,
                "started": started,
                "ended": None,
                "exit_code": None,
                "outcome": RUNNING,
                "counts": {},
                "error": None,
                "host": machine.this_process(),
                "holder": held.holder,
                "fence": held.fence,
                "user": run.user,
                "version": run.version,
                "now_given": run.now_given,
                "taken_at": held.taken_at,
                "runs": 1,
                "since": started,
                "arguments": kept,
                "open": True,
            }
        )
        return entry

    def note(self, seen: Run) -> None:
        """Records a look at a policy that has ended. It has no lease, so none of the runs refer to it."""
        entry = {**asdict(seen), "host": machine.this_process(), "runs": 1, "since": seen.started}
        self._runs.insert_one({**entry, "error": None if seen.error is None else hide_secrets(seen.error)})

    def _create_indexes(self) -> None:
        """Creates what each question below goes by, so that none looks through the entries."""
        started = [("policy", 1), ("started", -1), ("_id", -1)]
        by_verb = [("policy", 1), ("verb", 1), ("started", -1)]
        models = [IndexModel(keys) for keys in (started, by_verb, [("policy", 1), ("fence", -1)])]
        for field, which in {"fence": {"outcome": RUNNING}, "open": {"open": True}}.items():
            models.append(IndexModel([("policy", 1), (field, 1)], partialFilterExpression=which))
        self._runs.create_indexes(models)

    def _mark_died(self, policy: str, fence: int) -> None:
        """Marks runs under an older fence as died. One that only slept still records how it ended."""
        unended = {"policy": policy, "outcome": RUNNING, "fence": {"$lt": fence}}
        # Rarely more than one. The driver retries writes of one document, and not those of many.
        while self._runs.update_one(unended, {"$set": {"outcome": DIED}}).modified_count:
            pass

    def finish(
        self, entry: ObjectId, exit_code: int, outcome: str, body: Document, error: str | None
    ) -> None:
        """Records how the run ended; `body` is the policy's part of the report."""
        is_completed = exit_code in COMPLETED
        if exit_code != REFUSED:
            self._close_earlier(entry, is_completed)
        said = {
            "ended": clock.current(),
            "exit_code": exit_code,
            "outcome": outcome,
            "counts": _counts(body),
            "error": None if error is None else hide_secrets(error),
            "open": not is_completed and exit_code != REFUSED,
        }
        try:
            self._runs.update_one({"_id": entry}, {"$set": said})
        except ConnectionFailure:  # only its reply may be lost, and then the run ended as it says
            if self._runs.find_one({"_id": entry, "exit_code": exit_code}, {"_id": 1}) is None:
                raise
        if _did_nothing(said):
            self._merge_previous(entry)

    def _close_earlier(self, entry: ObjectId, is_completed: bool) -> None:
        """Closes earlier runs of the same kind: they need not be repeated."""
        if (same := self._begun.get(entry)) is None:  # with series, or begun elsewhere
            return
        verbs = (SCHEDULED, *COVERED) if is_completed and same["verb"] == SCHEDULED else (same["verb"],)
        others = {**same, "verb": {"$in": verbs}, "open": True}
        try:
            # Seldom more than one; see `_mark_died`.
            while self._runs.update_one(others, {"$unset": {"open": ""}}).modified_count:
                pass
        except ConnectionFailure as error:  # this run has ended, and has to say so; the next one closes them
            log.warning("earlier runs stay open", verb=same["verb"], error=hide_secrets(str(error)))

    def _merge_previous(self, entry: ObjectId) -> None:
        """Merges the previous entry into this one, if it is of the same verb and did nothing."""

        def step(session: ClientSession) -> None:
            own = self._runs.find_one({"_id": entry}, session=session)
            before = None if own is None else self._previous_entry(own, session)
            if own is None or before is None or before["verb"] != own["verb"] or not _did_nothing(before):
                return
            both = {"runs": before["runs"] + 1, "since": before["since"]}
            self._runs.update_one({"_id": entry}, {"$set": both}, session=session)
            self._runs.delete_one({"_id": before["_id"]}, session=session)

        transaction(self._database, _no_guard, step)

    def _previous_entry(self, own: Document, session: ClientSession) -> Document | None:
        earlier = {"policy": own["policy"], "fence": {"$lt": own["fence"]}}
        return self._runs.find_one(earlier, sort=[("fence", DESCENDING)], session=session)

    def remove_old(self, verb: str, held: lease.Lease, keep: timedelta | None) -> None:
        """Removes now and then, for a completed run, some entries that are older than `keep`, the oldest
        first. Those of other verbs are left to `run`; None: they stay forever."""
        if keep is None or held.fence % _RUNS_PER_REMOVAL:
            return
        present = min(clock.current(), held.taken_at)  # by the clock that is behind
        old: Document = {"policy": held.policy, "started": {"$lt": present - keep}}
        if verb != SCHEDULED:
            old["verb"] = verb
        found = self._runs.find(old, {"_id": 1}, batch_size=MOST_REMOVED)
        some = found.sort("started", ASCENDING).limit(MOST_REMOVED)
        # The driver retries deletes of one document, and not those of many.
        if gone := [DeleteOne({"_id": it["_id"]}) for it in some]:
            self._runs.bulk_write(gone, ordered=False)

    def runs_under(self, policy: str, fences: Collection[int]) -> dict[int, tuple[str, str]]:
        """Returns the run and the verb of each of these fences that has an entry."""
        query = {"policy": policy, "fence": {"$in": list(fences)}}
        return {it["fence"]: (it["run"], it["verb"]) for it in self._runs.find(query)}

    def last_runs(self, policy: str, count: int) -> list[Run]:
        """Returns the latest entries of the policy, the newest first."""
        found = self._runs.find({"policy": policy}).sort([("started", DESCENDING), ("_id", DESCENDING)])
        return [self._read(document) for document in found.limit(count)]

    def last_of(self, policy: str, verbs: Sequence[str], count: int) -> list[Run]:
        """Returns the latest entries of the policy with one of these verbs, the newest first."""
        found = self._runs.find({"policy": policy, "verb": {"$in": list(verbs)}}).sort("started", DESCENDING)
        return [self._read(document) for document in found.limit(count)]

    def last_proofs(self, policies: Sequence[str]) -> dict[str, dict[str, Run]]:
        """Returns the latest audit that could look, and the latest drill that was completed, by policy and
        verb. It takes one command."""
        proofs = [
            {"verb": "audit", "counts.errors": {"$exists": True}},
            {"verb": "drill", "exit_code": {"$in": COMPLETED}},
        ]
        newest: list[Document] = [
            {"$match": {"policy": {"$in": list(policies)}, "$or": proofs}},
            {"$sort": {"policy": ASCENDING, "verb": ASCENDING, "started": DESCENDING}},
            {"$group": {"_id": {"policy": "$policy", "verb": "$verb"}, "run": {"$first": "$$ROOT"}}},
        ]
        found: dict[str, dict[str, Run]] = {}
        for it in self._runs.aggregate(newest):
            found.setdefault(it["_id"]["policy"], {})[it["_id"]["verb"]] = self._read(it["run"])
        return found

    def to_repeat(self, policies: Sequence[str]) -> dict[str, list[Repeat]]:
        """Returns the runs to repeat, by policy, the newest first: those that failed or died, and after which
        none with the same arguments has completed or is running."""
        found = self._runs.find({"policy": {"$in": list(policies)}, "open": True}).sort("started", DESCENDING)
        open_: dict[str, list[Repeat]] = {}
        for it in found:
            run = self._read(it)
            if run.outcome != RUNNING:
                open_.setdefault(run.policy, []).append(Repeat(run, it["arguments"]))
        return open_

    def latest(self, policies: Sequence[str], count: int) -> dict[str, tuple[Document | None, list[Run]]]:
        """Returns since when each policy that ever ran is paused, and its latest entries, the newest first,
        without those of what only looks. It takes one command, and one more for each run that has not
        ended."""
        order = {"$sort": {"started": DESCENDING, "_id": DESCENDING}}
        newest: list[Document] = [{"$match": {"verb": {"$nin": LOOKS}}}, order, {"$limit": count}]
        joined = {"localField": "_id", "foreignField": "policy", "pipeline": newest, "as": "runs"}
        found = self._database[lease.COLLECTION].aggregate(
            [{"$match": {"_id": {"$in": list(policies)}}}, {"$lookup": {"from": COLLECTION, **joined}}]
        )
        return {it["_id"]: (it.get("paused"), [self._read(run) for run in it["runs"]]) for it in found}

    def last_completed(self, policy: str, verb: str) -> datetime | None:
        """Returns when the latest run began that came to its end without failing; None without one.

        One that began in the future had a wrong clock, and does not count."""
        past = {"$lte": clock.current() + MAX_SKEW}
        query = {"policy": policy, "verb": verb, "exit_code": {"$in": COMPLETED}, "started": past}
        found = self._runs.find_one(query, sort=[("started", DESCENDING)])
        return None if found is None else found["started"]

    def _read(self, document: Document) -> Run:
        outcome = document["outcome"]
        if outcome == RUNNING and not self._is_alive(document):
            outcome = DIED
        kept = ("run", "verb", "policy", "started", "ended", "exit_code", "counts", "error", "version")
        stored = {key: document[key] for key in (*kept, "runs", "since")}
        stored |= {key: document.get(key) for key in ("now", "user", "now_given", "taken_at")}
        stored["host"] = document["host"].get("name")
        return Run(outcome=outcome, **stored)

    def _is_alive(self, document: Document) -> bool:
        if machine.is_known_dead(document["host"]):
            return False
        held = {"_id": document["policy"], "holder": document["holder"], "fence": document["fence"]}
        unexpired = {"$expr": {"$gt": ["$expires_at", "$$NOW"]}}
        return self._database[lease.COLLECTION].find_one(held | unexpired) is not None


def _no_guard(_session: ClientSession) -> None:
    """Replaces a guard: the end of a run is recorded even if it has lost its lease."""


def _did_nothing(entry: Document) -> bool:
    return entry["exit_code"] == 0 and entry["error"] is None and not _counted(entry["counts"])


def _counted(counts: Document) -> bool:
    """Returns whether any number is not zero, but for those that tell how things stand."""
    return any(
        _counted(it) if isinstance(it, dict) else isinstance(it, int | float) and it != 0
        for name, it in counts.items()
        if name not in _STANDING
    )


def _counts(body: Document) -> Document:
    """Returns the numbers of a body. Lists belong in the report, so that the ledger stays small."""
    return {
        key: _counts(value) if isinstance(value, dict) else value
        for key, value in body.items()
        if not isinstance(value, list)
    }
