"""Loads the policy file into settings. Finds every problem in one pass, before anything is touched."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bucketwise.config.checks.locations import (
    check_mongodb,
    check_object_lock,
    check_storage_class,
    check_store,
)
from bucketwise.config.checks.policy import check_policy
from bucketwise.config.checks.settings import (
    check_drill,
    check_lake,
    check_metrics_file,
    check_notify,
    check_publish,
    check_work,
)
from bucketwise.config.checks.targets import check_identities, check_targets
from bucketwise.config.loading.tables import (
    UNEXPANDED,
    expand,
    known_keys,
    override,
    read_policy,
    read_table,
    table_in,
)
from bucketwise.config.policies import Policy, Settings
from bucketwise.config.problems import ConfigError, Fault, Key, Problem, ProblemReport, dotted
from bucketwise.config.tables import TopLevel

PATH_VARIABLE = "BUCKETWISE_CONFIG"
#: By name: the table, and whether it may be missing.
_TABLES = {
    name: (table, field.default is None)
    for name, field in Settings.model_fields.items()
    if name != "policies" and (table := table_in(field.annotation)) is not None
}
DEFAULT_PATH = Path("bucketwise.toml")


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
    store = settings.store and settings.store.model_copy(update={"url": settings.store.url.removesuffix("/")})
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
