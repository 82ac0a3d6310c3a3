"""How a policy reads a few buckets: do its fields name what is in them?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Columns, Quarantined, Series, ValueKind
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.decoding.plausible import Plausible
from bucketwise.buckets.models import model_of
from bucketwise.buckets.sampling.unused import FieldUse, fields_of
from bucketwise.config.policies import Policy


@dataclass(frozen=True)
class Example:
    """A reading as it is understood; None where it holds no number."""

    series: Series
    time: int  # milliseconds
    values: dict[str, float | None]


@dataclass(frozen=True)
class Fit:
    """What a policy finds in sampled buckets. Value fields go by their names."""

    sampled: int  # buckets
    buckets: int  # of these, that keep to the model
    readings: int
    held: dict[str, dict[ValueKind, int]]  # value field -> how many readings hold what there
    series: int
    span: tuple[int, int] | None  # of the readings, first to last, milliseconds
    examples: list[Example]  # the first and the last, by `_id`
    quarantined: list[Quarantined]
    fields: FieldUse
    is_hollow: bool  # no bucket has a place where readings could be

    @property
    def readings_a_bucket(self) -> float | None:
        """Returns the mean number of readings per bucket; None without buckets."""
        return self.readings / self.buckets if self.buckets else None

    @property
    def finite(self) -> dict[str, float | None]:
        """Returns the share of the readings that hold a finite number; None without readings."""
        shares = {name: held[ValueKind.FINITE] / max(1, self.readings) for name, held in self.held.items()}
        return {name: share if self.readings else None for name, share in shares.items()}

    def empty_fields(self, policy: Policy) -> list[str]:
        """Returns the value fields in which not one reading holds a finite number, though it has to."""
        return [
            name for name in policy.numeric_names if self.readings and not self.held[name][ValueKind.FINITE]
        ]


def fit_of(batch: Batch, policy: Policy, plausible: Plausible | None = None) -> Fit:
    """Returns the fit of the policy with these live buckets. `plausible`: the times that they may have."""
    decoded, fields = decode(batch, policy, plausible=plausible), fields_of(batch.main, policy)
    columns = decoded.columns
    return Fit(
        sampled=len(batch),
        buckets=len(decoded.units),
        readings=len(columns.time),
        held={name: _counted(columns, name) for name in policy.value_names},
        series=len(np.unique(columns.series_of_readings)),
        span=(int(columns.time.min()), int(columns.time.max())) if len(columns.time) else None,
        examples=_examples(columns),
        quarantined=decoded.quarantined,
        fields=fields,
        is_hollow=_is_hollow(decoded, fields, policy),
    )


def _counted(columns: Columns, name: str) -> dict[ValueKind, int]:
    counts = np.bincount(columns.kinds[name], minlength=len(ValueKind))
    return {kind: int(counts[kind]) for kind in ValueKind}


def _examples(columns: Columns) -> list[Example]:
    rows = sorted({0, len(columns.time) - 1}) if len(columns.time) else []
    return [_example(columns, row) for row in rows]


def _example(columns: Columns, row: int) -> Example:
    numbers = (ValueKind.FINITE, ValueKind.NONFINITE)
    values = {
        name: float(held[row]) if columns.kinds[name][row] in numbers else None
        for name, held in columns.values.items()
    }
    series = columns.series[columns.series_of_readings[row]]
    return Example(series, int(columns.time[row]), values)


def _is_hollow(decoded: Decoded, fields: FieldUse, policy: Policy) -> bool:
    """Returns whether buckets hold no reading because they have none of the sub-documents of slots. Slots
    that wait for their readings don't count, nor does an empty array."""
    places = model_of(policy).slot_holders
    if not places or not len(decoded.units) or len(decoded.columns.time):
        return False
    return not any(".".join(place) in fields.used for place in places)
