"""Loads the policy file into settings. Finds every problem in one pass, before anything is touched."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config.checks.drill import check_drill
from config.checks.lake import check_lake
from config.checks.ledger import check_ledger
from config.checks.locations import check_mongodb, check_store
from config.checks.metrics import check_metrics_file
from config.checks.notify import check_notify
from config.checks.policy import check_policy
from config.checks.publish import check_publish
from config.checks.storage import check_object_lock, check_storage_class
from config.checks.targets import check_targets
from config.checks.throttle import check_throttle
from config.loading.environment import UNEXPANDED, expand, override
from config.loading.lines import lines_of
from config.loading.tables import known_keys, read_table
from config.policies import Policy, Settings
from config.problems import ConfigError, Fault, Key, Problem, Report, dotted
from config.tables import Drill, Lake, MongoDB, Notify, Publish, RunLedger, Store, Throttle, TopLevel, Workers
from config.work import check_work

PATH_VARIABLE = "BUCKETWISE_CONFIG"
_TABLES = ("mongodb", "store", "work", "ledger", "notify", "drill", "lake", "publish", "throttle", "policies")
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
    report = Report(str(path), written, lines_of(text), variables)
    document = expand(written, environ, variables, report)
    settings = _settings(document, path, report, needs_policies=needs_policies)
    check_mongodb(settings.mongodb, report)
    if settings.store is not None:
        check_store(settings.store, report)
        check_object_lock(settings.store, report)
    check_work(settings.work, report)
    check_ledger(settings.ledger, report)
    check_notify(settings.notify, report)
    check_drill(settings, report)
    check_lake(settings, report)
    check_publish(settings, report)
    check_throttle(settings.throttle, ("throttle",), report)
    for policy in settings.policies.values():
        check_policy(policy, settings.store is not None, report)
        check_storage_class(policy, settings.store, report)
        check_throttle(policy.throttle, ("policies", policy.name, "throttle"), report)
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


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        mend = f"name it with --config or {PATH_VARIABLE}, or put {DEFAULT_PATH} into the working directory"
        fault = Fault("there is no such file", mend)
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
        mend = "fix the syntax there; text goes in quotes, table names in [ ]"
        fault = Fault(f"it is not valid TOML: {error}", mend)
    raise ConfigError([Problem(str(path), "", None, *fault, line=line)])


def _settings(document: dict[str, Any], path: Path, report: Report, *, needs_policies: bool) -> Settings:
    document = known_keys(document, (*TopLevel.model_fields, *_TABLES), (), report)
    top = read_table(TopLevel, {key: it for key, it in document.items() if key not in _TABLES}, (), report)
    check_metrics_file(top, report)
    policies: dict[str, Policy] = {}
    for name, table in (_table(document, ("policies",), report) or {}).items():
        key = ("policies", name)
        if (table := _table({name: table}, key, report)) is not None:
            policies[name] = read_table(Policy, table, key, report, name=name)
    if not policies and needs_policies:
        mend = "add [policies.NAME] for each collection to manage"
        report.add(("policies",), Fault("there is no policy", mend))
    mongodb = _table(document, ("mongodb",), report) or {}
    store = _table(document, ("store",), report)
    work = _table(document, ("work",), report) or {}
    ledger = _table(document, ("ledger",), report) or {}
    notify = _table(document, ("notify",), report) or {}
    drill = _table(document, ("drill",), report) or {}
    lake = _table(document, ("lake",), report)
    publish = _table(document, ("publish",), report) or {}
    throttle = _table(document, ("throttle",), report) or {}
    return Settings(
        mongodb=read_table(MongoDB, mongodb, ("mongodb",), report),
        store=None if store is None else read_table(Store, store, ("store",), report),
        work=read_table(Workers, work, ("work",), report),
        ledger=read_table(RunLedger, ledger, ("ledger",), report),
        metrics_file=None if top.metrics_file is None else Path(top.metrics_file),
        notify=read_table(Notify, notify, ("notify",), report),
        drill=read_table(Drill, drill, ("drill",), report),
        lake=None if lake is None else read_table(Lake, lake, ("lake",), report),
        publish=read_table(Publish, publish, ("publish",), report),
        throttle=read_table(Throttle, throttle, ("throttle",), report),
        policies=policies,
        path=path,
    )


def _table(tables: dict[str, Any], key: Key, report: Report) -> dict[str, Any] | None:
    """Returns the table that stands at `key`; None, and a problem, where something else does."""
    value = tables.get(key[-1])
    if value is None or isinstance(value, dict):
        return value
    fault = Fault("it has to be a table", f"write [{dotted(key)}], and its keys below")
    report.broken(key, None if value is UNEXPANDED else fault)
    return None
