"""The first act: the readings go into MongoDB as an application would have written them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bson.raw_bson import RawBSONDocument

from config.policies import Policy
from jobs.demo.invent import DAYS, Invented
from jobs.demo.show import number
from jobs.demo.sizes import forget_history, size_of
from jobs.demo.stage import Stage, measurement

_AT_ONCE = 5_000


def load(stage: Stage) -> None:
    stage.show.act("Load", f"{DAYS} days of invented readings, in each way in which readings lie in MongoDB.")
    forget_history(stage.database)
    progress, rows = stage.call.progress, []
    for policy in stage.policies:
        made = stage.made[policy.name]
        with progress.step(f"{policy.name}: load"):
            _make_collections(stage, policy)
            for part in _parts(made.documents):
                stage.database[policy.collection].insert_many(part, ordered=False)
                progress("documents", len(part))
            if policy.overflow is not None:
                for part in _parts(made.extra):
                    stage.database[policy.overflow.collection].insert_many(part, ordered=False)
        _compare(stage, policy, made)
        stage.before[policy.name] = size_of(stage.database, stage.collections(policy))
        rows.append(_row(policy, made))
        stage.call.stop.check()
    stage.show.table(
        ("Policy", "A document is", "After 14 days", "Documents", "Readings", "Series"), rows, left=3
    )
    stage.show.verdict("Everything was read back as it was written")


def _make_collections(stage: Stage, policy: Policy) -> None:
    """With the indexes that an application has: by series and time, and by time."""
    if policy.model == "timeseries":
        options = {"timeField": policy.time_field, "metaField": "meta", "granularity": "minutes"}
        stage.database.create_collection(policy.collection, timeseries=options)
        return
    times = [policy.start_field, policy.end_field] if policy.model == "samples" else [policy.time_field]
    collection = stage.database[policy.collection]
    collection.create_index([*((name, 1) for name in policy.series_fields), (str(times[-1]), 1)])
    for name in times:
        collection.create_index(str(name))
    if policy.overflow is not None:
        stage.database[policy.overflow.collection].create_index(policy.overflow.ref_field)


def _parts(documents: Sequence[bytes]) -> Iterator[list[RawBSONDocument]]:
    for at in range(0, len(documents), _AT_ONCE):
        yield [RawBSONDocument(document) for document in documents[at : at + _AT_ONCE]]


def _compare(stage: Stage, policy: Policy, made: Invented) -> None:
    if policy.model == "timeseries":
        made.documents = [measurement(document) for document in made.documents]
    same = sorted(stage.documents(policy.collection)) == sorted(made.documents)
    stage.checks.holds(f"{policy.collection} does not hold what was written", same)


def _row(policy: Policy, made: Invented) -> list[str]:
    assert policy.archive is not None
    then = f"to {policy.archive.collection}" if policy.archive.to == "online" else "to Parquet"
    shapes = {
        "slots": "a minute, its seconds as keys",
        "reading": "a reading",
        "timeseries": "native time series",
        "samples": "an hour, with overflow" if policy.overflow else "an array of 200 samples",
    }
    counts = (len(made.documents) + len(made.extra), len(made.time), len(made.series))
    return [policy.name, shapes[policy.model], then, *map(number, counts)]
