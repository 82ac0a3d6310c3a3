"""Decides by their fields which documents may be of some series, also where they break their model."""

from __future__ import annotations

from bucketwise.buckets.bson.raw import as_queried
from bucketwise.buckets.bson.types import first_at
from bucketwise.buckets.fields.selectors import Selector, series_text
from bucketwise.buckets.models.shape import split
from bucketwise.config.policies import Policy


def is_of_series(policy: Policy, document: bytes, selector: Selector) -> bool:
    """Returns whether a bucket is of the series asked for. One whose series lie in its samples may be."""
    return all(
        name in policy.sample_series or _text(policy, document, name) == text
        for name, text in selector.items()
    )


def _text(policy: Policy, document: bytes, name: str) -> str:
    """Returns the text of a field as series have it: whole numbers are ints, whatever their BSON type."""
    value = as_queried(first_at(document, split(policy.stored_series[name])))
    if value is None:
        value = policy.default_series.get(name)
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**63
    return series_text(int(value) if is_whole else value)
