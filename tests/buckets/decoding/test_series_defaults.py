"""What missing and null series fields are read as."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import encode

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.fields.selectors import selector_query, series_query
from bucketwise.buckets.models.series import is_of_series
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy

_START = datetime(2024, 2, 29, tzinfo=UTC)
_READINGS = make_policy(
    name="it", collection="it", model="reading", time_field="at", value_fields=("v",),
    series_fields=("tags.host", "metric"), series_defaults={"tags.host": "unknown"},
)  # fmt: skip
_SAMPLES = make_policy(
    name="it", collection="it", model="samples", samples_field="held", sample_time_field="t",
    sample_time_unit="date", start_field="at", value_fields=("v",), time_unit="date",
    series_fields=("site", "held.*.dev"), series_defaults={"held.*.dev": 7, "site": "here"},
)  # fmt: skip


def _decoded(policy: Policy, documents: list[dict[str, Any]]) -> Decoded:
    stored = [encode({"_id": number, "at": _START, **it}) for number, it in enumerate(documents)]
    return decode(Batch.of(Docs.of(stored)), policy)


def _series(decoded: Decoded) -> list[tuple[Any, ...]]:
    columns = decoded.columns
    return [columns.series[i] for i in columns.series_of_readings.tolist()]


def test_missing_null_and_written_are_one_series() -> None:
    tags: list[Any] = [{"tags": {}}, {"tags": {"host": None}}, {}, {"tags": {"host": "unknown"}}]
    decoded = _decoded(
        _READINGS, [{"metric": "cpu", "v": 1, **it} for it in (*tags, {"tags": {"host": "a"}})]
    )
    assert _series(decoded) == [("unknown", "cpu")] * 4 + [("a", "cpu")]
    assert len(decoded.columns.series) == 2


def test_a_field_without_a_default_is_still_needed() -> None:
    (broken,) = _decoded(_READINGS, [{"v": 1}]).quarantined
    assert broken.field == "metric"


@pytest.mark.parametrize("regular", [True, False])
def test_in_samples(regular: bool) -> None:
    """As many in each bucket, and of unlike numbers: these are read as a union."""
    held: list[list[Any]] = [[{"dev": 1}, {}], [{"dev": None}, {"dev": 7.0}], [{}, {"dev": 2}]]
    wanted = [1, 7, 7, 7, 7, 2]
    if not regular:
        held += [[{"dev": 1}] * count for count in range(3, 12)]
        wanted += [1] * sum(range(3, 12))
    documents = [
        {"held": [{"t": _START + timedelta(seconds=i), "v": i, **it} for i, it in enumerate(samples)]}
        for samples in held
    ]
    decoded = _decoded(_SAMPLES, documents)
    assert not decoded.quarantined
    assert _series(decoded) == [("here", dev) for dev in wanted]


@pytest.mark.parametrize(
    ("document", "is_found"),
    [({"metric": "cpu"}, True), ({"metric": "cpu", "tags": {"host": "a"}}, False), ({"metric": "x"}, False)],
)
def test_it_is_asked_for_by_its_default(document: dict[str, Any], is_found: bool) -> None:
    selector = {"tags.host": "unknown", "metric": "cpu"}
    assert is_of_series(_READINGS, encode(document), selector) == is_found


def test_queries_look_for_what_is_missing() -> None:
    assert selector_query(_READINGS, {"tags.host": "unknown"}) == {"tags.host": {"$in": ["unknown", None]}}
    assert selector_query(_READINGS, {"tags.host": "a"}) == {"tags.host": {"$in": ["a"]}}
    assert series_query(_READINGS, ("unknown", "cpu")) == {
        "tags.host": {"$in": ["unknown", None]},
        "metric": {"$eq": "cpu"},
    }
