"""Checks the path of the metrics file: node_exporter must be able to read it."""

from __future__ import annotations

from pathlib import PurePath

from config.problems import Fault, Report
from config.tables import TopLevel

EXAMPLE = "/var/lib/prometheus/node-exporter/bucketwise.prom"


def check_metrics_file(top: TopLevel, report: Report) -> None:
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
        mend = f'node_exporter reads such files only; write "{EXAMPLE}"'
        return Fault("its name does not end with .prom", mend)
    if not path.isprintable():
        return Fault("it contains a control character", f'write a path such as "{EXAMPLE}"')
    return None
