"""The acts of the cycle: readings come, are rolled up and archived; how much space all takes; the audit."""

from __future__ import annotations

import hashlib
from typing import Any

from bson.raw_bson import RawBSONDocument

from config.policies import Policy
from jobs.demo.invent import DAYS, HOUR
from jobs.demo.show import change, number, size
from jobs.demo.stage import Size, Stage, measurement
from jobs.output.report import Result
from jobs.verbs.proving.audit import audit
from jobs.verbs.working.run import run

_AT_ONCE = 5_000
Body = dict[str, Any]


def load(stage: Stage) -> None:
    """Writes the readings into MongoDB as an application would have written them."""
    stage.show.act("Load", f"{DAYS} days of invented readings, in each way in which readings lie in MongoDB.")
    # By default mongod keeps deleted data for five more minutes, for snapshot reads.
    stage.database.client.admin.command({"setParameter": 1, "minSnapshotHistoryWindowInSeconds": 0})
    rows = []
    for policy in stage.policies:
        made = stage.made[policy.name]
        with stage.call.progress.step(f"{policy.name}: load"):
            _make_collections(stage, policy)
            for name, documents in zip(policy.sources, (made.documents, made.extra), strict=False):
                for at in range(0, len(documents), _AT_ONCE):
                    part = [RawBSONDocument(document) for document in documents[at : at + _AT_ONCE]]
                    stage.database[name].insert_many(part, ordered=False)
                    stage.call.progress("documents", len(part))
        if policy.model == "timeseries":
            made.documents = list(map(measurement, made.documents))
        same = sorted(stage.documents(policy.collection)) == sorted(made.documents)
        stage.show.holds(f"{policy.collection} does not hold what was written", same)
        stage.before[policy.name] = stage.size_of(policy.sources)
        counts = (len(made.documents) + len(made.extra), len(made.time), len(made.series))
        rows.append([policy.name, *_described(policy), *map(number, counts)])
        stage.call.stop.check()
    heads = ("Policy", "A document is", "After 14 days", "Documents", "Readings", "Series")
    stage.show.table(heads, rows, left=3)
    stage.show.verdict("Everything was read back as it was written")


def _make_collections(stage: Stage, policy: Policy) -> None:
    """Creates the collections with an application's indexes: by series and time, and by time."""
    collection = stage.database[policy.collection]
    if policy.model == "timeseries":
        options = {"timeField": policy.time_field, "metaField": "meta", "granularity": "minutes"}
        stage.database.create_collection(policy.collection, timeseries=options)
        return
    times = [policy.start_field, policy.end_field] if policy.model == "samples" else [policy.time_field]
    collection.create_index([*((name, 1) for name in policy.series_fields), (str(times[-1]), 1)])
    for name in times:
        collection.create_index(str(name))
    if policy.overflow is not None:
        stage.database[policy.overflow.collection].create_index(policy.overflow.ref_field)


def _described(policy: Policy) -> tuple[str, str]:
    """Returns what a document is, and where it goes."""
    assert policy.archive is not None
    shapes = {
        "slots": "a minute, its seconds as keys",
        "reading": "a reading",
        "timeseries": "native time series",
        "samples": "an hour, with overflow" if policy.overflow else "an array of 200 samples",
    }
    to = f"to {policy.archive.collection}" if policy.archive.to == "online" else "to Parquet"
    return shapes[policy.model], to


def first_run(stage: Stage) -> None:
    """Runs all policies, and shows what was rolled up, archived and deleted."""
    about = "Rolls up; archives what is older than 14 days; deletes what it has verified."
    stage.show.act("bucketwise run", about)
    report = run(stage.command("run"))
    stage.results = report.results
    stage.succeeded(report)
    rows, kept = [], ""
    for policy, result in zip(stage.policies, stage.results, strict=True):
        if result.error is not None:
            rows.append([policy.name, result.error])
            continue
        archived = result.body["archive"]
        _check_run(stage, policy, result.body["rollup"], archived)
        if policy.model == "timeseries":
            kept = next((it["reason"] for it in archived["reasons"]), "")
        hours, days, buckets, copied, deleted = _did(result).values()
        rows.append(
            [policy.name, *(number(it or 0) for it in (hours, days, buckets, deleted)), size(copied or 0)]
        )
    stage.show.table(("Policy", "Hours written", "Days written", "Archived", "Deleted", "Bytes copied"), rows)
    if kept:
        stage.show.blank()
        stage.show.line(f"Why metrics stays: {kept}.", style="dim")
    stage.show.verdict("As many as were invented went, and no others")


def _check_run(stage: Stage, policy: Policy, rolled: Body, archived: Body) -> None:
    made, expired, name = stage.made[policy.name], stage.expired(policy), policy.name
    assert policy.rollup is not None
    due = stage.ago(policy.rollup.settle) // HOUR * HOUR
    gone = int(expired.sum())
    deleted = 0 if policy.model == "timeseries" else gone
    stage.show.equal(f"{name}: readings rolled up", rolled["readings"], int((made.time < due).sum()))
    stage.show.equal(f"{name}: readings archived", archived["readings"], int(expired[made.bucket].sum()))
    wanted = {"buckets": gone, "deleted": deleted, "left": gone - deleted, "quarantined": 0}
    for what, count in wanted.items():
        stage.show.equal(f"{name}, archive: {what}", archived[what], count)
    live = made.some(~expired) if deleted else made.documents
    exact = sorted(stage.documents(policy.collection)) == sorted(live)
    stage.show.holds(f"{policy.collection} does not hold exactly the buckets that stay", exact)


