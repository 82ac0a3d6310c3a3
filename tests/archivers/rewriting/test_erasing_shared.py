"""One series goes out of buckets that hold several; the samples of all others stay as they were, whatever
dies."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import bson
import pytest
from bson import Int64, ObjectId

from bucketwise.archivers.moving import sweep
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Overflow
from tests.archivers.builders import CODEC, DAY0, LATER, RAW, Case, encode, offline
from tests.archivers.faults import FEW_STEPS, Crash, DyingStore, Steps, deaths, die_in_transactions
from tests.archivers.harness import Cycle, Standing
from tests.archivers.rewriting.test_erasing import held, online, with_overflow, world_of
from tests.archivers.states import States, all_archived

Document = dict[str, Any]
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
SENSORS = ("left", 7, "right")
#: What is erased; one of the sensors alone fills a bucket now and then.
SERIES = {"sensor": "7"}


def shared() -> Case:
    """Samples that tell their sensors, with a count and a sum; every third bucket has more elsewhere."""
    overflow = Overflow(
        flag_field="has_extras", collection="iot_extra", ref_field="bucket_id", samples_field="more"
    )
    policy = make_policy(
        name="iot",
        collection="iot",
        model="samples",
        series_fields=("rig", "samples.*.sensor"),
        value_fields=("val",),
        samples_field="samples",
        sample_time_field="time",
        start_field="first",
        end_field="last",
        count_field="n",
        sum_fields={"val": "sum"},
        archive=offline(),
        overflow=overflow,
    )
    documents, extra = [], []
    for i in range(40):
        first = DAY0 + i * timedelta(minutes=45)
        samples: list[Document] = [
            {"sensor": 7 if i % 10 == 1 else SENSORS[n % 3], "val": i + n / 8, "time": first + n * MINUTE}
            for n in range(i % 7)
        ]
        document = {
            "_id": f"{i:03d}",
            "first": first,
            "last": first + 44 * MINUTE,
            "n": Int64(len(samples)),
            "rig": i % 2,
            "sum": sum(it["val"] for it in samples),
            "samples": samples,
            "note": "kept",
        }
        if i % 3 == 0:
            document["has_extras"] = True
            more = [{"val": 100.0 + n, "sensor": SENSORS[n % 3], "time": first + n * MINUTE} for n in (i, 1)]
            extra.append(encode({"_id": ObjectId(), "bucket_id": document["_id"], "more": more}))
        documents.append(encode(document))
    return Case("shared", policy, documents, [], extra)


def rest(case: Case) -> list[bytes]:
    """The buckets as they have to be afterwards, with their overflow."""
    documents, extra = [], []
    for raw in case.overflow:
        document = bson.decode(raw, CODEC)
        extra.append(encode({**document, "more": [it for it in document["more"] if it["sensor"] != 7]}))
    others = {bson.decode(it, CODEC)["bucket_id"] for it in extra if bson.decode(it, CODEC)["more"]}
    for raw in case.documents:
        document = bson.decode(raw, CODEC)
        left = [it for it in document["samples"] if it["sensor"] != 7]
        if len(left) < len(document["samples"]) and not left and document["_id"] not in others:
            continue
        if len(left) < len(document["samples"]):
            total = sum(it["val"] for it in left)
            document |= {"n": Int64(len(left)), "sum": total, "samples": left}
        documents.append(encode(document))
    there = {bson.decode(it, CODEC)["_id"] for it in documents}
    return with_overflow(documents, [it for it in extra if bson.decode(it, CODEC)["bucket_id"] in there])


@pytest.mark.parametrize("to", ["offline", "online"])
def test_it_goes_from_buckets_that_hold_others_as_well(prepared: States, to: str) -> None:
    """Wherever they lie: half of them are live."""
    case = shared() if to == "offline" else online(shared())
    world = world_of(prepared, case)
    report = world.cycle.erase(SERIES)
    assert held(world) == sorted(rest(case))
    assert report.counts["rewritten"] > 0
    assert (report.is_found, world.cycle.verify().bad) == (False, [])
    assert world.cycle.erase(SERIES).counts["buckets"] == 0


def test_a_copy_that_was_not_as_it_was_archived_is_not_vouched_for_afterwards(prepared: States) -> None:
    """It goes on without the series, and an audit still tells that somebody has changed it."""
    cycle = prepared(online(shared()), all_archived)
    copies = cycle.database["archive"]
    (changed,) = list(copies.find({"samples.sensor": {"$all": [7, "left"]}}).limit(1))
    copies.update_one({"_id": changed["_id"]}, {"$set": {"note": "changed"}})
    (before,) = cycle.verify().bad
    cycle.erase(SERIES)
    assert not copies.count_documents({"samples.sensor": 7})
    (after,) = cycle.verify().bad
    assert (after.code, after.place) == (before.code, before.place)


@pytest.mark.proof
@FEW_STEPS
@pytest.mark.parametrize("to", ["offline", "online"])
def test_it_dies_at_each_step(
    prepared: States, monkeypatch: pytest.MonkeyPatch, to: str, few_steps: bool
) -> None:
    """At each name of a step in one of the cases; in the proofs at every step in each."""
    monkeypatch.setattr(sweep, "MAX_READINGS", 5000)
    case = shared() if to == "offline" else online(shared())
    expected = rest(case)
    world = world_of(prepared, case)
    standing = Standing(world.cycle)

    def erase(steps: Steps) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, steps)
            store = DyingStore(world.cycle.store, steps)
            return world.cycle.erase(SERIES, check=partial(steps.step, "check"), store=store)

    whole = Steps(5000)
    counts = erase(whole).counts
    assert held(world) == expected
    assert counts["buckets"] - counts["rewritten"] == len(case.documents) - len(expected)
    for it in deaths(whole.passed, ["offline", "online"].index(to), of=2, few_steps=few_steps):
        standing.put_back(world.cycle)
        with pytest.raises(Crash):
            erase(Steps(*it))
        report = world.cycle.erase(SERIES)
        assert not report.is_found
        assert held(world) == expected
        world.cycle.run(LATER + HOUR)
        assert held(world) == expected
        assert world.cycle.verify().bad == []


@pytest.mark.proof
@pytest.mark.parametrize("delete", [True, False])
def test_a_copy_from_before_that_is_put_back_is_named(prepared: States, delete: bool) -> None:
    """Whether originals were deleted, so that receipts of deletes name it, or wait."""
    case = online(shared())
    assert case.policy.archive is not None
    archive = case.policy.archive.model_copy(update={"delete": delete})
    case = replace(case, policy=case.policy.model_copy(update={"archive": archive}))
    cycle = prepared(case, Cycle.run)
    copies: Any = cycle.database.get_collection("archive", codec_options=RAW)
    before = {bson.decode(it.raw)["_id"]: it for it in copies.find()}
    cycle.erase(SERIES)
    assert cycle.verify().bad == []
    changed = {it["_id"] for it in cycle.database["archive"].find()} ^ before.keys()
    changed |= {it for it, raw in before.items() if copies.find_one({"_id": it}) not in (None, raw)}
    assert len(changed) > 20
    for it in changed:
        copies.replace_one({"_id": it}, before[it], upsert=True)
    found = {json.loads(it.place.partition("_id ")[2]) for it in cycle.verify().bad if "_id" in it.place}
    assert found == changed
    cycle.erase(SERIES)
    assert cycle.verify().bad == []
