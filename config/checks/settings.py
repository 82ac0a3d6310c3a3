"""Checks the tables and keys that are about all policies. Connects to nothing."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import PurePath
from urllib.parse import urlsplit

from config.durations import format_duration
from config.policies import Settings
from config.problems import Fault, Key, ProblemReport
from config.tables import OWN_CATALOG, Notify, RunLedger, Throttle, TopLevel

SHORTEST = timedelta(days=1)


def check_drill(settings: Settings, report: ProblemReport) -> None:
    """Reports drills that are too small or too frequent, and a `drill` table without an offline archive."""
    drill = settings.drill
    if drill.days < 1:
        report.add(("drill", "days"), Fault("a drill covers at least one day", "write 1 or more"))
    if drill.every is not None and drill.every < SHORTEST:
        shortest = format_duration(SHORTEST)
        fault = Fault(f"it is shorter than {shortest}", f'write "{shortest}" or longer, or "forever"')
        report.add(("drill", "every"), fault)
    archives = (it.archive for it in settings.policies.values())
    if drill.model_fields_set and not any(it is not None and it.to == "offline" for it in archives):
        fault = Fault("no policy has an offline archive, and only these are drilled", "remove the table")
        report.add(("drill",), fault)


def check_ledger(ledger: RunLedger, report: ProblemReport) -> None:
    """Reports a `ledger.keep` that is too short."""
    if ledger.keep is not None and ledger.keep < SHORTEST:
        shortest = format_duration(SHORTEST)
        fault = Fault(f"it is shorter than {shortest}", f'write "{shortest}" or longer, or "forever"')
        report.add(("ledger", "keep"), fault)


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAMED = "use 1 to 64 letters, digits, `_` and `-`"


def check_lake(settings: Settings, report: ProblemReport) -> None:
    """Reports invalid catalog names and namespaces, and a `lake` table without an offline archive."""
    lake = settings.lake
    if lake is None:
        return
    archives = (it.archive for it in settings.policies.values())
    if not any(it is not None and it.to == "offline" for it in archives):
        fault = Fault(
            "no policy has an offline archive, and only these become Iceberg tables", "remove the table"
        )
        report.add(("lake",), fault)
    if not _NAME.fullmatch(lake.catalog):
        report.add(("lake", "catalog"), Fault("it is not a valid catalog name", _NAMED))
    if lake.namespace is not None and not all(map(_NAME.fullmatch, lake.namespace.split("."))):
        remedy = f"{_NAMED}; a dot between a namespace and one inside it"
        report.add(("lake", "namespace"), Fault("it is not a valid namespace name", remedy))
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
        if message := _url_fault(url.get_secret_value()):
            report.add(("notify", key), Fault(message, _REMEDY))
    if notify.url is None and notify.on != Notify().on:
        fault = Fault("nothing is sent without `notify.url`", "add `url`, or remove `on`")
        report.add(("notify", "on"), fault, rests_on=[("notify", "url")])


def _url_fault(url: str) -> str | None:
    if re.search(r"[^\x21-\x7e]", url):
        return "a URL has no spaces, control characters or letters outside ASCII"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "not a valid URL"
    if parts.scheme not in ("http", "https") or not host:
        return "not an http:// or https:// URL"
    return "its port is 0" if port == 0 else None


#: MongoDB tells the times of members in whole seconds.
_LEAST_LAG = timedelta(seconds=1)


def check_throttle(throttle: Throttle, at: Key, report: ProblemReport) -> None:
    """Reports a `max_lag` shorter than secondaries normally are behind. `at`: the key of the table."""
    if throttle.max_lag is not None and throttle.max_lag < _LEAST_LAG:
        fault = Fault("replication lag is rarely that low", 'write "1s" or more, such as "10s", or "forever"')
        report.add((*at, "max_lag"), fault)
