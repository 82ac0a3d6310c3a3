from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bucketwise.config.models import make_policy
from bucketwise.config.policies import Archive, Overflow, Policy, Retain, Rollup, ValueField
from bucketwise.config.written import SUMMARY_SCHEMA, fingerprint, layout_fingerprint

OVERFLOW = Overflow(flag_field="f", collection="c_extra", ref_field="r", samples_field="s")
POLICY = make_policy(
    name="iot",
    collection="iot",
    model="samples",
    series_fields=("a", "b"),
    value_fields=("v", "w"),
    samples_field="samples",
    sample_time_field="time",
    start_field="first",
    end_field="last",
    count_field="n",
    sum_fields={"v": "sum_v"},
    rollup=Rollup(hourly="h", daily="d", timezone="UTC", percentiles=(50, 95)),
    archive=Archive(after=timedelta(days=30), to="offline"),
    overflow=OVERFLOW,
)


def with_(**changes: Any) -> Policy:
    return POLICY.model_copy(update=changes)


def rollup(**changes: Any) -> Policy:
    assert POLICY.rollup is not None
    return with_(rollup=POLICY.rollup.model_copy(update=changes))


def test_stays_what_it_was() -> None:
    # Ledgers hold fingerprints: another one for the same policy would recompute everything.
    assert fingerprint(POLICY) == "1ce32f4d6e5d1fb3"


def test_changes_with_the_schema_of_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(POLICY), layout_fingerprint(POLICY)
    monkeypatch.setattr("bucketwise.config.written.SUMMARY_SCHEMA", SUMMARY_SCHEMA + 1)
    assert fingerprint(POLICY) != before[0]
    assert layout_fingerprint(POLICY) == before[1]


def test_changes_where_texts_become_states() -> None:
    states = with_(values={"v": ValueField(kind="state", max_gap=timedelta(hours=1))})
    assert fingerprint(states.model_copy(update={"nonnumeric_ok": ("v",)})) != fingerprint(states)
    assert fingerprint(with_(nonnumeric_ok=("v",))) == fingerprint(POLICY)


@pytest.mark.parametrize(
    "other",
    [
        with_(collection="x"),
        with_(series_fields=("a",)),
        with_(value_fields=("w", "v")),
        with_(samples_field="x"),
        with_(sample_time_field="x"),
        with_(start_field="x"),
        with_(end_field="x"),
        with_(count_field=None),
        with_(sum_fields={}),
        with_(expected_interval=timedelta(seconds=1)),
        with_(local_offset_field="tz"),
        with_(overflow=None),
        with_(overflow=OVERFLOW.model_copy(update={"ref_field": "x"})),
        with_(rollup=None),
        rollup(hourly="x"),
        rollup(daily=None),
        rollup(timezone="Europe/Berlin"),
        rollup(percentiles=(50,)),
    ],
)
def test_changes_with_the_summaries(other: Policy) -> None:
    assert fingerprint(other) != fingerprint(POLICY)


def slots(**changes: Any) -> Policy:
    said = {"name": "t", "collection": "t", "series_fields": ("a",), "value_fields": ("v",)}
    return make_policy(**{**said, "model": "slots", "time_field": "d", "slot": "second", **changes})


@pytest.mark.parametrize("other", [slots(time_field="x"), slots(slot="minute"), slots(span="day")])
def test_changes_with_the_keys_of_its_model(other: Policy) -> None:
    assert fingerprint(other) != fingerprint(slots())
    assert layout_fingerprint(other) != layout_fingerprint(slots())


def test_changes_with_the_model() -> None:
    said = {
        "name": "t",
        "collection": "t",
        "series_fields": ("a",),
        "value_fields": ("v",),
        "time_field": "d",
    }
    one, other = (make_policy(**said, model=model) for model in ("reading", "timeseries"))
    assert fingerprint(one) != fingerprint(other)


def test_changes_with_the_interval_itself() -> None:
    one, other = (with_(expected_interval=timedelta(seconds=seconds)) for seconds in (1, 2))
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(
    "same",
    [
        with_(name="x"),
        with_(schedule="@daily"),
        with_(archive=None),
        with_(max_hole=timedelta(minutes=10)),
        with_(retain=Retain(hourly=timedelta(days=1))),
        rollup(settle=timedelta(hours=1)),
        rollup(recheck=timedelta(hours=1)),
        rollup(late_data="scan"),
        rollup(percentiles=(50.0, 95.0)),
    ],
)
def test_does_not_change_with_anything_else(same: Policy) -> None:
    assert fingerprint(same) == fingerprint(POLICY)


def test_the_layout_is_another_matter_than_the_summaries() -> None:
    """What documents are read as, and what they have to hold: how they are rolled up does not count."""
    assert layout_fingerprint(rollup(hourly="x")) == layout_fingerprint(POLICY)
    others = [with_(value_fields=("w",)), with_(nonnumeric_ok=("v",)), with_(sample_time_unit="ms")]
    assert len({layout_fingerprint(it) for it in (POLICY, *others)}) == 4
