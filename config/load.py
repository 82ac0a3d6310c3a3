"""Loads the policy file into settings, with values from the environment. Finds every problem in one pass,
before anything is touched. pydantic validates; its errors are put into words here.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bucketwise.config import DEFAULT_PATH, PATH_VARIABLE, deprecated, times
from bucketwise.config.checks.locations import (
    check_mongodb,
    check_object_lock,
    check_storage_class,
    check_store,
)
from bucketwise.config.checks.names import check_identities, check_targets
from bucketwise.config.checks.policy import check_policy
from bucketwise.config.checks.settings import (
    check_drill,
    check_lake,
    check_metrics_file,
    check_notify,
    check_publish,
    check_work,
)
from bucketwise.config.models import MODELS, POLICY_FIELDS, fields_of, missing
from bucketwise.config.policies import ModelName, Policy, Settings
from bucketwise.config.problems import ConfigError, Fault, Key, Problem, ProblemReport, dotted, nearest
from bucketwise.config.tables import Store, Table, TopLevel

OVERRIDES: Final[Mapping[Key, str]] = {
    ("mongodb", "uri"): "BUCKETWISE_MONGODB_URI",
    ("mongodb", "database"): "BUCKETWISE_MONGODB_DATABASE",
    ("store", "url"): "BUCKETWISE_STORE_URL",
    ("store", "endpoint_url"): "BUCKETWISE_STORE_ENDPOINT_URL",
    ("store", "region"): "BUCKETWISE_STORE_REGION",
    ("store", "signing_key"): "BUCKETWISE_STORE_SIGNING_KEY",
    ("store", "encryption_key"): "BUCKETWISE_STORE_ENCRYPTION_KEY",
    ("work", "workers"): "BUCKETWISE_WORK_WORKERS",
    ("work", "executor"): "BUCKETWISE_WORK_EXECUTOR",
    ("work", "memory"): "BUCKETWISE_WORK_MEMORY",
}
_NUMBERS: Final = {("work", "workers")}

# `$${` is a literal `${`; an opening that no name follows is caught by the last branch.
_REFERENCE = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{[^}]*\}?")


class Unexpanded:
    """Stands in for a string that names a variable which is not set."""


UNEXPANDED: Final = Unexpanded()


def override(document: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[Key, str]]:
    """Returns the document with the environment's own values in place, and which variable each came from.

    An empty variable overrides nothing."""
    document = copy.deepcopy(document)
    variables = {key: name for key, name in OVERRIDES.items() if environ.get(name)}
    for (table, key), name in list(variables.items()):
        if isinstance(document.setdefault(table, {}), dict):
            text = environ[name]
            is_number = (table, key) in _NUMBERS and text.isascii() and text.isdecimal()
            document[table][key] = int(text) if is_number else text
        else:
            del variables[table, key]
    return document, variables


def expand(
    document: dict[str, Any], environ: Mapping[str, str], literal: Mapping[Key, str], report: ProblemReport
) -> dict[str, Any]:
    """Returns the document with every `${NAME}` replaced, but at the keys in `literal`.

    What cannot be replaced is reported, and UNEXPANDED stands in its place."""

    def of(value: Any, key: Key) -> Any:
        if isinstance(value, dict):
            return {name: of(it, (*key, name)) for name, it in value.items()}
        if isinstance(value, list):
            items = [of(it, key) for it in value]
            return UNEXPANDED if any(it is UNEXPANDED for it in items) else items
        if isinstance(value, str):
            return _checked(
                value if key in literal else _expand_text(value, environ, key, report), key, report
            )
        return value

    return {name: of(value, (name,)) for name, value in document.items()}


def _checked(text: str | Unexpanded, key: Key, report: ProblemReport) -> str | Unexpanded:
    # Python hands over bytes of the environment that are not UTF-8 as lone surrogates.
    if isinstance(text, str) and re.search("[\ud800-\udfff]", text):
        report.add(key, Fault("its value in the environment is not UTF-8", "set it to UTF-8 text"))
        return UNEXPANDED
    return text


def _expand_text(text: str, environ: Mapping[str, str], key: Key, report: ProblemReport) -> str | Unexpanded:
    faults: list[Fault] = []

    def replace(found: re.Match[str]) -> str:
        if found[1]:
            return found[1]
        if not found[2]:
            remedy = "write `${NAME}` with a name of letters, digits and `_`; a literal `${` is written `$${`"
            faults.append(Fault("`${` is not followed by the name of an environment variable", remedy))
        elif found[2] not in environ:
            remedy = f"set {found[2]} in the environment, or write the value here"
            faults.append(Fault(f"the environment variable {found[2]} is not set", remedy))
        else:
            return environ[found[2]]
        return ""

    expanded = _REFERENCE.sub(replace, text)
    for fault in dict.fromkeys(faults):
        report.add(key, fault)
    if faults:
        return UNEXPANDED
    if expanded != text:
        report.expanded(expanded, text)
    return expanded


T = TypeVar("T", bound=Table)

#: By pydantic's type of an error: what the value has to be, and the mend.
_WANTED = {
    "string_type": ("text", 'write it in quotes: "…"'),
    "bool_type": ("true or false", "write `true` or `false`, without quotes"),
    "int_type": ("a number", "write a whole number, without quotes"),
    "float_type": ("a number", "write a number, without quotes"),
    "tuple_type": ("a list", 'write a list: ["…", "…"]'),
    "dict_type": ("a table", 'write a table: {field = "…"}'),
    "time_delta_type": ("a duration", times.DURATION_REMEDY),
}
_FOUND = {
    **{str: "text", bool: "true or false", list: "a list", dict: "a table"},
    **{int: "a number", float: "a number"},
}


def read_table(model: type[T], table: dict[str, Any], key: Key, report: ProblemReport, **given: Any) -> T:
    """Returns `table` as a `model`.

    `given`: attributes that are not keys of the table. Reports every unknown, missing or invalid key. An
    invalid value is replaced by the default, or by a neutral value if there is none, so that the model is
    valid and further checks can run. It is fit for nothing else.
    """
    fields = {it.alias or name: it for name, it in model.model_fields.items() if name not in given}
    values = known_keys(table, fields, key, report)
    for name, field in fields.items():
        inner = table_in(field.annotation)
        if inner is not None and name in values:
            _read_inner(inner, values, (*key, name), report, get_origin(field.annotation))
    try:
        return model(**given, **values)
    except ValidationError as error:
        for detail in error.errors():
            _report_error(detail, key, report)
            _take_out(values, detail["loc"])
    for name, field in fields.items():
        if name not in values and field.is_required():
            values[name] = _neutral_value(field.annotation)
    return model(**given, **values)


class _Model(Table):
    """The key that tells policies apart."""

    model: ModelName


def read_policy(table: dict[str, Any], key: Key, report: ProblemReport) -> Policy:
    """Returns the policy that a table says, by the class of its model. Reports as `read_table` does, and keys
    that don't go with the model. Where the model is not told, it is the one that has most of the keys."""
    values = known_keys(table, [name for name in POLICY_FIELDS if name != "name"], key, report)
    told = {name: value for name, value in values.items() if name == "model"}
    model: str = read_table(_Model, told, key, report).model
    if told.get("model") != model:
        model = max(MODELS, key=lambda it: len(values.keys() & fields_of(MODELS[it]).keys()))
    fields, at = fields_of(MODELS[model]), (*key, "model")
    for name in [it for it in values if it not in fields]:
        fits = " and ".join(f'"{it}"' for it, kind in MODELS.items() if name in fields_of(kind))
        fault = Fault(f'it does not go with model "{model}"', f"remove it; it goes with {fits}")
        report.add((*key, name), fault, rests_on=[at])
    kept = {name: values[name] for name in fields if name in values} | {"model": model}
    for name, field in fields.items():
        shared = Policy.model_fields.get(name)
        if name not in kept and field.is_required() and not (shared and shared.is_required()):
            report.add((*key, name), missing(model, name), rests_on=[at])
            report.broken((*key, name))
            kept[name] = _neutral_value(field.annotation)
    return read_table(MODELS[model], kept, key, report, name=key[-1])