def space(stage: Stage) -> None:
    """Shows how much space everything takes, before and after."""
    about = "Disk and indexes are the blocks in use; what a delete frees in a file waits there for new data."
    stage.show.act("What it takes up", about)
    rows: list[list[str]] = []
    for policy, result in zip(stage.policies, stage.results, strict=True):
        before, after = stage.before[policy.name], stage.size_of(policy.sources)
        archived, shown = _archived(stage, policy, result.body.get("archive", {}))
        rows.append([policy.name, *change(before, after), shown])
        sizes = {"before": before._asdict(), "after": after._asdict(), "archive_bytes": archived}
        stage.sizes.append({"policy": policy.name, **sizes})
    rollups = [policy.rollup for policy in stage.policies if policy.rollup]
    new = {"summaries": [str(name) for it in rollups for name in (it.hourly, it.daily)]}
    rows.append([])
    for name, collections in (new | {"iot_archive": ["iot_archive"]}).items():
        rows.append([name, *change(Size(), stage.size_of(collections)), ""])
    stage.show.table(("Collection", "Documents", "Data", "Disk", "Indexes", "Parquet"), rows)
    stage.show.verdict("The archives hold exactly what left")


def _archived(stage: Stage, policy: Policy, body: Body) -> tuple[int, str]:
    """Returns the bytes in the archive, and how to show them."""
    assert policy.archive is not None
    if policy.archive.to == "offline":
        files = {
            name: held for name, (held, _) in stage.files().items() if name.startswith(f"{policy.name}/")
        }
        parquet = sum(held for name, held in files.items() if name.endswith(".parquet"))
        stage.show.equal(f"{policy.name}: bytes of Parquet", parquet, body.get("bytes"))
        return parquet, size(parquet)
    held = stage.documents(str(policy.archive.collection))
    gone = stage.made[policy.name].some(stage.expired(policy))
    stage.show.holds(f"{policy.archive.collection} differs from what left", sorted(held) == sorted(gone))
    return sum(map(len, held)), ""


def second_run(stage: Stage) -> None:
    """Runs all policies again, and shows that nothing changes."""
    stage.show.act("bucketwise run, once more", "What is done is done: the same command finds nothing to do.")
    before = _state(stage)
    report = run(stage.command("run"))
    stage.succeeded(report)
    did = [_did(result) for result in report.results]
    for result, counts in zip(report.results, did, strict=True):
        stage.show.equal(f"second run, policy {result.policy}: done", counts, dict.fromkeys(counts, 0))
    after = _state(stage)
    for what, digest in before.items():
        stage.show.equal(f"{what} after the second run", after.get(what), digest)
    stage.show.equal("collections and files after the second run", len(after), len(before))
    total = {what: sum(counts[what] or 0 for counts in did) for what in did[0]}
    changed = sum(before[what] != after.get(what) for what in before)
    stage.show.line(", ".join(f"{number(count)} {what}" for what, count in total.items()) + ";")
    stage.show.line(f"{changed} of {len(before)} collections and files are not what they were.")
    stage.show.verdict("Nothing changed, to the byte")


def _did(result: Result) -> dict[str, int | None]:
    """Returns what a run says it did; None where it says nothing."""
    rolled, archived = result.body.get("rollup", {}), result.body.get("archive", {})
    return {
        "hours written": rolled.get("hourly", {}).get("written"),
        "days written": rolled.get("daily", {}).get("written"),
        "buckets archived": archived.get("buckets"),
        "bytes copied": archived.get("bytes"),
        "buckets deleted": archived.get("deleted"),
    }


def _state(stage: Stage) -> dict[str, object]:
    """Returns a digest of every collection that isn't bookkeeping, and size and time of every file of the
    store."""
    state: dict[str, object] = dict(stage.files())
    for name in stage.database.list_collection_names():
        if not name.startswith(("system.", "bucketwise_")):
            documents = sorted(stage.documents(name))
            state[f"the collection {name}"] = hashlib.sha256(b"".join(documents)).hexdigest()
    return state


def audited(stage: Stage) -> None:
    """Audits all policies, and shows that there are no findings."""
    about = "Re-reads every part, recomputes every summary, looks for what is overdue."
    stage.show.act("bucketwise audit", about)
    report = audit(stage.command("audit"), html=stage.place.page)
    stage.succeeded(report)
    findings = [it for result in report.results for it in result.body.get("findings", [])]
    for it in findings:
        stage.show.line(f"{it['severity']}: {it['policy']}, {it['place']}: {it['message']}")
    stage.show.equal("findings of the audit", len(findings), 0)
    if not findings:
        stage.show.line(f"{len(report.results)} policies, no findings.")
    stage.show.verdict("Every policy is kept")
