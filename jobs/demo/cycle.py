"""The acts in which bucketwise itself works: the cycle, the same again, and the audit."""

from __future__ import annotations

import hashlib
from typing import Any

from config.policies import Policy
from jobs.demo.invent import HOUR, SECOND
from jobs.demo.show import number, size
from jobs.demo.sizes import listing
from jobs.demo.stage import Stage
from jobs.output.report import Result
from jobs.verbs.audit import audit
from jobs.verbs.run import run

Body = dict[str, Any]


def first_run(stage: Stage) -> None:
    stage.show.act(
        "bucketwise run", "Rolls up; archives what is older than 14 days; deletes what it has verified."
    )
    report = run(stage.command("run"))
    stage.results = report.results
    stage.succeeded(report)
    rows, kept = [], ""
    for policy, result in zip(stage.policies, stage.results, strict=True):
        if result.error is not None:
            rows.append([policy.name, result.error])
            continue
        rolled, archived = result.body["rollup"], result.body["archive"]
        _check_run(stage, policy, rolled, archived)
        kept = next((it["reason"] for it in archived["reasons"] if policy.model == "timeseries"), kept)
        counts = [
            rolled["hourly"]["written"],
            rolled["daily"]["written"],
            archived["buckets"],
            archived["deleted"],
        ]
        rows.append([policy.name, *map(number, counts), size(archived["bytes"])])
    stage.show.table(("Policy", "Hours written", "Days written", "Archived", "Deleted", "Bytes copied"), rows)
    if kept:
        stage.show.blank()
        stage.show.line(f"Why metrics stays: {kept}.", style="dim")
    stage.show.verdict("As many as were invented went, and no others")


def _check_run(stage: Stage, policy: Policy, rolled: Body, archived: Body) -> None:
    made, expired, equal = stage.made[policy.name], stage.expired(policy), stage.checks.equal
    assert policy.rollup is not None
    due = int((stage.now - policy.rollup.settle).timestamp()) * SECOND
    deleted = 0 if policy.model == "timeseries" else int(expired.sum())
    equal(
        f"{policy.name}: readings rolled up", rolled["readings"], int((made.time < due // HOUR * HOUR).sum())
    )
    equal(f"{policy.name}: buckets archived", archived["buckets"], int(expired.sum()))
    equal(f"{policy.name}: readings archived", archived["readings"], int(expired[made.bucket].sum()))
    equal(f"{policy.name}: buckets deleted", archived["deleted"], deleted)
    equal(f"{policy.name}: buckets left", archived["left"], int(expired.sum()) - deleted)
    equal(f"{policy.name}: buckets quarantined", archived["quarantined"], 0)
    live = made.some(~expired) if deleted else made.documents
    exact = sorted(stage.documents(policy.collection)) == sorted(live)
    stage.checks.holds(f"{policy.collection} does not hold exactly the buckets that stay", exact)


def second_run(stage: Stage) -> None:
    stage.show.act("bucketwise run, once more", "What is done is done: the same command finds nothing to do.")
    before = _state(stage)
    report = run(stage.command("run"))
    stage.succeeded(report)
    did = [_did(result) for result in report.results]
    for result, counts in zip(report.results, did, strict=True):
        stage.checks.equal(f"second run, policy {result.policy}: done", counts, dict.fromkeys(counts, 0))
    after = _state(stage)
    for what, digest in before.items():
        stage.checks.equal(f"{what} after the second run", after.get(what), digest)
    stage.checks.equal("collections and files after the second run", len(after), len(before))
    total = {what: sum(counts[what] or 0 for counts in did) for what in did[0]}
    changed = sum(before[what] != after.get(what) for what in before)
    stage.show.line(", ".join(f"{number(count)} {what}" for what, count in total.items()) + ";")
    stage.show.line(f"{changed} of {len(before)} collections and files are not what they were.")
    stage.show.verdict("Nothing changed, to the byte")


def _did(result: Result) -> dict[str, int | None]:
    """What a run says it did; None where it says nothing."""
    rolled, archived = result.body.get("rollup", {}), result.body.get("archive", {})
    return {
        "hours written": rolled.get("hourly", {}).get("written"),
        "days written": rolled.get("daily", {}).get("written"),
        "buckets archived": archived.get("buckets"),
        "bytes copied": archived.get("bytes"),
        "buckets deleted": archived.get("deleted"),
    }


def _state(stage: Stage) -> dict[str, object]:
    """A digest of every collection that isn't bookkeeping, and size and time of every file of the store."""
    state: dict[str, object] = dict(listing(stage.place.store))
    for name in stage.database.list_collection_names():
        if not name.startswith(("system.", "bucketwise_")):
            documents = sorted(stage.documents(name))
            state[f"the collection {name}"] = hashlib.sha256(b"".join(documents)).hexdigest()
    return state


def audited(stage: Stage) -> None:
    stage.show.act(
        "bucketwise audit", "Re-reads every part, recomputes every summary, looks for what is overdue."
    )
    report = audit(stage.command("audit"))
    stage.succeeded(report)
    findings = [it for result in report.results for it in result.body.get("findings", [])]
    for it in findings:
        stage.show.line(f"{it['severity']}: {it['policy']}, {it['place']}: {it['message']}")
    stage.checks.equal("findings of the audit", len(findings), 0)
    if not findings:
        stage.show.line(f"{len(report.results)} policies, no findings.")
    stage.show.verdict("Every policy is kept")
