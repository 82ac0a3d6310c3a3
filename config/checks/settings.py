"""Checks the tables and keys that are about all policies. Connects to nothing."""

from __future__ import annotations

import re
from pathlib import PurePath
from urllib.parse import parse_qs

from bucketwise.config.checks.locations import BOTH, EXECUTOR_REMEDY, executor_fault, url_parts
from bucketwise.config.policies import Policy, Settings
from bucketwise.config.problems import Fault, Key, ProblemReport, nearest
from bucketwise.config.tables import OWN_CATALOG, Notify, PolicyRedis, Redis, TopLevel, Workers

_AT: Key = ("publish", "redis")
_PUBLISH_REMEDY = 'write "redis://host:6379/0", "rediss://host:6379/0" or "unix:///path?db=0"'
_TLS = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
_LATEST = {"latest_hours": "hourly", "latest_days": "daily"}


def check_publish(settings: Settings, report: ProblemReport) -> None:
    """Reports whatever can't be published as configured, of the whole file and of each policy."""
    redis, policies = settings.publish.redis, settings.policies.values()
    if redis is not None:
        if message := _url_fault(redis.url.get_secret_value()):
            report.add((*_AT, "url"), Fault(message, _PUBLISH_REMEDY))
        for key, level in _LATEST.items():
            made = any(level in (it.rollup.targets if it.rollup else {}) for it in policies)
            if getattr(redis, key) is not None and not made:
                report.add((*_AT, key), Fault(f"no policy makes {level} summaries", "remove it"))
        names = {name for policy in policies for name in policy.series_names}
        _check_secondary(redis.secondary, names, _AT, report)
    for policy in policies:
        if policy.publish is not None:
            _check_policy(policy, policy.publish.redis, redis, report)


def _check_policy(policy: Policy, own: PolicyRedis, redis: Redis | None, report: ProblemReport) -> None:
    at: Key = ("policies", policy.name, "publish")
    if redis is None:
        fault = Fault("it is about [publish.redis], and there is none", "add it with a `url`, or remove this")
        report.add(at, fault, rests_on=[_AT])
    elif policy.rollup is None and own.enabled:
        fault = Fault(
            "only summaries are published, and this policy makes none", "add a rollup, or remove this"
        )
        report.add(at, fault, rests_on=[(*at[:2], "rollup")])
    elif policy.rollup is not None:
        for key, level in _LATEST.items():
            if getattr(own, key) is not None and level not in policy.rollup.targets:
                fault = Fault(f"the policy makes no {level} summaries", f"add rollup.{level}, or remove it")
                report.add((*at, "redis", key), fault, rests_on=[(*at[:2], "rollup", level)])
        _check_secondary(own.secondary, set(policy.series_names), (*at, "redis"), report)


def _check_secondary(field: str | None, names: set[str], at: Key, report: ProblemReport) -> None:
    if field is not None and field not in names:
        near = nearest(field, names)
        known = ", ".join(sorted(names)) or "none"
        remedy = f'did you mean "{near}"?' if near else f"write one of the series fields: {known}"
        report.add((*at, "secondary"), Fault("it is not a series field", remedy))


def _url_fault(url: str) -> str | None:
    parts = url_parts(url)
    if isinstance(parts, str):
        return parts
    if parts.scheme not in ("redis", "rediss", "unix"):
        return "not a redis://, rediss:// or unix:// URL"
    is_socket, options = parts.scheme == "unix", parse_qs(parts.query)
    if not (parts.path.strip("/") if is_socket else parts.hostname):
        return "it names no socket" if is_socket else "it names no host"
    number = options.get("db", ["0" if is_socket else parts.path.strip("/") or "0"])[0]
    if not re.fullmatch(r"[0-9]{1,6}", number):
        return "its database is not a number"
    if unknown := set(options) - {"db"} - (_TLS if parts.scheme == "rediss" else set()):
        return f"it can't have the option `{min(unknown)}`; user and password stand before the @"
    return None


def check_drill(settings: Settings, report: ProblemReport) -> None:
    """Reports a `drill` table without an archive."""
    drill = settings.drill
    if drill.model_fields_set and not any(it.archiving for it in settings.policies.values()):
        fault = Fault("no policy has an archive that could be drilled", "remove the table")
        report.add(("drill",), fault)


def check_lake(settings: Settings, report: ProblemReport) -> None:
    """Reports properties of the own catalog, and a `lake` table without an offline archive."""
    lake = settings.lake
    if lake is None:
        return
    if not any(it.has_parts for it in settings.policies.values()):
        fault = Fault(
            "no policy has an offline archive, and only these become Iceberg tables", "remove the table"
        )
        report.add(("lake",), fault)
    if settings.store is not None and settings.store.is_encrypted:
        what = "bounds of columns would stand in its metadata, which nothing encrypts"
        report.add(("lake",), Fault(what, "leave out `lake`, or store.encryption_key and store.key_command"))
    if lake.catalog == OWN_CATALOG and lake.properties:
        fault = Fault(
            f"the catalog `{OWN_CATALOG}` is kept in MongoDB, and has no properties",
            "name your catalog with `catalog`, or remove the properties",
        )
        report.add(("lake", "properties"), fault)


EXAMPLE = "/var/lib/prometheus/node-exporter/bucketwise.prom"


def check_metrics_file(top: TopLevel, report: ProblemReport) -> None:
    """Reports a `metrics_file` that node_exporter would not read, or whose path is relative."""
    if top.metrics_file is None:
        return
    if fault := metrics_file_fault(top.metrics_file):
        report.add(("metrics_file",), fault)
    elif not PurePath(top.metrics_file).is_absolute():
        report.add(("metrics_file",), Fault("it is not an absolute path", f'write "{EXAMPLE}"'))


def metrics_file_fault(path: str) -> Fault | None:
    """Returns what is wrong with the name; None where nothing is."""
    if not path.endswith(".prom") or PurePath(path).name == ".prom":
        remedy = f'node_exporter reads such files only; write "{EXAMPLE}"'
        return Fault("its name does not end with .prom", remedy)
    if not path.isprintable():
        return Fault("it contains a control character", f'write a path such as "{EXAMPLE}"')
    return None


_REMEDY = 'write "https://host/path", as the monitoring service shows it'


def check_notify(notify: Notify, report: ProblemReport) -> None:
    """Reports URLs that can't be called, and a `notify.on` without a `notify.url`. Connects to nothing."""
    for key, url in notify.urls.items():
        parts = url_parts(url.get_secret_value())
        if isinstance(parts, str):
            report.add(("notify", key), Fault(parts, _REMEDY))
        elif parts.scheme not in ("http", "https") or not parts.hostname:
            report.add(("notify", key), Fault("not an http:// or https:// URL", _REMEDY))
    if notify.url is None and notify.on != Notify().on:
        fault = Fault("nothing is sent without `notify.url`", "add `url`, or remove `on`")
        report.add(("notify", "on"), fault, rests_on=[("notify", "url")])


def check_work(work: Workers, report: ProblemReport) -> None:
    """Reports an address of an executor that is not valid, and one beside workers. Connects to nothing."""
    if work.executor is not None and (message := executor_fault(work.executor)):
        report.add(("work", "executor"), Fault(message, EXECUTOR_REMEDY))
    if work.executor is not None and work.workers > 1:
        fault = Fault(BOTH, "remove one of the two")
        report.add(("work", "executor"), fault, rests_on=[("work", "workers")])
