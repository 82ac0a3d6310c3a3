"""The samples of a series are taken out of a bucket, and nothing else changes: against plain Python."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
from bson import Decimal128, Int64
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.buckets.versions.removal import SampleRemoval
from bucketwise.config.models import make_policy
from tests.archivers.builders import CODEC, encode
from tests.examples import examples

START = datetime(2026, 1, 5, tzinfo=UTC)
POLICY = make_policy(
    name="it",
    collection="it",
    model="samples",
    series_fields=("rig", "in.held.*.by.who"),
    value_fields=("v",),
    samples_field="in.held",
    sample_time_field="at",
    sample_time_unit="+s",
    start_field="first",
    count_field="n",
    sum_fields={"v": "in.sum"},
    series_defaults={"in.held.*.by.who": 0},
)
WHO: list[Any] = ["a", 0, 0.0, Int64(7), 7.5, True, None]
VALUES = st.one_of(
    st.none(), st.integers(-9, 9), st.floats(-1e6, 1e6, width=32), st.sampled_from([math.nan, math.inf])
)


@settings(max_examples=examples(60))
@given(
    samples=st.lists(st.tuples(st.sampled_from(WHO), st.integers(0, 50), VALUES), max_size=12),
    asked=st.sampled_from(["a", "0", "7", "7.5", "true", "nobody"]),
    ends=st.none() | st.tuples(st.integers(0, 50), st.integers(1, 50)),
    told=st.sampled_from([int, Int64, float]),
    is_right=st.booleans(),
)
def test_what_is_left(
    samples: list[tuple[Any, int, Any]],
    asked: str,
    ends: tuple[int, int] | None,
    told: Any,
    is_right: bool,
) -> None:
    held = [
        {"at": at, "v": value, **({} if who is None else {"by": {"x": None, "who": who}})}
        for who, at, value in samples
    ]

    def total(some: list[dict[str, Any]]) -> float:
        finite = [it["v"] for it in some if it["v"] is not None and math.isfinite(it["v"])]
        return math.fsum(finite)

    within = TimeRange()
    if ends is not None:
        within = TimeRange(START + timedelta(seconds=ends[0]), START + timedelta(seconds=sum(ends)))

    def goes(sample: dict[str, Any]) -> bool:
        who = sample.get("by", {}).get("who", 0)
        text = who if isinstance(who, str) else "true" if who is True else f"{float(who):g}"
        is_in = ends is None or ends[0] <= sample["at"] < sum(ends)
        return text == asked and is_in

    left = [it for it in held if not goes(it)]
    wrong = 0 if is_right else 1
    document = {"_id": 1, "rig": "r", "first": START, "odd": Decimal128("1.0"), "n": told(len(held) + wrong)}
    document["in"] = {"sum": total(held) + 1000 * wrong, "held": held, "behind": [1]}
    expected = {**document, "in": {**document["in"], "held": left}}
    if is_right and len(left) < len(held):
        expected["n"] = told(len(left))
        expected["in"]["sum"] = total(left)
    removal = SampleRemoval(POLICY, {"rig": "r", "who": asked}, within)
    rest = removal.rest(Batch.of(Docs.of([encode(document)])))
    assert bson.decode(rest.batch.main[0], CODEC) == bson.decode(encode(expected), CODEC) or any(
        it["v"] is not None and math.isnan(it["v"]) for it in held
    )
    assert rest.batch.main[0] == encode(expected)
    assert (rest.removed[0], rest.left[0]) == (len(held) - len(left), len(left))
    other = removal.rest(Batch.of(Docs.of([encode({**document, "rig": "s"})])))
    assert other.batch.main[0] == encode({**document, "rig": "s"})


def test_a_bucket_with_a_time_that_cannot_be_read_stays_as_it_is() -> None:
    """Where a range is asked for, nobody knows which of its samples go."""
    held = [{"at": at, "v": 1.0, "by": {"who": "a"}} for at in (1, "soon", 3)]
    document = encode({"_id": 1, "rig": "r", "first": START, "n": 3, "in": {"sum": 3.0, "held": held}})
    batch = Batch.of(Docs.of([document]))
    within = TimeRange(START, START + timedelta(seconds=2))
    rest = SampleRemoval(POLICY, {"rig": "r", "who": "a"}, within).rest(batch)
    assert (rest.untimed.tolist(), rest.removed.tolist(), rest.batch.main[0]) == ([True], [0], document)
    ever = SampleRemoval(POLICY, {"rig": "r", "who": "a"}, TimeRange()).rest(batch)
    assert (ever.untimed.tolist(), ever.removed.tolist(), ever.left.tolist()) == ([False], [3], [0])
