"""The acts of `bucketwise demo` in their order. Each checks every number that it shows."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import date
from functools import reduce
from operator import getitem
from typing import Any

import bson
import numpy as np
from bson.raw_bson import RawBSONDocument
from rich.filesize import decimal

from bucketwise.buckets.models import model_of
from bucketwise.jobs.audit.verb import audit
from bucketwise.jobs.coverage import coverage, strip
from bucketwise.jobs.demo.stage import (
    DAY,
    HOUR,
    NONE,
    SECOND,
    Case,
    Document,
    Integers,
    Size,
    Stage,
    days,
    difference_of,
    hours,
    measurement,
    windows,
)
from bucketwise.jobs.drill import drill
from bucketwise.jobs.erase.verb import erase
from bucketwise.jobs.hold.verb import hold
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.restore.verb import restore
from bucketwise.jobs.run.verb import run

_A_DOCUMENT_IS = {
    "ticks": "a minute, its seconds as keys",
    "iot": "an array of 200 samples",
    "temperature": "a reading",
    "metrics": "native time series",
    "sales": "an hour, with overflow",
}


def load(stage: Stage) -> None:
    """Writes the readings into MongoDB as an application would have written them."""
    stage.show.act("Load", "28 days of invented readings, in each way in which readings lie in MongoDB.")
    # By default mongod keeps deleted data for five more minutes, for snapshot reads.
    stage.database.client.admin.command({"setParameter": 1, "minSnapshotHistoryWindowInSeconds": 0})
    rows = []
    for it in stage.cases.values():
        policy, made = it.policy, it.made
        _make_collections(stage, it)
        for name, documents in zip(policy.sources, (made.documents, made.extra), strict=False):
            stage.database[name].insert_many(map(RawBSONDocument, documents), ordered=False)
        if not model_of(policy).keeps_ids_unique:
            made.documents = list(map(measurement, made.documents))
        stage.holds(policy.collection, made.documents)
        it.before = stage.size_of(policy.sources)
        counts = (len(made.documents) + len(made.extra), len(made.time), len(made.series))
        to = f"to {it.archive.collection or 'Parquet'}"
        rows.append([policy.name, _A_DOCUMENT_IS[policy.name], to, *counts])
    heads = ("Policy", "A document is", "After 14 days", "Documents", "Readings", "Series")
    stage.show.table(heads, rows, left=3)
    stage.show.verdict("Everything was read back as it was written")


def _make_collections(stage: Stage, case: Case) -> None:
    """Creates the collections with an application's indexes: by series and time, and by time."""
    policy, model = case.policy, model_of(case.policy)
    if options := model.made_with("minutes"):
        stage.database.create_collection(policy.collection, **options)
        return
    for index in model.indexes:
        stage.database[policy.collection].create_index(index)
    if policy.overflow is not None:
        stage.database[policy.overflow.collection].create_index(policy.overflow.ref_field)


def first_run(stage: Stage) -> None:
    """Runs all policies, and shows what was rolled up, archived and deleted."""
    about = "Rolls up; archives what is older than 14 days; deletes what it has verified."
    stage.show.act("bucketwise run", about)
    rows, kept = [], ""
    for it, result in zip(stage.cases.values(), stage.do(run), strict=True):
        it.result = result
        _check_run(stage, it)
        kept = next((one["reason"] for one in result.body["archive"]["reasons"]), kept)
        hours_written, days_written, buckets, copied, deleted = _outcome(result).values()
        rows.append([it.policy.name, hours_written, days_written, buckets, deleted, decimal(copied)])
    stage.show.table(("Policy", "Hours written", "Days written", "Archived", "Deleted", "Bytes copied"), rows)
    stage.show.line(f"\nWhy metrics stays: {kept}.", style="dim")
    stage.show.verdict("As many as were invented went, and no others")