def _read_inner(
    model: type[Table], values: dict[str, Any], at: Key, report: ProblemReport, kind: Any
) -> None:
    """Reads a table inside a table, or several: a list of them, each at its number from 1, or a table of
    them."""
    name, value = at[-1], values[at[-1]]
    if kind is dict and isinstance(value, dict):
        found = {key: _read_named(model, value, (*at, key), report) for key in value}
        values[name] = {key: table for key, table in found.items() if table is not None}
    elif kind is not tuple:
        if isinstance(value, dict):
            values[name] = read_table(model, value, at, report)
    elif isinstance(value, list) and all(isinstance(item, dict) for item in value):
        numbered = enumerate(value, start=1)
        values[name] = tuple(read_table(model, item, (*at, str(number)), report) for number, item in numbered)
    else:
        remedy = f"write [[{dotted(at)}]], and the keys of each below"
        report.broken(at, Fault("it has to be a list of tables", remedy))
        del values[name]


def _read_named(model: type[Table], tables: dict[str, Any], at: Key, report: ProblemReport) -> Table | None:
    if isinstance(value := tables[at[-1]], dict):
        return read_table(model, value, at, report)
    fault = Fault("it has to be a table", f"write [{dotted(at)}], and its keys below")
    report.broken(at, None if value is UNEXPANDED else fault)
    return None


