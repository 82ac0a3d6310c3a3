"""The acts in which something is done: load, run, restore, run again, hold, erase, drill, audit."""

from __future__ import annotations

from collections import Counter

import bson
import numpy as np
from bson.raw_bson import RawBSONDocument
from rich.filesize import decimal

from config.policies import Policy
from jobs.demo.invent import DAY, HOUR
from jobs.demo.stage import Document, Size, Stage, measurement
from jobs.output.report import Result
from jobs.verbs.asking.coverage import By, coverage
from jobs.verbs.keeping.hold import Action, hold
from jobs.verbs.proving.audit import audit
from jobs.verbs.proving.drill import drill
from jobs.verbs.returning.restore import restore
from jobs.verbs.working.erase import erase
from jobs.verbs.working.run import run

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
    for policy in stage.call.policies:
        made = stage.made[policy.name]
        with stage.call.progress.step(f"{policy.name}: load"):
            _make_collections(stage, policy)
            for name, documents in zip(policy.sources, (made.documents, made.extra), strict=False):
                stage.database[name].insert_many(map(RawBSONDocument, documents), ordered=False)
        if policy.model == "timeseries":
            made.documents = list(map(measurement, made.documents))
        same = stage.documents(policy.collection) == sorted(made.documents)
        stage.show.holds(f"{policy.collection} does not hold what was written", same)
        stage.before[policy.name] = stage.size_of(policy.sources)
        assert policy.archive is not None
        to = f"to {policy.archive.collection or 'Parquet'}"
        counts = (len(made.documents) + len(made.extra), len(made.time), len(made.series))
        rows.append([policy.name, _A_DOCUMENT_IS[policy.name], to, *counts])
        stage.call.stop.check()
    heads = ("Policy", "A document is", "After 14 days", "Documents", "Readings", "Series")
    stage.show.table(heads, rows, left=3)
    stage.show.verdict("Everything was read back as it was written")


def _make_collections(stage: Stage, policy: Policy) -> None:
    """Creates the collections with an application's indexes: by series and time, and by time."""
    if policy.model == "timeseries":
        options = {"timeField": policy.time_field, "metaField": "meta", "granularity": "minutes"}
        stage.database.create_collection(policy.collection, timeseries=options)
        return
    times = [policy.start_field, policy.end_field] if policy.model == "samples" else [policy.time_field]
    for index in ([*policy.series_fields, times[-1]], *([name] for name in times)):
        stage.database[policy.collection].create_index(list(map(str, index)))
    if policy.overflow is not None:
        stage.database[policy.overflow.collection].create_index(policy.overflow.ref_field)


def first_run(stage: Stage) -> None:
    """Runs all policies, and shows what was rolled up, archived and deleted."""
    stage.show.act(
        "bucketwise run", "Rolls up; archives what is older than 14 days; deletes what it has verified."
    )
    stage.results = stage.succeeded(run(stage.command("run"))).results
    rows, kept = list[list[object]](), ""
    for policy, result in zip(stage.call.policies, stage.results, strict=True):
        if result.error is not None:
            rows.append([policy.name, result.error])
            continue
        archived = result.body["archive"]
        _check_run(stage, policy, result.body["rollup"], archived)
        if policy.model == "timeseries":
            kept = next((it["reason"] for it in archived["reasons"]), "")
        hours, days, buckets, copied, deleted = _outcome_text(result).values()
        rows.append([policy.name, hours, days, buckets, deleted, decimal(copied)])
    stage.show.table(("Policy", "Hours written", "Days written", "Archived", "Deleted", "Bytes copied"), rows)
    stage.show.line(f"\nWhy metrics stays: {kept}.", style="dim")
    stage.show.verdict("As many as were invented went, and no others")


def _check_run(stage: Stage, policy: Policy, rolled: Document, archived: Document) -> None:
    made, expired = stage.made[policy.name], stage.expired(policy)
    assert policy.rollup is not None
    due = stage.ago(policy.rollup.settle) // HOUR * HOUR
    gone = int(expired.sum())
    deleted = 0 if policy.model == "timeseries" else gone
    stage.show.equal(f"{policy.name}: rolled up", rolled["readings"], int((made.time < due).sum()))
    wanted = {"readings": int(expired[made.bucket].sum()), "buckets": gone}
    wanted |= {"deleted": deleted, "left": gone - deleted, "quarantined": 0}
    for what, count in wanted.items():
        stage.show.equal(f"{policy.name}, archive: {what}", archived[what], count)
    live = made.select(~expired) if deleted else sorted(made.documents)
    exact = stage.documents(policy.collection) == live
    stage.show.holds(f"{policy.collection} does not hold exactly the buckets that stay", exact)


