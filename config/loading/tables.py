"""TOML tables into settings models, one key at a time, so that one bad value hides no other."""

from __future__ import annotations

import math
import types
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import ByteSize, SecretStr

from config.durations import MEND, DurationError, parse_duration
from config.loading.environment import OVERRIDES, UNEXPANDED
from config.policies import Table
from config.problems import Fault, Key, Report, dotted, nearest
from config.work import SIZE_MEND, SizeError, parse_size

T = TypeVar("T", bound=Table)

_KINDS = {
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


class Unfit(Exception):
    """The value cannot stand at this key."""

    def __init__(self, message: str, mend: str) -> None:
        self.fault = Fault(message, mend)


def read_table(model: type[T], table: dict[str, Any], key: Key, report: Report, **given: Any) -> T:
    """`table` as a `model`; `given` are attributes that are not keys of the table.

    Every unknown, missing or unfit key is reported. In place of an unfit value stands the default, or a
    neutral value where there is none: the model is sound, and fit for further checks only.
    """
    fields = {it.alias or name: it for name, it in model.model_fields.items() if name not in given}
    table = known_keys(table, fields, key, report)
    values = dict(given)
    for name, field in fields.items():
        at = (*key, name)
        if name in table and table[name] is not UNEXPANDED:
            try:
                values[name] = _read(field.annotation, table[name], at, report)
                continue
            except Unfit as unfit:
                report.broken(at, unfit.fault)
        elif name in table:
            report.broken(at)
        elif field.is_required():
            variable = f", or set {OVERRIDES[at]}" if at in OVERRIDES else ""
            report.broken(at, Fault("it is missing", f"add `{name}` to [{dotted(key)}]{variable}"))
        if field.is_required():
            values[name] = _neutral(field.annotation)
    return model(**values)


def known_keys(table: dict[str, Any], known: Iterable[str], key: Key, report: Report) -> dict[str, Any]:
    """The table's known keys. An unknown one is reported; its value is checked as the one it resembles."""
    known = list(known)
    kept = {name: value for name, value in table.items() if name in known}
    for name in [it for it in table if it not in known]:
        near = nearest(name, known)
        mend = f"did you mean `{near}`?" if near else f"known keys here: {', '.join(known)}"
        report.unknown((*key, name), Fault("there is no such key", mend))
        if near and near not in kept:
            kept[near] = table[name]
            report.misspelt((*key, near), name)
    return kept


def _read(annotation: Any, value: Any, key: Key, report: Report) -> Any:
    annotation, may_be_none = _unwrap(annotation)
    if annotation is timedelta:
        return _read_duration(value, may_be_none)
    if annotation is ByteSize:
        return _read_size(value)
    if get_origin(annotation) is Literal:
        return _read_choice(get_args(annotation), value)
    if annotation == tuple[SecretStr, ...]:
        return _read_secrets(value)
    if get_origin(annotation) is tuple and _is_table(get_args(annotation)[0]):
        return _read_tables(get_args(annotation)[0], value, key, report)
    if get_origin(annotation) is tuple:
        return _read_list(get_args(annotation)[0], value, report)
    if annotation is SecretStr:
        return SecretStr(_of_kind(str, value))
    if get_origin(annotation) is dict:
        return _read_names(value, key, report)
    if _is_table(annotation):
        if not isinstance(value, dict):
            raise Unfit("it has to be a table", f"write [{dotted(key)}], and its keys below")
        return read_table(annotation, value, key, report)
    return _of_kind(annotation, value)


def _is_table(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Table)


def _read_tables(model: type[T], value: Any, key: Key, report: Report) -> tuple[T, ...]:
    """Reads a list of tables; each stands at its number, from 1."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Unfit("it has to be a list of tables", f"write [[{dotted(key)}]], and the keys of each below")
    return tuple(read_table(model, item, (*key, str(at)), report) for at, item in enumerate(value, start=1))


def _unwrap(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in (Union, types.UnionType):
        return next(it for it in get_args(annotation) if it is not types.NoneType), True
    return annotation, False


def _of_kind(kind: type, value: Any) -> Any:
    # A bool is an int to Python, and a whole number will do for a float.
    fits = type(value) in (int, float) if kind is float else type(value) is kind
    if not fits:
        found = _KINDS.get(type(value), "a date or time")
        raise Unfit(f"it is {found}, and has to be {_KINDS[kind]}", f"write {_EXAMPLES[kind]}")
    return value


_EXAMPLES = {
    str: 'it in quotes: "…"',
    bool: "`true` or `false`, without quotes",
    int: "a whole number, without quotes",
    float: "a number, without quotes",
    list: 'a list: ["…", "…"]',
    dict: 'a table: {field = "…"}',
}


def _read_duration(value: Any, may_be_forever: bool) -> timedelta | None:
    if not isinstance(value, str):
        raise Unfit(f"it is {_KINDS.get(type(value), 'a date or time')}, and has to be a duration", MEND)
    try:
        span = parse_duration(value)
    except DurationError as error:
        raise Unfit(str(error), MEND) from None
    if span is None and not may_be_forever:
        raise Unfit("this cannot last forever", 'write a duration that ends, such as "10m" or "2d"')
    return span


def _read_size(value: Any) -> int:
    try:
        return parse_size(_of_kind(str, value))
    except SizeError as error:
        raise Unfit(str(error), SIZE_MEND) from None


def _read_choice(choices: tuple[str, ...], value: Any) -> str:
    text: str = _of_kind(str, value)
    if text not in choices:
        near = nearest(text, choices)
        options = " or ".join(f'"{it}"' for it in choices)
        mend = f'did you mean "{near}"? It may be {options}' if near else f"write {options}"
        raise Unfit("it is not one of the choices", mend)
    return text


def _read_list(kind: type, value: Any, report: Report) -> tuple[Any, ...]:
    items = _of_kind(list, value)
    choices = get_args(kind) if get_origin(kind) is Literal else None
    for item in items:
        try:
            _read_choice(choices, item) if choices else _of_kind(kind, item)
        except Unfit as unfit:
            raise Unfit(f"its item {report.quote(item)}: {unfit.fault.message}", unfit.fault.mend) from None
    return tuple(map(_as_float, items) if kind is float else items)


def _read_secrets(value: Any) -> tuple[SecretStr, ...]:
    """One secret, or a list of them; a message says nothing of what it found."""
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in items):
        raise Unfit("it has to be text, or a list of texts", 'write it in quotes: "${NAME}"')
    return tuple(map(SecretStr, items))


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _read_names(value: Any, key: Key, report: Report) -> dict[str, str]:
    names: dict[str, str] = {}
    for name, it in _of_kind(dict, value).items():
        if isinstance(it, dict):
            mend = 'put a dotted field in quotes: {"a.b" = "sum_ab"}'
            report.broken((*key, name), Fault("it is a table, and has to be text", mend))
        elif it is not UNEXPANDED:
            try:
                names[name] = _of_kind(str, it)
            except Unfit as unfit:
                report.broken((*key, name), unfit.fault)
    return names


def _neutral(annotation: Any) -> Any:
    annotation, may_be_none = _unwrap(annotation)
    if may_be_none:
        return None
    if get_origin(annotation) is Literal:
        return get_args(annotation)[0]
    return () if get_origin(annotation) is tuple else ""
