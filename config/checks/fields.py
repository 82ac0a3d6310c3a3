"""Checks a policy's fields against its bucket model, its summaries, and the columns of its archive; and its
tables `values.FIELD`.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta

from bucketwise.config.checks.names import field_fault
from bucketwise.config.policies import Policy, ValueField
from bucketwise.config.problems import Fault, Key, ProblemReport, dotted, nearest


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
        for key, fault in _step_faults(policy, path, field):
            report.add((*here, key), fault, rests_on=[(*here, it) for it in _OF_STEPS])


_OF_STEPS = ("kind", "time_weighted", "max_gap")
#: A longer `max_gap` than this is refused: exact sums of values by time have room for it.
_LONGEST_GAP = timedelta(days=366)


def _step_faults(policy: Policy, path: str, field: ValueField) -> Iterator[tuple[str, Fault]]:
    """Yields what is wrong with the keys that tell of steps between readings."""
    key = "time_weighted" if field.time_weighted else "kind"
    if field.kind == "gauge" and field.time_weighted is None:
        if field.max_gap is not None:
            remedy = 'add `kind = "counter"`, `kind = "state"` or `time_weighted`, or remove this'
            yield "max_gap", Fault("nothing is counted by steps between readings", remedy)
        return
    if field.max_gap is None and (field.kind == "state" or field.time_weighted is not None):
        message = "without `max_gap`, a value would last until the next reading, however late that is"
        yield key, Fault(message, 'add `max_gap`, such as "30m": longer steps then count for nothing')
    if field.max_gap is not None and field.max_gap > _LONGEST_GAP:
        yield "max_gap", Fault("it is longer than 366d", 'write "366d" or less')
    if policy.local_offset_field is not None:
        message = "windows of readings' own clocks (`local_offset_field`) do not follow one another in time"
        yield key, Fault(message, "remove this, or `local_offset_field`")
    if field.time_weighted is not None and _has_texts(policy, path):
        message = "texts are states, as nonnumeric_ok names the field, and have no average"
        remedy = "add `map = {ON = 1, OFF = 0}`, with all that the field holds, or remove this"
        yield "time_weighted", Fault(message, remedy)


def _has_texts(policy: Policy, path: str) -> bool:
    """Returns whether texts of a value field are states."""
    return any(path == named and name in policy.text_states for name, named in policy.named_values)


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


#: Top-level names of every summary, of a day's, and of one that tells what is missing.
_SUMMARY_FIELDS = ("_id", "start", "end", "count")
_DAY_FIELDS = ("timezone", "hours")
_COMPLETENESS_FIELDS = ("expected", "missing", "longest_hole", "longest_hole_at", "coverage")
#: Columns that every part has, or gets from its path.
_COLUMNS = ("time", "dt")

#: A field's key and its path.
Role = tuple[Key, str]


def check_fields(policy: Policy, report: ProblemReport) -> None:
    """Reports fields that are missing, invalid or in each other's way in a policy's bucket model."""
    at: Key = ("policies", policy.name)
    policy.check(at, report)
    _check_stars(policy, at, report)
    if not policy.value_fields:
        fault = Fault("there is no value field", "name at least one field that holds a value")
        report.add((*at, "value_fields"), fault)
    for key, path in _roles(policy, at):
        if fault_found := field_fault(path):
            report.add(key, fault_found, value=path)
    for name in policy.sums:
        if name not in policy.value_fields:
            fault = Fault(f"{report.quote(name)} is not in value_fields", "give sums of value fields only")
            report.add((*at, "sum_fields", name), fault, rests_on=[(*at, "value_fields")])
    check_values(policy, report)
    _check_series_defaults(policy, at, report)
    _check_nonnumeric(policy, at, report)
    _check_overlaps(policy, at, report)
    _check_summary(policy, at, report)
    _check_columns(policy, at, report)


def _check_series_defaults(policy: Policy, at: Key, report: ProblemReport) -> None:
    for path, value in policy.series_defaults.items():
        key = (*at, "series_defaults", path)
        if path not in policy.series_fields:
            near = nearest(path, policy.series_fields)
            remedy = f"did you mean `{near}`?" if near else "name fields of series_fields only"
            fault = Fault(f"{report.quote(path)} is not in series_fields", remedy)
            report.add(key, fault, rests_on=[(*at, "series_fields")])
        elif isinstance(value, float) and not math.isfinite(value):
            report.add(key, Fault("no series has such a value", "write text or a finite number"))


def _check_nonnumeric(policy: Policy, at: Key, report: ProblemReport) -> None:
    known = list(dict.fromkeys((*policy.value_fields, *policy.value_names)))
    for name in policy.nonnumeric_ok:
        if name not in known:
            near = nearest(name, known)
            remedy = f"did you mean `{near}`?" if near else "name fields of value_fields only"
            fault = Fault(f"{report.quote(name)} is not in value_fields", remedy)
            report.add((*at, "nonnumeric_ok"), fault, value=name, rests_on=[(*at, "value_fields")])


def _check_stars(policy: Policy, at: Key, report: ProblemReport) -> None:
    """Reports stars in other places: a `*` stands for each slot in a value field, and for each sample in a
    series field."""
    for path in policy.value_fields:
        if "*" in path.split(".") and not (policy.stars_values and _is_starred(path)):
            message = "`*` stands for each slot of a sub-document of slots"
            remedy = 'write a path such as "v.*.p", with model = "slots", or the field without `*`'
            report.add((*at, "value_fields"), Fault(message, remedy), value=path, rests_on=[(*at, "model")])
    array = policy.starred_array
    for path in policy.series_fields:
        is_inside = array is not None and _is_starred(path) and path.startswith(f"{array}.*.")
        if "*" in path.split(".") and not is_inside:
            remedy = f'write such as "{array or "samples"}.*.sensor", with samples that are documents'
            fault = Fault("`*` stands for each sample of samples_field", remedy)
            report.add((*at, "series_fields"), fault, value=path, rests_on=[(*at, "model")])


def _is_starred(path: str) -> bool:
    """Returns whether there is one star, between two names."""
    return path.split(".").count("*") == 1 and ".*." in path.strip(".")


def _roles(policy: Policy, at: Key) -> list[Role]:
    """Returns every field that the policy names."""
    overflow = policy.overflow
    in_overflow = (
        [("ref_field", overflow.ref_field), ("samples_field", overflow.samples_field)] if overflow else []
    )
    return [
        *_in_bucket(policy, at),
        *_inside(policy, at),
        *(((*at, "overflow", key), path) for key, path in in_overflow),
    ]


def _in_bucket(policy: Policy, at: Key) -> list[Role]:
    names = (*policy.bucket_keys, "local_offset_field")
    single = [((*at, "time_field"), path) for path in policy.time_fields]
    single += [((*at, name), path) for name in names if (path := getattr(policy, name)) is not None]
    flag = [((*at, "overflow", "flag_field"), policy.overflow.flag_field)] if policy.overflow else []
    sums = [((*at, "sum_fields", name), path) for name, path in policy.sums.items()]
    values = [] if policy.has_values_inside else [path.replace(".*.", ".") for path in policy.value_fields]
    series = [path for path in policy.series_fields if ".*." not in path]
    return [*single, *_lists(at, series, values), *sums, *flag]


def _inside(policy: Policy, at: Key) -> list[Role]:
    return [((*at, key), path) for key, path in policy.inside]


def _names(policy: Policy, at: Key) -> list[Role]:
    """Returns the names of the series fields and value fields in summaries and columns."""
    return _lists(at, policy.series_names, policy.value_names)


def _lists(at: Key, series: Iterable[str], values: Iterable[str]) -> list[Role]:
    return [
        *(((*at, "series_fields"), it) for it in series),
        *(((*at, "value_fields"), it) for it in values),
    ]


def _check_overlaps(policy: Policy, at: Key, report: ProblemReport) -> None:
    in_bucket, inside = _in_bucket(policy, at), _inside(policy, at)
    pairs = [*itertools.combinations(in_bucket, 2), *itertools.combinations(inside, 2)]
    pairs += itertools.combinations(_names(policy, at), 2)  # side by side in a summary
    for (key, path), (other_key, other) in dict.fromkeys(pairs):
        if fault := _overlap(path, other, key[len(at) :], report):
            report.add(other_key, fault, value=other, rests_on=[(*at, "model")])
    if policy.overflow and (policy.overflow.ref_field == policy.overflow.samples_field):
        fault = Fault("ref_field and samples_field name the same field", "name a different field for each")
        report.add((*at, "overflow", "samples_field"), fault)


def _overlap(path: str, other: str, key: Key, report: ProblemReport) -> Fault | None:
    where = ".".join(key)
    if path == other:
        return Fault(f"{where} already names this field", "name each field once")
    if f"{other}.".startswith(f"{path}.") or f"{path}.".startswith(f"{other}."):
        return Fault(
            f"it overlaps with {report.quote(path)} in {where}", "name fields that do not contain each other"
        )
    return None


def _check_summary(policy: Policy, at: Key, report: ProblemReport) -> None:
    if policy.rollup is None:
        return
    own = list(_SUMMARY_FIELDS)
    if policy.rollup.has_days:
        own += _DAY_FIELDS
    if policy.expected_interval is not None:
        own += _COMPLETENESS_FIELDS
    for key, path in _names(policy, at):
        if path == "_id" and key[-1] == "series_fields":
            continue  # it stands in the summary's `_id` alone
        if path.split(".")[0] in own:
            message = (
                f"every summary has its own {', '.join(own)}, and this field would overwrite one of them"
            )
            report.add(key, Fault(message, _other_name(policy, key, path)), value=path)


def _other_name(policy: Policy, key: Key, name: str) -> str:
    """Returns how a field gets another name in summaries."""
    if key[-1] == "series_fields":
        return "roll up by another field, or rename this one in the collection"
    path = dict(policy.named_values)[name]
    return f'give it another name there: [{dotted((*key[:-1], "values", path))}] with `as = "…"`'


def _check_columns(policy: Policy, at: Key, report: ProblemReport) -> None:
    if not policy.has_parts:
        return
    roles = list(dict.fromkeys(_names(policy, at)))
    columns = Counter(map(_column, {path for _, path in roles}))
    for key, path in roles:
        # Readers such as DuckDB do not distinguish columns by case.
        fault = None
        if _column(path) in _COLUMNS:
            fault = Fault(f"every part of the archive has its own column `{_column(path)}`", _RENAME)
        elif columns[_column(path)] > 1:
            others = _listed((it for _, it in roles if it != path and _column(it) == _column(path)), report)
            fault = Fault(
                f"it becomes one column with {others}: dots become `_`, and case is ignored", _RENAME
            )
        if fault:
            report.add(key, fault, value=path, rests_on=[(*at, "archive", "to")])


_RENAME = "leave this field out, or rename it in the collection"


def _column(path: str) -> str:
    return path.replace(".", "_").casefold()


def _listed(paths: Iterable[str], report: ProblemReport) -> str:
    return ", ".join(map(report.quote, dict.fromkeys(paths)))