def _outcome_text(result: Result) -> dict[str, int]:
    """Returns what a run did, as text."""
    rolled, archived = result.body.get("rollup", {}), result.body.get("archive", {})
    return {
        "hours written": rolled.get("hourly", {}).get("written", 0),
        "days written": rolled.get("daily", {}).get("written", 0),
        "buckets archived": archived.get("buckets") or 0,
        "bytes copied": archived.get("bytes") or 0,
        "buckets deleted": archived.get("deleted") or 0,
    }


def space(stage: Stage) -> None:
    """Shows how much space everything takes, before and after."""
    stage.show.act(
        "What it takes up",
        "Disk and indexes are the blocks in use; what a delete frees in a file waits there for new data.",
    )
    rows: list[list[object]] = []
    for policy, result in zip(stage.call.policies, stage.results, strict=True):
        before, after = stage.before[policy.name], stage.size_of(policy.sources)
        archived = _archived(stage, policy, result)
        rows.append([policy.name, *_change(before, after), decimal(archived)])
        sizes = {"before": before._asdict(), "after": after._asdict(), "archive_bytes": archived}
        stage.sizes.append({"policy": policy.name, **sizes})
    rollups = [policy.rollup for policy in stage.call.policies if policy.rollup]
    rows.append([])
    summaries = [str(name) for it in rollups for name in (it.hourly, it.daily)]
    for name, collections in {"summaries": summaries, "iot_archive": ["iot_archive"]}.items():
        rows.append([name, *_change(Size(), stage.size_of(collections)), ""])
    stage.show.table(("Collection", "Documents", "Data", "Disk", "Indexes", "Archive"), rows)
    stage.show.verdict("The archives hold exactly what left")


def _change(before: Size, after: Size) -> list[str]:
    """Returns the cells of a row: each figure before and after."""
    sizes = (f"{decimal(one)} → {decimal(two)}" for one, two in zip(before[1:], after[1:], strict=True))
    return [f"{before.documents:,} → {after.documents:,}", *sizes]


def _archived(stage: Stage, policy: Policy, result: Result) -> int:
    """Returns the bytes in the archive."""
    assert policy.archive is not None
    if policy.archive.to == "offline":
        files = {it: held for it, (held, _) in stage.files().items() if it.startswith(f"{policy.name}/")}
        parquet = sum(held for it, held in files.items() if it.endswith(".parquet"))
        stage.show.equal(f"{policy.name}: bytes of Parquet", parquet, _outcome_text(result)["bytes copied"])
        return parquet
    held = stage.documents(str(policy.archive.collection))
    gone = stage.made[policy.name].select(stage.expired(policy))
    stage.show.holds(f"{policy.archive.collection} differs from what left", held == gone)
    return sum(map(len, held))


def restore_day(stage: Stage) -> None:
    """Restores the last archived day of each policy, and compares the buckets with the originals."""
    stage.show.act("bucketwise restore", "The last archived day of each policy, into a new collection.")
    rows = [_restore_day(stage, policy) for policy in stage.call.policies]
    stage.show.table(("Policy", "Into", "Day", "Buckets", "Readings", "Equal"), rows, left=3)
    about = "\nBytes are compared; for native measurements fields are: MongoDB changes their order."
    stage.show.line(about, style="dim")
    stage.show.verdict("What came back is what was written")


