"""Times that live buckets may have, and what their reasons say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import encode
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding.decode import decode, decode_live
from bucketwise.buckets.decoding.soundness import Plausible
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy

NOW = datetime(2025, 3, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _policy(**more: Any) -> Policy:
    return make_policy(
        name="it", collection="it", model="reading", time_field="at", series_fields=("s",),
        value_fields=("v",), **more,
    )  # fmt: skip


def _batch(times: list[Any]) -> Batch:
    return Batch.of(Docs.of([encode({"_id": i, "s": 1, "at": at, "v": 2}) for i, at in enumerate(times)]))


def _reasons(policy: Policy, *times: Any, has_earlier: bool = False) -> list[str]:
    plausible = Plausible.of(policy, NOW, has_earlier=has_earlier)
    return [it.reason for it in decode(_batch(list(times)), policy, plausible=plausible).quarantined]


@pytest.mark.parametrize(
    ("unit", "number", "says"),
    [
        ("ms", 1_739_000_000, "seconds among milliseconds? As seconds it is 2025-02-08T07:33:20Z"),
        ("us", 1_739_000_000, "seconds among microseconds?"),
        ("us", 1_739_000_000_000, "milliseconds among microseconds?"),
        ("ns", 1_739_000_000_000_000, "microseconds among nanoseconds?"),
    ],
)
def test_the_unit_that_would_fit_is_named(unit: str, number: int, says: str) -> None:
    (reason,) = _reasons(_policy(time_unit=unit), number)
    assert says in reason
    assert "before `earliest` (1971-01-01T00:00:00Z)" in reason


def test_seconds_that_became_dates_are_named_too() -> None:
    (reason,) = _reasons(_policy(), _EPOCH + timedelta(milliseconds=1_739_000_000))
    assert "seconds among milliseconds?" in reason


def test_milliseconds_among_seconds_are_too_late() -> None:
    (reason,) = _reasons(_policy(time_unit="s", latest="1d"), 17_390_000_000)
    assert "after `latest` (2025-03-02T00:00:00Z)" in reason
    assert "among" not in reason


def test_in_the_last_year_nothing_is_too_late() -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    plausible = Plausible.of(_policy(latest="2d"), last, has_earlier=False)
    assert decode(_batch([last]), _policy(latest="2d"), plausible=plausible).quarantined == []


def test_no_other_unit_is_named_where_none_fits() -> None:
    (reason,) = _reasons(_policy(time_unit="ms"), 5)
    assert "among" not in reason


def test_earlier_summaries_lift_the_default_alone() -> None:
    early = datetime(1965, 1, 1, tzinfo=UTC)
    assert len(_reasons(_policy(), early)) == 1
    assert _reasons(_policy(), early, has_earlier=True) == []
    assert len(_reasons(_policy(earliest="1966-01-01"), early, has_earlier=True)) == 1


_MINUTES = st.integers(-600_000, 30_000_000)  # from 1968 to 2027


@given(st.lists(_MINUTES, max_size=30), _MINUTES, st.integers(0, 400))
def test_it_breaks_what_lies_outside_and_nothing_else(minutes: list[int], earliest: int, days: int) -> None:
    times = [_EPOCH + timedelta(minutes=it) for it in minutes]
    first = _EPOCH + timedelta(minutes=earliest)
    policy = _policy(earliest=first.isoformat(), latest=f"{days}d")
    plausible = Plausible.of(policy, NOW, has_earlier=False)
    decoded = decode(_batch(list(times)), policy, plausible=plausible)
    outside = [i for i, at in enumerate(times) if not first <= at <= NOW + timedelta(days=days)]
    assert [it.id for it in decoded.quarantined] == outside


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_restored_buckets_may_have_any_time(early: set[int], restored: set[int]) -> None:
    times = [_EPOCH if i in early else NOW for i in range(10)]
    policy = _policy()
    plausible = Plausible.of(policy, NOW, has_earlier=False)

    def among(batch: Batch) -> list[int]:
        return [i for i in range(len(batch)) if batch.main.ids[i] in restored]

    parts = list(decode_live(_batch(times), policy, among, plausible))
    assert sum(len(it.units) for it in parts) == 10 - len(early - restored)
    assert [it.id for part in parts for it in part.quarantined] == sorted(early - restored)
