"""Checks the tables and keys that are about all policies. Connects to nothing."""

from __future__ import annotations

from pathlib import PurePath

from bucketwise.config.checks.locations import BOTH, EXECUTOR_REMEDY, executor_fault, url_parts
from bucketwise.config.policies import Settings
from bucketwise.config.problems import Fault, ProblemReport
from bucketwise.config.tables import OWN_CATALOG, Notify, TopLevel, Workers


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