def known_keys(
    table: dict[str, Any], known: Iterable[str], key: Key, report: ProblemReport
) -> dict[str, Any]:
    """Returns the table's known keys; those with a former name by the one of today. An unknown one is
    reported; its value is checked as the one it resembles."""
    known = list(known)
    kept = {name: value for name, value in table.items() if name in known}
    for name in [it for it in table if it not in known]:
        if now := deprecated.current_name(key, name):
            if now in kept:
                fault = Fault(f"it is the former name of `{now}`, which is there as well", f"remove {name}")
                report.add((*key, name), fault)
            else:
                kept[now] = table[name]
                report.deprecated((*key, now), name)
            continue
        near = nearest(name, known)
        remedy = f"did you mean `{near}`?" if near else f"known keys here: {', '.join(known)}"
        report.unknown((*key, name), Fault("there is no such key", remedy))
        if near and near not in kept:
            kept[near] = table[name]
            report.misspelt((*key, near), name)
    return kept


def table_in(annotation: Any) -> type[Table] | None:
    """Returns the table that an attribute holds, or holds many of; None where it holds something else."""
    kinds = (annotation, *get_args(annotation))
    return next((it for it in kinds if isinstance(it, type) and issubclass(it, Table)), None)


def _report_error(detail: ErrorDetails, key: Key, report: ProblemReport) -> None:
    """Reports what pydantic found at a key, in an item of its list, or in a key of its table."""
    name, *inside = detail["loc"]
    at: Key = (*key, str(name))
    if detail["input"] is UNEXPANDED or report.is_misspelt(at):
        report.broken((*at, *map(str, inside)))
        return
    fault = _in_words(detail, at)
    if inside and isinstance(inside[0], int):
        fault = fault._replace(message=f"its item {report.quote(detail['input'])}: {fault.message}")
    elif inside:
        at = (*at, str(inside[0]))
        if isinstance(detail["input"], dict):
            fault = fault._replace(remedy='put a dotted field in quotes: {"a.b" = "sum_ab"}')
    report.broken(at, fault)


def _in_words(detail: ErrorDetails, at: Key) -> Fault:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "value_error":
        fault: Fault = context["error"].fault
        return fault
    if kind == "missing":
        variable = f", or set {OVERRIDES[at]}" if at in OVERRIDES else ""
        return Fault("it is missing", f"add `{at[-1]}` to [{dotted(at[:-1])}]{variable}")
    if kind == "model_type":
        return Fault("it has to be a table", f"write [{dotted(at)}], and its keys below")
    if kind == "literal_error" and isinstance(value, str):
        return _choice_fault(value, re.findall("'([^']*)'", context["expected"]))
    if kind == "time_delta_type" and value is None:
        return Fault("this cannot last forever", 'write a duration that ends, such as "10m" or "2d"')
    wanted, remedy = _WANTED.get(kind, _WANTED["string_type"])
    found = _FOUND.get(type(value), "a date or time")
    if found == wanted:
        return Fault("it is too large", "write a smaller number")
    return Fault(f"it is {found}, and has to be {wanted}", remedy)


