"""Findings about consecutive readings: duplicates and gaps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bucketwise.buckets.fields.times import as_date, as_text
from bucketwise.buckets.health.finding import Finding, share, span
from bucketwise.buckets.models import model_of
from bucketwise.buckets.writing.exact import ExactReadings
from bucketwise.config.policies import Policy

#: A gap is so many times the usual interval; there is a usual one if so many intervals are about as long.
_GAP, _REGULAR, _ABOUT = 10, 0.8, 0.2


def reading_findings(exact: ExactReadings, policy: Policy) -> Iterator[Finding]:
    """Yields findings about duplicate readings and about the time between readings. `exact`: by series, then
    time."""
    is_same_series = np.diff(exact.series_index) == 0
    steps = np.diff(exact.time)[is_same_series]
    duplicates = int((steps == 0).sum())
    if duplicates:
        yield Finding(
            "duplicates",
            None,
            f"{duplicates:,} of {len(exact):,} readings have the series and the time of another one",
            f"{share(duplicates, len(exact))} of the readings count twice in each count, sum and average",
            model_of(policy).against_duplicates,
        )
    steps = steps[steps > 0]
    if len(steps) < 2:
        return
    usual = float(np.median(steps))
    if policy.expected_interval is not None:
        usual = policy.expected_interval.total_seconds() * 1000
    is_regular = (np.abs(steps - usual) <= _ABOUT * usual).mean() >= _REGULAR
    holes = steps > _GAP * usual
    if is_regular and holes.any():
        missing = int((steps[holes] / usual - 1).sum())
        ends = exact.time[1:][is_same_series][np.diff(exact.time)[is_same_series] == steps.max()]
        yield Finding(
            "gaps",
            None,
            f"readings come every {span(usual)}; gaps of more than {_GAP} times that: {int(holes.sum()):,}. "
            f"The longest gap, {span(float(steps.max()))}, ended at {as_text(as_date(int(ends[0])))}",
            f"about {missing:,} readings beside {len(exact):,}, nights and holidays of the source among them",
            f'if they should: expected_interval = "{usual / 1000:.0f}s" and max_hole let `audit` tell',
        )