def _restore_day(stage: Stage, policy: Policy) -> list[object]:
    made, expired, to = stage.made[policy.name], stage.expired(policy), f"{policy.name}_restored"
    assert policy.archive is not None
    day = made.time // DAY
    archived = expired[made.bucket] & (day < stage.ago(policy.archive.after) // DAY)
    last = int(day[archived].max())
    chosen = np.isin(np.arange(len(expired)), made.bucket[archived & (day == last)])
    since, until = (f"{np.datetime64(it * DAY, 'ms')}Z" for it in (last, last + 1))
    report = stage.succeeded(restore(stage.command("restore", policy.name), to=to, since=since, until=until))
    wanted, held = made.select(chosen), stage.documents(to)
    counts = [report.results[0].body.get(key) for key in ("buckets", "readings")]
    stage.show.equal(f"{to}: buckets and readings", counts, [len(wanted), int(chosen[made.bucket].sum())])
    stage.show.holds(f"{to} holds other bytes than were written", held == wanted)
    if policy.overflow is not None:
        # Overflow goes back into the policy's own collection, where the overflow of live buckets is.
        owners = {bson.decode(document)["_id"] for document in made.select(chosen | ~expired)}
        extra = [it for it in made.extra if bson.decode(it)["bucket_id"] in owners]
        same = stage.documents(policy.overflow.collection) == sorted(extra)
        stage.show.holds(f"{policy.overflow.collection} holds other bytes", same)
    equal = f"{len(set(held) & set(wanted)):,} of {len(wanted):,}"
    return [policy.name, to, since[:10], *counts, equal]


def second_run(stage: Stage) -> None:
    """Runs all policies again, and shows that nothing changes."""
    stage.show.act("bucketwise run, once more", "What is done is done: the same command finds nothing to do.")
    before = _state(stage)
    results = stage.succeeded(run(stage.command("run"))).results
    total = {what: sum(_outcome_text(it)[what] for it in results) for what in _outcome_text(results[0])}
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
    return named | stage.files()


_POLICY, _SYMBOL, _HOLD = "ticks", "ACME", "case-17"
_SERIES = [f"symbol={_SYMBOL}"]
_WHY = "A customer has asked for it."
#: More days than the demo has.
_ALL_DAYS = 100
_LETTERS = {"live": "L", "archived": "A", "both": "B", "gap": "·"}


def evidence(stage: Stage) -> None:
    """Covers, holds and erases one series, then drills, and shows what each did."""
    stage.show.act(
        "bucketwise coverage, hold, erase, drill",
        "Where each day of ACME is; a hold on it; its erasure; and a drill of the rest.",
    )
    made, show = stage.made[_POLICY], stage.show
    expired = stage.expired(stage.call.settings.policies[_POLICY])
    is_erased = [bson.decode(it)["symbol"] == _SYMBOL for it in made.documents]
    _cover(stage, int((made.of == 0).sum()))

    stage.succeeded(
        hold(stage.command("hold", _POLICY), Action.add, _HOLD, series=_SERIES, reason="Litigation")
    )
    show.line(f"hold      {_HOLD} is placed on {_SERIES[0]}")
    refused = _erased(stage, _POLICY)
    show.equal("the erasure of what is held: exit code", refused.exit_code, 2)
    show.holds("the refusal does not name the hold", _HOLD in (refused.error or ""))
    show.line(f"erase     is refused: {_HOLD} stands")
    stage.succeeded(hold(stage.command("hold", _POLICY), Action.release, _HOLD))
    show.line(f"hold      {_HOLD} is released")

    planned, done = _erased(stage, None), _erased(stage, _POLICY)
    for what, result in {"would be": planned, "were": done}.items():
        show.equal(f"{_SYMBOL}: buckets that {what} erased", result.body["buckets"], sum(is_erased))
        show.equal(f"{_SYMBOL}: erase, exit code", result.exit_code, 0)
    body = done.body
    went = f"{body['buckets']:,} buckets and {body['summaries']:,} summaries are gone"
    show.line(f"erase     {went}, {body['commits_rewritten']} commit was rewritten without them")
    same = stage.documents(_POLICY) == made.select(~expired & ~np.array(is_erased))
    show.holds(f"{_POLICY} does not hold exactly the other series", same)

    report = stage.succeeded(drill(stage.command("drill", _POLICY), days=_ALL_DAYS, seed=1))
    body = report.results[0].body
    others = int((expired & ~np.array(is_erased)).sum())
    show.equal("drill: buckets, and equal ones", (body["buckets"], body["equal"]), (others, others))
    show.line(f"drill     {body['equal']:,} of {body['buckets']:,} buckets came back byte for byte")
    stage.show.verdict("ACME is gone from everywhere, and all others are as they were")


def _cover(stage: Stage, readings: int) -> None:
    report = stage.succeeded(coverage(stage.command("coverage", _POLICY), series=_SERIES, by=By.day))
    days = report.results[0].body["days"]
    strip = "".join(_LETTERS[day["state"]] for day in days)
    stage.show.line(f"{days[0]['day']}  {strip}  {days[-1]['day']}")
    stage.show.equal("coverage: readings of the series", sum(day["readings"] for day in days), readings)
    states = Counter(day["state"] for day in days)
    counts = ", ".join(f"{count} days {state}" for state, count in states.items())
    stage.show.line(f"coverage  {counts}: {readings:,} readings")


def _erased(stage: Stage, confirm: str | None) -> Result:
    report = erase(stage.command("erase", _POLICY), reason=_WHY, series=_SERIES, confirm=confirm)
    return report.results[0]


def audited(stage: Stage) -> None:
    """Audits all policies, and shows that there are no findings."""
    stage.show.act(
        "bucketwise audit", "Re-reads every part, recomputes every summary, looks for what is overdue."
    )
    report = stage.succeeded(audit(stage.command("audit"), html=stage.folder / "audit.html"))
    findings = [it for result in report.results for it in result.body.get("findings", [])]
    for it in findings:
        stage.show.line(f"{it['severity']}: {it['policy']}, {it['place']}: {it['message']}")
    stage.show.equal("findings of the audit", len(findings), 0)
    stage.show.line(f"{len(report.results)} policies, {len(findings) or 'no'} findings.")
    stage.show.verdict("Every policy is kept")
