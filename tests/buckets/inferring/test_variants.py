"""Documents of the kinds that people write: what was meant is the only way to read them, or one of those that
are shown; and each of these is a policy that fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.inferring.guess import guess
from bucketwise.buckets.sampling.doubts import doubt_of
from bucketwise.buckets.sampling.fit import fit_of
from bucketwise.buckets.sampling.reading import AsRead
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from bucketwise.jobs.core.fit import misfits
from tests.buckets.inferring.variants import KINDS, variant
from tests.examples import examples

Reading = tuple[Any, ...]


def read(policy: Policy, docs: Docs) -> list[Reading]:
    """All readings: time, series and values."""
    columns = decode(Batch.of(docs), policy).columns
    series = [columns.series[it] for it in columns.series_of_readings]
    rows = zip(
        columns.time.tolist(), map(str, series), *(it.tolist() for it in columns.values.values()), strict=True
    )
    return sorted(rows)


@pytest.mark.parametrize("kind", KINDS, ids=lambda it: it.__name__)
@settings(max_examples=examples(5))
@given(seed=st.integers(0, 10**6))
@example(seed=886)  # its days are far apart by the clock of some zones alone
@example(seed=28086)  # its zone is another's in November, and not in October
def test_what_was_meant_is_known_or_shown(kind: Callable[..., Any], seed: int) -> None:
    made = variant(kind, seed)
    docs = Docs.of([bson.encode(it) for it in made.documents])
    keys = {key: tuple(it) if isinstance(it, list) else it for key, it in made.keys.items()}
    wanted = read(make_policy(name="it", collection="it", **keys), docs)
    found = guess("it", "it", docs, [], None)
    assert any(read(it.policy, docs) == wanted for it in found.ways), (made.name, found.ways[:3])
    assert not (found.asked and made.is_known), (made.name, found.ways)
    for way in found.ways:
        batch = Batch.of(docs)
        assert misfits(fit_of(batch, way.policy), way.policy, doubt_of(AsRead(batch, way.policy), None)) == []
        assert way.first and [it.time for it in way.first] == sorted(it.time for it in way.first)


@pytest.mark.parametrize("form", ["value", "nested", "feature"])
def test_a_place_on_a_map_tells_no_series(form: str) -> None:
    place: dict[str, Any] = {"type": "Point", "coordinates": [13.4, 52.5]}
    if form == "feature":
        place = {"type": "Feature", "geometry": place, "properties": {"zone": "north"}}
    held: dict[str, Any] = {"at": {"loc": place}} if form == "nested" else {"loc": place}
    documents = [
        {"d": bson.Int64(1_767_571_200_000 + 60_000 * it), "dev": f"d{it % 2}", "v": it / 4, **held}
        for it in range(30)
    ]
    docs = Docs.of([bson.encode({"_id": number, **it}) for number, it in enumerate(documents)])
    found = guess("it", "it", docs, [], None)
    assert found.policy is not None
    assert found.policy.series_fields == ("dev",)
    assert not any("type" in it or "coordinates" in it for it in found.evidence)


def test_words_that_nobody_knows_are_asked_about() -> None:
    words = {0: "ZU", 1: "AUF"}
    documents = [
        {
            "_id": it,
            "d": bson.Int64(1_767_571_200_000 + 60_000 * it),
            "dev": "a",
            "v": words.get(it % 5, it / 4),
        }
        for it in range(50)
    ]
    found = guess("it", "it", Docs.of([bson.encode(it) for it in documents]), [], None)
    maps = [it.policy.values["v"].map for it in found.ways if it.policy.values]
    assert maps == [{"AUF": 1.0, "ZU": 0.0}, {"ZU": 1.0, "AUF": 0.0}]
    assert len(found.ways) == 3


def test_days_and_months_that_look_alike_are_asked_about() -> None:
    texts = [f"{day:02}/{month:02}/2025 10:00Z" for month in (1, 2, 3) for day in range(1, 11)]
    documents = [{"_id": it, "when": text, "dev": "a", "v": it / 4} for it, text in enumerate(texts)]
    found = guess("it", "it", Docs.of([bson.encode(it) for it in documents]), [], None)
    formats = {it.policy.time_format for it in found.ways if hasattr(it.policy, "time_format")}
    assert formats == {"%d/%m/%Y %H:%M%z", "%m/%d/%Y %H:%M%z"}
