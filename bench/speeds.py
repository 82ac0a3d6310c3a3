"""What is measured. Each function gives seconds, or speeds, for one policy of the demo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from pymongo.client_session import ClientSession

from archivers.delete import Outcome, chunks, guarded_delete
from buckets.decode import decode
from buckets.source import Source
from buckets.times import FIRST_MS, LAST_MS
from config.policies import Policy
from jobs.clock import steady
from jobs.demo.place import DemoCall
from jobs.demo.stage import Stage
from jobs.report import Report
from jobs.verbs.archive import archive
from jobs.verbs.restore import restore
from jobs.verbs.rollup import rollup

_TRIES = 3
_DELETED_AT_ONCE = 1000


class Reading(NamedTuple):
    """Seconds to go through a whole source, the best of some tries."""

    drained: float  # raw batches, as the server sends them
    decoded: float  # the same bytes as columns, once they are in memory
    columns: float  # from the server to columns: what bucketwise does
    dicts: float  # what pymongo gives by default


class Work(NamedTuple):
    """Seconds for a policy's steps, and what they were about."""

    rolled_up: float
    archived: float
    restored: float
    readings: int  # rolled up
    archived_readings: int
    archive_bytes: int


def reading(stage: Stage, policy: Policy) -> Reading:
    collection, source = stage.database[policy.collection], Source(stage.database, policy)
    batches = list(source.batches(FIRST_MS, LAST_MS))

    def columns() -> None:
        for batch in source.batches(FIRST_MS, LAST_MS):
            decode(batch, policy)

    return Reading(
        drained=_best(lambda: sum(1 for _ in collection.find_raw_batches({}))),
        decoded=_best(lambda: [decode(batch, policy) for batch in batches]),
        columns=_best(columns),
        dicts=_best(lambda: sum(1 for _ in collection.find({}))),
    )


def work(stage: Stage, policy: Policy) -> Work:
    """Rolls up, archives and restores as the commands do. What has expired is gone from the source then."""
    rolled, in_rollup = _timed(lambda: rollup(_call(stage, "rollup", policy)))
    moved, in_archive = _timed(lambda: archive(_call(stage, "archive", policy)))
    _, in_restore = _timed(lambda: restore(_call(stage, "restore", policy), to=f"{policy.name}_restored"))
    return Work(in_rollup, in_archive, in_restore, rolled["readings"], moved["readings"], moved["bytes"])


def deletes(stage: Stage, policy: Policy) -> tuple[float, float, int]:
    """Seconds of the guarded and of a bare delete of the same documents, and how many there are."""
    copies = [policy.model_copy(update={"collection": f"{policy.name}_{way}"}) for way in ("guarded", "bare")]
    for copy in copies:
        stage.database[policy.collection].aggregate([{"$out": copy.collection}])
    guarded, bare = copies
    pieces = [
        piece
        for batch in Source(stage.database, guarded).batches(FIRST_MS, LAST_MS)
        for piece in chunks(batch)
    ]
    ids = [document["_id"] for document in stage.database[bare.collection].find({}, {"_id": 1})]

    def record(_session: ClientSession, outcome: Outcome) -> None:
        assert not outcome.changed

    started = steady()
    for piece in pieces:
        guarded_delete(stage.database, guarded, piece, lambda _session: None, record)
    between = steady()
    for at in range(0, len(ids), _DELETED_AT_ONCE):
        stage.database[bare.collection].delete_many({"_id": {"$in": ids[at : at + _DELETED_AT_ONCE]}})
    ended = steady()
    assert not any(stage.database[copy.collection].count_documents({}) for copy in copies)
    return between - started, ended - between, len(ids)


def _call(stage: Stage, command: str, policy: Policy) -> DemoCall:
    return replace(stage.call, command=command, names=(policy.name,))


def _timed(do: Callable[[], Report]) -> tuple[dict[str, Any], float]:
    started = steady()
    (result,) = do().results
    assert result.exit_code == 0, result.error
    return result.body, steady() - started


def _best(do: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_TRIES):
        started = steady()
        do()
        seconds.append(steady() - started)
    return min(seconds)
