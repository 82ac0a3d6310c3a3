"""The act in which archived buckets come back, and are held against the originals."""

from __future__ import annotations

import hashlib

import bson
import numpy as np
from pymongo.database import Database

from buckets.fields.selectors import extended_json
from config.policies import Policy
from jobs.demo.invent import DAY, SECOND, Integers
from jobs.demo.show import number, size
from jobs.demo.stage import Stage
from jobs.verbs.restore import restore


def back(stage: Stage) -> None:
    stage.show.act("bucketwise restore", "The last archived day of each policy, into a new collection.")
    rows = [_restore(stage, policy) for policy in stage.policies]
    stage.show.table(("Policy", "Into", "Day", "Buckets", "Readings", "Equal"), rows, left=3)
    stage.show.blank()
    stage.show.line(
        "Bytes are compared; for native measurements fields are: MongoDB changes their order.", style="dim"
    )
    _one_bucket(stage)
    stage.show.verdict("What came back is what was written")


def _restore(stage: Stage, policy: Policy) -> list[str]:
    made, to = stage.made[policy.name], f"{policy.name}_restored"
    chosen, start = _last_day(stage, policy)
    since, until = (f"{np.datetime64(at, 'ms')}Z" for at in (start, start + DAY))
    report = restore(stage.command("restore", policy.name), to=to, since=since, until=until)
    stage.succeeded(report)
    wanted = [made.documents[at] for at in chosen.tolist()]
    held = stage.documents(to)
    equal = len(set(held) & set(wanted))
    counts = [report.results[0].body.get(key) for key in ("buckets", "readings")]
    stage.checks.equal(f"{to}: buckets", counts[0], len(wanted))
    stage.checks.equal(f"{to}: readings", counts[1], int(np.isin(made.bucket, chosen).sum()))
    stage.checks.holds(f"{to} holds other bytes than were written", sorted(held) == sorted(wanted))
    if policy.overflow is not None:
        _check_overflow(stage, policy, wanted)
    shown = [number(count) if isinstance(count, int) else "–" for count in counts]
    return [policy.name, to, since[:10], *shown, f"{number(equal)} of {number(len(wanted))}"]


def _last_day(stage: Stage, policy: Policy) -> tuple[Integers, int]:
    """The archived buckets with a reading on the last day that is archived whole, and the day's start."""
    made, expired = stage.made[policy.name], stage.expired(policy)
    assert policy.archive is not None and policy.archive.after is not None
    cutoff = int((stage.now - policy.archive.after).timestamp()) * SECOND
    day = made.time // DAY
    archived = expired[made.bucket] & (day < cutoff // DAY)
    last = int(day[archived].max())
    return np.unique(made.bucket[archived & (day == last)]), last * DAY


def _check_overflow(stage: Stage, policy: Policy, wanted: list[bytes]) -> None:
    """Overflow documents go back into the policy's own collection, where the overflow of live buckets is."""
    assert policy.overflow is not None
    live = stage.made[policy.name].some(~stage.expired(policy))
    owners = {bson.decode(document)["_id"] for document in (*live, *wanted)}
    extra = [it for it in stage.made[policy.name].extra if bson.decode(it)["bucket_id"] in owners]
    held = stage.documents(policy.overflow.collection)
    stage.checks.holds(f"{policy.overflow.collection} holds other bytes", sorted(held) == sorted(extra))


def _one_bucket(stage: Stage) -> None:
    """The first restored minute of ticks, next to the original."""
    chosen, _ = _last_day(stage, stage.call.settings.policies["ticks"])
    original = stage.made["ticks"].documents[int(chosen[0])]
    fields = bson.decode(original)
    restored = _raw(stage.database, "ticks_restored", original)
    slots = ", ".join(f'"{key}": {price}' for key, price in list(fields["p"].items())[:2])
    identity = extended_json(fields["_id"])
    stage.show.blank()
    stage.show.line(
        f'{{_id: {identity}, p: {{{slots}, …}}, symbol: "{fields["symbol"]}", d: {fields["d"]:%FT%TZ}}}'
    )
    for title, raw in (("written ", original), ("restored", restored)):
        stage.show.line(f"{title}  sha256 {hashlib.sha256(raw).hexdigest()[:40]}…  {size(len(raw))}")
    stage.checks.equal("the restored bucket of ticks", restored, original)


def _raw(database: Database[dict[str, object]], collection: str, like: bytes) -> bytes:
    batches = database[collection].find_raw_batches({"_id": bson.decode(like)["_id"]})
    return b"".join(bytes(batch) for batch in batches)  # type: ignore[arg-type]