def _choice_fault(text: str, choices: list[str]) -> Fault:
    near = nearest(text, choices)
    options = " or ".join(f'"{it}"' for it in choices)
    remedy = f'did you mean "{near}"? It may be {options}' if near else f"write {options}"
    return Fault("it is not one of the choices", remedy)


def _take_out(values: dict[str, Any], place: tuple[int | str, ...]) -> None:
    """Takes an unfit value out; of a table in quotes just the entry."""
    name, *inside = place
    if inside and isinstance(inside[0], str):
        values[str(name)] = {key: it for key, it in values[str(name)].items() if key != inside[0]}
    else:
        values.pop(str(name), None)


def _neutral_value(annotation: Any) -> Any:
    if type(None) in get_args(annotation):
        return None
    if get_origin(annotation) is Literal:
        return get_args(annotation)[0]
    if annotation in (int, timedelta):
        return annotation(1)
    return {tuple: (), dict: {}}.get(get_origin(annotation), "")


#: By name: the table, and whether it may be missing.
_TABLES = {
    name: (table, field.default is None)
    for name, field in Settings.model_fields.items()
    if name != "policies" and (table := table_in(field.annotation)) is not None
}


def load(path: Path | None, environ: Mapping[str, str], *, needs_policies: bool = True) -> Settings:
    """Returns the settings in the file at `path`, or else BUCKETWISE_CONFIG, or else ./bucketwise.toml.

    Raises ConfigError, which holds every problem."""
    path = path or (Path(environ[PATH_VARIABLE]) if environ.get(PATH_VARIABLE) else DEFAULT_PATH)
    return settings_in(_read(path), path, environ, needs_policies=needs_policies)


def settings_in(
    text: str, path: Path, environ: Mapping[str, str], *, needs_policies: bool = True
) -> Settings:
    """Returns the settings that a policy file of this text has; `path` is where it lies, or will. Raises
    ConfigError; without `needs_policies` not for want of a policy."""
    written, variables = override(_parse(text, path), environ)
    report = ProblemReport(str(path), written, lines_of(text), variables)
    document = expand(written, environ, variables, report)
    settings = _settings(document, path, report, needs_policies=needs_policies)
    check_mongodb(settings.mongodb, report)
    if settings.store is not None:
        check_store(settings.store, report)
        check_object_lock(settings.store, report)
    check_work(settings.work, report)
    check_notify(settings.notify, report)
    check_drill(settings, report)
    check_lake(settings, report)
    check_publish(settings, report)
    for policy in settings.policies.values():
        check_policy(policy, settings.store is not None, report)
        check_storage_class(policy, settings.store, report)
    check_identities(settings.policies.values(), report)
    check_targets(settings.policies.values(), settings.mongodb.database, report)
    if report.problems:
        raise ConfigError(report.problems)
    deprecated.warn(report.former_names)
    store = settings.store and _without_slashes(settings.store)
    lake = settings.lake
    if lake is not None and lake.namespace is None:
        lake = lake.model_copy(update={"namespace": settings.mongodb.database})
    policies = settings.policies
    if settings.throttle.model_fields_set:
        policies = {
            name: it.model_copy(update={"throttle": it.throttle.within(settings.throttle)})
            for name, it in policies.items()
        }
    return settings.model_copy(update={"store": store, "lake": lake, "policies": policies})


def _without_slashes(store: Store) -> Store:
    """Returns a store whose URLs, and those of its copies, have no slash at their end."""
    copies = tuple(it.model_copy(update={"url": it.url.removesuffix("/")}) for it in store.copies)
    return store.model_copy(update={"url": store.url.removesuffix("/"), "copies": copies})