def _check_run(stage: Stage, case: Case) -> None:
    name, made, expired, body = case.policy.name, case.made, case.expired, case.result.body
    gone = int(expired.sum())
    deleted = gone if model_of(case.policy).can_delete else 0
    readings = int((made.time < case.due // HOUR * HOUR).sum())
    stage.show.equal(f"{name}: rolled up", body["rollup"]["readings"], readings)
    wanted = {"readings": int(expired[made.bucket].sum()), "buckets": gone}
    wanted |= {"deleted": deleted, "left": gone - deleted, "quarantined": 0}
    for what, count in wanted.items():
        stage.show.equal(f"{name}, archive: {what}", body["archive"][what], count)
    stage.holds(case.policy.collection, made.select(~expired) if deleted else made.documents)


_COUNTS = {
    "hours written": ("rollup", "hourly", "written"),
    "days written": ("rollup", "daily", "written"),
    "buckets archived": ("archive", "buckets"),
    "bytes copied": ("archive", "bytes"),
    "buckets deleted": ("archive", "deleted"),
}


def _outcome(result: Result) -> dict[str, int]:
    """Returns what a run did."""
    body: Any = result.body
    return {what: reduce(getitem, path, body) for what, path in _COUNTS.items()}


def space(stage: Stage) -> None:
    """Shows how much space everything takes, before and after."""
    about = "Disk and indexes are the blocks in use; what a delete frees in a file waits there for new data."
    stage.show.act("What it takes up", about)
    rows: list[list[object]] = []
    for it in stage.cases.values():
        it.after, it.archived = stage.size_of(it.policy.sources), _archived(stage, it)
        rows.append([it.policy.name, *_change(it.before, it.after), decimal(it.archived)])
    rows.append([])
    summaries = [target for it in stage.cases.values() for target in it.rollup.targets.values()]
    for name, collections in {"summaries": summaries, "iot_archive": ["iot_archive"]}.items():
        rows.append([name, *_change(NONE, stage.size_of(collections)), ""])
    stage.show.table(("Collection", "Documents", "Data", "Disk", "Indexes", "Archive"), rows)
    stage.show.verdict("The archives hold exactly what left")


def _change(before: Size, after: Size) -> list[str]:
    """Returns the cells of a row: each figure before and after."""
    sizes = (f"{decimal(one)} → {decimal(two)}" for one, two in zip(before[1:], after[1:], strict=True))
    return [f"{before.documents:,} → {after.documents:,}", *sizes]


def _archived(stage: Stage, case: Case) -> int:
    """Returns the bytes in the archive."""
    if case.archive.collection is not None:
        gone = case.made.select(case.expired)
        stage.holds(case.archive.collection, gone)
        return sum(map(len, gone))
    files = (stage.folder / "store" / case.policy.name).rglob("*.parquet")
    held = sum(it.stat().st_size for it in files)
    stage.show.equal(f"{case.policy.name}: bytes of Parquet", held, _outcome(case.result)["bytes copied"])
    return held


def summaries(stage: Stage) -> None:
    """Compares each summary with the readings that it stands for, and shows the last hours of trading."""
    about = "A document an hour and series, and one a day, in the policy's own time zone."
    stage.show.act("Summaries", about)
    for it in stage.cases.values():
        edges = {"hourly": hours(it.made), "daily": days(it.made, it.rollup.timezone)}
        for level, collection in it.rollup.targets.items():
            _compare(stage, it, collection, edges[level])
    figures = ("first", "max", "min", "last", "avg")
    rows = []
    for hour in stage.database["ticks_hourly"].find({"symbol": "ACME"}).sort("start", -1).limit(5):
        prices = [f"{hour['p'][key]:.2f}" for key in figures]
        rows.append([f"ACME  {hour['start']:%a %d %b  %H:%M}", hour["count"], *prices])
    stage.show.table(("ticks_hourly", "Readings", *map(str.capitalize, figures)), rows[::-1])
    stage.show.verdict("Each summary equals its readings, summed up in plain Python")


def _compare(stage: Stage, case: Case, collection: str, edges: Integers) -> None:
    made, held, expected = case.made, {}, set()
    for summary in stage.database[collection].find():
        series = (reduce(getitem, it.split("."), summary["_id"]["series"]) for it in case.policy.series_names)
        held[*series, int(summary["start"].timestamp()) * SECOND] = summary
    for it in windows(made, edges, case.due):
        key = (*made.series[it.series].values(), it.start)
        expected.add(key)
        fault = difference_of(it, held[key][it.field]) if key in held else "it is missing"
        stage.show.holds(f"{collection}, {key}, {it.field}: {fault}", fault is None)
    stage.show.equal(f"summaries in {collection}", len(held), len(expected))


_SQL = """\
SELECT date_trunc('week', dt)::DATE AS week, symbol, count(*) AS readings,
       arg_min(p, time) AS first, max(p) AS high,
       min(p) AS low, arg_max(p, time) AS last
FROM read_parquet('{files}', hive_partitioning = true)
GROUP BY ALL ORDER BY ALL"""


def query(stage: Stage) -> None:
    """Queries the archive in DuckDB, as anything that reads Parquet can."""
    about = "Nothing of bucketwise takes part: DuckDB reads the files where they lie."
    stage.show.act("A query on the archive", about)
    import duckdb

    files = "store/ticks/data/**/*.parquet"
    stage.show.line("\n" + _SQL.format(files=files))
    with duckdb.connect() as connection:
        found = connection.execute(_SQL.format(files=f"{stage.folder}/{files}".replace("'", "''"))).fetchall()
    stage.show.equal("DuckDB's answer", found, _weeks(stage.cases["ticks"]))
    heads = ("week", "symbol", "readings", "first", "high", "low", "last")
    stage.show.table(heads, [[*it[:3], *(f"{price:.2f}" for price in it[3:])] for it in found], left=2)
    stage.show.verdict("The answer equals the readings that were invented")


def _weeks(case: Case) -> list[tuple[object, ...]]:
    made, prices = case.made, defaultdict[tuple[date, str], list[float]](list)
    order = np.argsort(made.time)
    order = order[case.expired[made.bucket[order]]]
    columns = (made.time // DAY, made.of, made.values["p"])
    for day, of, price in zip(*(it[order].tolist() for it in columns), strict=True):
        monday = date.fromordinal(date(1970, 1, 1).toordinal() + day - (day + 3) % 7)  # it was a Thursday
        prices[monday, made.series[of]["symbol"]].append(price)
    return [(*key, len(it), it[0], max(it), min(it), it[-1]) for key, it in sorted(prices.items())]


def restore_day(stage: Stage) -> None:
    """Restores the last archived day of each policy, and compares the buckets with the originals."""
    stage.show.act("bucketwise restore", "The last archived day of each policy, into a new collection.")
    rows = [_restore_day(stage, it) for it in stage.cases.values()]
    stage.show.table(("Policy", "Into", "Day", "Buckets", "Readings", "Equal"), rows, left=3)
    about = "\nBytes are compared; for native measurements fields are: MongoDB changes their order."
    stage.show.line(about, style="dim")
    stage.show.verdict("What came back is what was written")


def _restore_day(stage: Stage, case: Case) -> list[object]:
    policy, made, to = case.policy, case.made, f"{case.policy.name}_restored"
    day = made.time // DAY
    archived = case.expired[made.bucket] & (day < case.cutoff // DAY)
    last = int(day[archived].max())
    chosen = np.isin(np.arange(len(case.expired)), made.bucket[archived & (day == last)])
    since, until = (f"{np.datetime64(it * DAY, 'ms')}Z" for it in (last, last + 1))
    (result,) = stage.do(restore, policy.name, to=to, since=since, until=until)
    wanted = made.select(chosen)
    counts = [result.body.get(key) for key in ("buckets", "readings")]
    stage.show.equal(f"{to}: buckets and readings", counts, [len(wanted), int(chosen[made.bucket].sum())])
    stage.holds(to, wanted)
    if policy.overflow is not None:
        # Overflow goes back into the policy's own collection, where the overflow of live buckets is.
        owners = {bson.decode(document)["_id"] for document in made.select(chosen | ~case.expired)}
        extra = (it for it in made.extra if bson.decode(it)["bucket_id"] in owners)
        stage.holds(policy.overflow.collection, extra)
    equal = f"{len(set(stage.documents(to)) & set(wanted)):,} of {len(wanted):,}"
    return [policy.name, to, since[:10], *counts, equal]


def second_run(stage: Stage) -> None:
    """Runs all policies again, and shows that nothing changes."""
    stage.show.act("bucketwise run, once more", "What is done is done: the same command finds nothing to do.")
    before = _state(stage)
    total: Counter[str] = Counter()
    for result in stage.do(run):
        total.update(_outcome(result))
    after = _state(stage)
    for what, count in total.items():
        stage.show.equal(f"second run: {what}", count, 0)
    for what in before | after:
        stage.show.equal(f"{what} after the second run", after.get(what), before.get(what))
    stage.show.line(", ".join(f"{count:,} {what}" for what, count in total.items()) + ";")
    changed = sum(before.get(what) != after.get(what) for what in before | after)
    stage.show.line(f"{changed} of {len(before)} collections and files are not what they were.")
    stage.show.verdict("Nothing changed, to the byte")


def _state(stage: Stage) -> Document:
    """Returns a digest of every collection that isn't bookkeeping, and size and time of every file of the
    store."""
    collections = stage.database.command("dbHash")["collections"]
    named = {name: digest for name, digest in collections.items() if not name.startswith("bucketwise_")}
    stats = {str(it): it.stat() for it in (stage.folder / "store").rglob("*") if it.is_file()}
    return named | {name: (it.st_size, it.st_mtime_ns) for name, it in stats.items()}


_SERIES, _HOLD = ["symbol=ACME"], "case-17"
_ERASURE: Document = {"series": _SERIES, "reason": "A customer has asked for it."}


def evidence(stage: Stage) -> None:
    """Covers, holds and erases one series, then drills, and shows what each did."""
    about = "Where each day of ACME is; a hold on it; its erasure; and a drill of the rest."
    stage.show.act("bucketwise coverage, hold, erase, drill", about)
    show, case = stage.show, stage.cases["ticks"]
    is_erased = np.array([bson.decode(it)["symbol"] == "ACME" for it in case.made.documents])
    (result,) = stage.do(coverage, "ticks", series=_SERIES)
    states, readings = Counter(result.body["states"]), int((case.made.of == 0).sum())
    for line in strip(result.body["days"]):
        show.line(line.plain)
    found = sum(day["readings"] for day in result.body["days"])
    show.equal("coverage: readings of the series", found, readings)
    counts = ", ".join(f"{count} days {state}" for state, count in states.items())
    show.line(f"coverage  {counts}: {readings:,} readings")

    stage.do(hold, "ticks", action="add", name=_HOLD, series=_SERIES, reason="Litigation")
    show.line(f"hold      {_HOLD} is placed on {_SERIES[0]}")
    (refused,) = stage.do(erase, "ticks", code=2, confirm="ticks", **_ERASURE)
    show.holds("the refusal does not name the hold", _HOLD in (refused.error or ""))
    show.line(f"erase     is refused: {_HOLD} stands")
    stage.do(hold, "ticks", action="release", name=_HOLD)
    show.line(f"hold      {_HOLD} is released")

    for confirm in (None, "ticks"):  # first without: it shows what would go
        (result,) = stage.do(erase, "ticks", confirm=confirm, **_ERASURE)
        show.equal(f"ACME, erase --confirm {confirm}: buckets", result.body["buckets"], int(is_erased.sum()))
    body = result.body
    went = f"{body['buckets']:,} buckets and {body['summaries']:,} summaries are gone"
    show.line(f"erase     {went}, {body['commits_rewritten']} commit was rewritten without them")
    stage.holds("ticks", case.made.select(~case.expired & ~is_erased))

    (result,) = stage.do(drill, "ticks", days=100, seed=1)  # more days than the demo has
    drilled, equal = (result.body[key] for key in ("buckets", "equal"))
    others = int((case.expired & ~is_erased).sum())
    show.equal("drill: buckets, and equal ones", (drilled, equal), (others, others))
    show.line(f"drill     {equal:,} of {drilled:,} buckets came back byte for byte")
    show.verdict("ACME is gone from everywhere, and all others are as they were")


def audited(stage: Stage) -> None:
    """Audits all policies, and shows that there are no findings."""
    about = "Re-reads every part, recomputes every summary, looks for what is overdue."
    stage.show.act("bucketwise audit", about)
    results = stage.do(audit, html=stage.folder / "audit.html")
    findings = [it for result in results for it in result.body.get("findings", [])]
    stage.show.equal("findings of the audit", findings, [])
    stage.show.line(f"{len(results)} policies, no findings.")
    stage.show.verdict("Every policy is kept")


ACTS = (load, first_run, space, summaries, query, restore_day, second_run, evidence, audited)
