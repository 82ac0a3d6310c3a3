"""Whether a version of a bucket contains all of another one, held against plain Python."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.versions.readings import lacks
from bucketwise.config.policies import Overflow, Policy
from tests.archivers.builders import encode
from tests.buckets.decoding.test_versions import HOUR, SAMPLES, SLOTS, Document, one, policy, samples

MISSING, NULL = "missing", encode({"": None})


def is_lacking(under: Policy, older: Batch, newer: Batch) -> bool:
    assert lacks(under, newer, newer) == [False]
    return lacks(under, older, newer)[0]


@given(SLOTS, SLOTS, SLOTS, SLOTS, st.booleans())
def test_what_slots_lack(
    slots: Document, others: Document, notes: Document, more: Document, same: bool
) -> None:
    """Fields too, of which nobody knows what they are. `same`: things are only added, or overwritten."""
    base = {"_id": "x", "dev": 7, "d": HOUR}
    before = {**base, "p": slots, "note": notes}
    padded = {key.zfill(2): value for key, value in slots.items()}
    over = {key.zfill(2): value for key, value in others.items()}
    note, p = ({**notes, **more}, {**padded, **over}) if same else (more, over)
    after = {**base, "note": note, "p": p}
    told = ((slots, p, NULL), (notes, note, b""))
    wanted = any(
        encode({"": value}) not in (nothing, encode({"": there.get(key.zfill(2), there.get(key, MISSING))}))
        for held, there, nothing in told
        for key, value in held.items()
    )
    assert is_lacking(policy(), one([before]), one([after])) == wanted


@given(SAMPLES, SAMPLES, st.booleans(), st.randoms())
def test_what_samples_lack(older: list[Any], newer: list[Any], same: bool, chance: Any) -> None:
    """They may lie anywhere in the array; bounds, counts and sums are the writer's."""
    newer = [*older, *newer] if same else newer
    chance.shuffle(newer)

    def bucket(held: list[Any]) -> Batch:
        found = [{"t": HOUR + timedelta(seconds=time), "v": value} for time, value in held]
        bounds = {"first": found[0]["t"], "last": found[-1]["t"]}
        return one([{"_id": 1, "dev": 7, "n": len(held), "sum": 0.5 * len(held), **bounds, "samples": found}])

    before, after = (Counter(encode({"": list(it)}) for it in held) for held in (older, newer))
    under = samples(count_field="n", sum_fields={"v": "sum"})
    assert is_lacking(under, bucket(older), bucket(newer)) == bool(before - after)


EXTRA = st.dictionaries(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=3), max_size=3)


@given(EXTRA, EXTRA)
def test_what_overflow_lacks(older: dict[int, list[int]], newer: dict[int, list[int]]) -> None:
    overflow = Overflow(flag_field="more", collection="x", ref_field="of", samples_field="extra")
    main = {"_id": 1, "dev": 7, "first": HOUR, "last": HOUR, "samples": []}

    def bucket(held: dict[int, list[int]]) -> Batch:
        extra = [
            {"_id": name, "of": 1, "extra": [{"v": it, "t": HOUR} for it in some]}
            for name, some in held.items()
        ]
        return one([{**main, "more": bool(extra)}], extra)

    wanted = any(name not in newer or Counter(it) - Counter(newer[name]) for name, it in older.items())
    assert is_lacking(samples(overflow=overflow), bucket(older), bucket(newer)) == wanted


@pytest.mark.parametrize(
    ("older", "newer", "wanted"),
    [
        ({"p": [1.0, None]}, {"p": {"0": 1.0}}, False),
        ({"p": {"1": 1.0}}, {"p": [None, 1.0, 2.0]}, False),
        ({"p": {"1": 1}}, {"p": {"1": 1.0}}, True),
        ({"p": {"1": 1.0}}, {"p": {"1": "n/a"}}, True),
        ({"p": None}, {"p": {"1": 1.0}}, False),
        ({"p": {}}, {}, True),
        ({"p": {}, "tags": [1, 2]}, {"p": {}, "tags": [2, 1]}, True),
        ({"p": {}, "tags": [1]}, {"p": {}, "tags": [1, 2]}, True),
        ({"p": {"1": 1.0}}, {"p": {"1": 1.0, "01": 2.0}}, True),
    ],
)
def test_what_is_contained(older: Document, newer: Document, wanted: bool) -> None:
    base = {"_id": "x", "dev": 7, "d": HOUR}
    assert is_lacking(policy(), one([{**base, **older}]), one([{**base, **newer}])) == wanted
