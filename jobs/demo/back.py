"""The act in which archived buckets are restored, and compared with the originals."""

from __future__ import annotations

import hashlib
from typing import cast

import bson
import numpy as np

from buckets.fields.selectors import extended_json
from config.policies import Policy
from jobs.demo.invent import DAY, Integers
from jobs.demo.show import number, size
from jobs.demo.stage import Stage
from jobs.verbs.returning.restore import restore


def back(stage: Stage) -> None:
    """Restores archived buckets, and compares them with the originals."""
    stage.show.act("bucketwise restore", "The last archived day of each policy, into a new collection.")
    rows = [_restore(stage, policy) for policy in stage.policies]
    stage.show.table(("Policy", "Into", "Day", "Buckets", "Readings", "Equal"), rows, left=3)
    stage.show.blank()
    about = "Bytes are compared; for native measurements fields are: MongoDB changes their order."
    stage.show.line(about, style="dim")
    _one_bucket(stage)
    stage.show.verdict("What came back is what was written")


def _restore(stage: Stage, policy: Policy) -> list[str]:
    made, to = stage.made[policy.name], f"{policy.name}_restored"
    chosen, start = _last_day(stage, policy)
    since, until = (f"{np.datetime64(at, 'ms')}Z" for at in (start, start + DAY))
    report = restore(stage.command("restore", policy.name), to=to, since=since, until=until)
    stage.succeeded(report)
    wanted, held = [made.documents[at] for at in chosen.tolist()], stage.documents(to)
    counts = [report.results[0].body.get(key) for key in ("buckets", "readings")]
    stage.show.equal(f"{to}: buckets", counts[0], len(wanted))
    stage.show.equal(f"{to}: readings", counts[1], int(np.isin(made.bucket, chosen).sum()))
    stage.show.holds(f"{to} holds other bytes than were written", sorted(held) == sorted(wanted))
    if policy.overflow is not None:
        # Overflow goes back into the policy's own collection, where the overflow of live buckets is.
        live = made.some(~stage.expired(policy))
        owners = {bson.decode(document)["_id"] for document in (*live, *wanted)}
        extra = [it for it in made.extra if bson.decode(it)["bucket_id"] in owners]
        same = sorted(stage.documents(policy.overflow.collection)) == sorted(extra)
        stage.show.holds(f"{policy.overflow.collection} holds other bytes", same)
    shown = [number(count) if isinstance(count, int) else "–" for count in counts]
    equal = f"{number(len(set(held) & set(wanted)))} of {number(len(wanted))}"
    return [policy.name, to, since[:10], *shown, equal]


def _last_day(stage: Stage, policy: Policy) -> tuple[Integers, int]:
    """Returns the archived buckets with a reading on the last day that is archived whole, and the day's
    start."""
    assert policy.archive is not None
    made = stage.made[policy.name]
    day = made.time // DAY
    archived = stage.expired(policy)[made.bucket] & (day < stage.ago(policy.archive.after) // DAY)
    last = int(day[archived].max())
    return np.unique(made.bucket[archived & (day == last)]), last * DAY


def _one_bucket(stage: Stage) -> None:
    """Shows the first restored minute of ticks, next to the original."""
    chosen, _ = _last_day(stage, stage.call.settings.policies["ticks"])
    original = stage.made["ticks"].documents[int(chosen[0])]
    fields = bson.decode(original)
    found = stage.database["ticks_restored"].find_raw_batches({"_id": fields["_id"]})
    restored = b"".join(cast(bytes, batch) for batch in found)
    slots = ", ".join(f'"{key}": {price}' for key, price in list(fields["p"].items())[:2])
    named = f'symbol: "{fields["symbol"]}", d: {fields["d"]:%FT%TZ}'
    stage.show.blank()
    stage.show.line(f"{{_id: {extended_json(fields['_id'])}, p: {{{slots}, …}},")
    stage.show.line(f" {named}}}")
    for title, raw in (("written ", original), ("restored", restored)):
        stage.show.line(f"{title}  sha256 {hashlib.sha256(raw).hexdigest()[:40]}…  {size(len(raw))}")
    stage.show.equal("the restored bucket of ticks", restored, original)
