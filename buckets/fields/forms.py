"""The form of the times that a policy's keys describe."""

from __future__ import annotations

from typing import get_args

from bucketwise.buckets.fields.clocks import clock_of
from bucketwise.buckets.fields.formats import format_of
from bucketwise.buckets.fields.isoforms import IsoForm
from bucketwise.buckets.fields.textforms import FormattedForm, JoinedForm
from bucketwise.buckets.fields.timeforms import DATES, NumberForm, ObjectIdForm, TimeForm, TimestampForm
from bucketwise.buckets.fields.times import PER_SECOND, Unit
from bucketwise.config.policies import Policy, TimeUnit

_FORMS: dict[TimeUnit, TimeForm] = {unit: NumberForm(unit) for unit in get_args(Unit)}
_FORMS |= {"date": DATES, "objectid": ObjectIdForm(), "timestamp": TimestampForm()}


def form_of(unit: TimeUnit, format: str | None = None, zone: str = "UTC") -> TimeForm:
    """Returns the form of times of a unit, or of text of a strptime format. Dates are times in each of them.
    `zone`: that of the clock that text without an offset shows."""
    clock = clock_of(zone)
    if format is not None:
        return FormattedForm(format_of(format, _unit_of(unit)), clock)
    return IsoForm(clock) if unit == "iso" else _FORMS[unit]


def own_form_of(policy: Policy, unit: TimeUnit, format: str | None) -> TimeForm:
    """Returns the form of a bucket's own times, which may lie in several fields."""
    if len(policy.time_fields) == 1 or format is None:
        return form_of(unit, format, policy.timezone)
    return JoinedForm(policy.time_fields, format_of(format, _unit_of(unit)), clock_of(policy.timezone))


def _unit_of(unit: TimeUnit) -> Unit:
    """Returns the unit of `%s`."""
    return unit if unit in PER_SECOND else "s"