def policy_in(text: str, place: str) -> Policy:
    """Returns the only policy that a text has, as `policy_toml` gives it. Raises ConfigError, which says
    where the text stands: its `place`."""
    written = _parse(text, Path(place))
    report = ProblemReport(place, written, lines_of(text), {})
    ((name, table),) = expand(written, {}, {}, report)["policies"].items()
    policy = read_policy(table, ("policies", name), report)
    if report.problems:
        raise ConfigError(report.problems)
    return policy


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        remedy = f"name it with --config or {PATH_VARIABLE}, or put {DEFAULT_PATH} into the working directory"
        fault = Fault("there is no such file", remedy)
    except OSError as error:
        fault = Fault(f"it cannot be read: {error.strerror}", "make it a file that this user may read")
    except UnicodeDecodeError as error:
        fault = Fault(f"it is not UTF-8 text (byte {error.start})", "save it as UTF-8")
    raise ConfigError([Problem(str(path), "", None, *fault)])


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        at_line = re.search(r"\(at line ([0-9]+), ", str(error))
        line = int(at_line[1]) if at_line else len(text.splitlines()) or 1
        remedy = "fix the syntax there; text goes in quotes, table names in [ ]"
        fault = Fault(f"it is not valid TOML: {error}", remedy)
    raise ConfigError([Problem(str(path), "", None, *fault, line=line)])


def _settings(
    document: dict[str, Any], path: Path, report: ProblemReport, *, needs_policies: bool
) -> Settings:
    document = known_keys(document, (*TopLevel.model_fields, *_TABLES, "policies"), (), report)
    top = read_table(
        TopLevel, {key: it for key, it in document.items() if key in TopLevel.model_fields}, (), report
    )
    check_metrics_file(top, report)
    policies: dict[str, Policy] = {}
    for name, table in (_table(document, ("policies",), report) or {}).items():
        key = ("policies", name)
        if (table := _table({name: table}, key, report)) is not None:
            policies[name] = read_policy(table, key, report)
    if not policies and needs_policies:
        remedy = "add [policies.NAME] for each collection to manage"
        report.add(("policies",), Fault("there is no policy", remedy))
    read: dict[str, Any] = {}
    for name, (model, is_optional) in _TABLES.items():
        table = _table(document, (name,), report)
        read[name] = (
            None if table is None and is_optional else read_table(model, table or {}, (name,), report)
        )
    metrics_file = None if top.metrics_file is None else Path(top.metrics_file)
    return Settings.model_validate({**read, "metrics_file": metrics_file, "policies": policies, "path": path})


def _table(tables: dict[str, Any], key: Key, report: ProblemReport) -> dict[str, Any] | None:
    """Returns the table that stands at `key`; None, and a problem, where something else does."""
    value = tables.get(key[-1])
    if value is None or isinstance(value, dict):
        return value
    fault = Fault("it has to be a table", f"write [{dotted(key)}], and its keys below")
    report.broken(key, None if value is UNEXPANDED else fault)
    return None


_NAME = r"""(?:[A-Za-z0-9_-]+|"[^"\\]*"|'[^']*')"""
_PATH = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_PATH})\s*\]\]?\s*(?:#.*)?")
_ASSIGNMENT = re.compile(rf"\s*({_PATH})\s*=")
_LONG_STRING = re.compile(r'"""|\'\'\'')


def lines_of(text: str) -> dict[Key, int]:
    """Returns the line, from 1, of every table and key that begins one. Keys inside `{…}` have none. Tables
    of a list are counted from 1."""
    lines: dict[Key, int] = {}
    counted: Counter[Key] = Counter()
    table: Key = ()
    in_string = False
    for number, line in enumerate(text.splitlines(), start=1):
        if not in_string:
            if header := _HEADER.fullmatch(line):
                table = _names(header[1])
                lines.setdefault(table, number)
                if line.lstrip().startswith("[["):
                    counted[table] += 1
                    table = (*table, str(counted[table]))
                    lines.setdefault(table, number)
            elif assignment := _ASSIGNMENT.match(line):
                lines.setdefault((*table, *_names(assignment[1])), number)
        in_string ^= len(_LONG_STRING.findall(line)) % 2 == 1
    return lines


def _names(path: str) -> Key:
    return tuple(name.strip("\"'") for name in re.findall(_NAME, path))
