"""Checks the tables `values.FIELD` of a policy: how its value fields are read, and what they are called."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bucketwise.config.checks.names import field_fault
from bucketwise.config.policies import Policy, ValueField
from bucketwise.config.problems import Fault, Key, ProblemReport, nearest


def check_values(policy: Policy, report: ProblemReport) -> None:
    """Reports tables of fields that hold no values, and keys of one that contradict each other."""
    at: Key = ("policies", policy.name)
    for path, field in policy.values.items():
        here: Key = (*at, "values", path)
        if path not in policy.value_fields:
            near = nearest(path, policy.value_fields)
            remedy = f"did you mean `{near}`?" if near else "name fields of value_fields only"
            fault = Fault(f"{report.quote(path)} is not in value_fields", remedy)
            report.add(here, fault, rests_on=[(*at, "value_fields")])
        for key, fault in _faults(field):
            report.add((*here, key), fault, rests_on=[(*here, "text")])


def _faults(field: ValueField) -> Iterator[tuple[str, Fault]]:
    for key in ("decimal", "unit"):
        if key in field.model_fields_set and not field.text:
            yield key, Fault("it is of numbers that are text", "add `text = true`, or remove this")
    if field.unit is not None and not field.unit.strip():
        yield "unit", Fault("it is empty", 'write what stands behind the number, such as "°C", or remove it')
    for text, number in field.map.items():
        if not math.isfinite(number):
            message = f'"{text}" counts as {number}, which is no finite number'
            yield "map", Fault(message, "write a finite number")
    if field.name is not None and (fault := field_fault(field.name)):
        yield "as", fault
    elif field.name is not None and ("." in field.name or "*" in field.name):
        yield "as", Fault("it is one name, without `.` and `*`", 'write a name such as "visits"')
