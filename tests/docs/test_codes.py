"""Exit codes, findings, collections and metrics: what the code has, the pages explain, and nothing else."""

from __future__ import annotations

import ast
import re
from datetime import UTC, datetime
from typing import get_args

from bucketwise.config.errors import BucketwiseError
from bucketwise.jobs.audit.remedies import REMEDIES
from bucketwise.jobs.check.verb import OWN_COLLECTIONS
from bucketwise.jobs.core.failures import OUTCOMES
from bucketwise.jobs.core.findings import Severity
from bucketwise.jobs.core.gauges import GAUGES
from bucketwise.jobs.core.metrics import Metrics
from bucketwise.jobs.core.turn import FAILED, LEFT_SOMETHING, NOT_KEPT
from bucketwise.jobs.output.report import PRECEDENCE, Measures, Report, Result
from bucketwise.jobs.receipts import EVENTS, event
from tests.docs.pages import ROOT, code, prose, rows, section

EXIT_CODES = ROOT / "docs" / "exit-codes.md"
OPERATIONS = ROOT / "docs" / "operations.md"
_OF_CHECK = ("jobs/check/checks.py", "jobs/core/fit.py", "archivers/preconditions.py")
_OF_BOTH = "jobs/core/lease.py"
_MAKERS = {"Finding", "_finding", "Problem", "_halting", "DamagedError", "Damage"}


def test_every_exit_code_is_explained() -> None:
    said = {int(row[0]): row for row in rows(prose(EXIT_CODES))}
    classes: list[type[BucketwiseError]] = [BucketwiseError, *BucketwiseError.__subclasses__()]
    raised = {it.exit_code for it in classes} | {FAILED, LEFT_SOMETHING, NOT_KEPT}
    assert raised <= set(said)
    assert {number: row[1] for number, row in said.items()} == OUTCOMES
    assert all(row[2] and row[3] for row in said.values())


def test_the_order_of_exit_codes_is_told() -> None:
    assert ", ".join(map(str, PRECEDENCE)) in prose(EXIT_CODES).replace("\n", " ")
    assert set(PRECEDENCE) == set(OUTCOMES)


def test_every_kind_of_receipt_is_told_to_people() -> None:
    (row,) = (
        it for it in rows(section(ROOT / "docs" / "archive-format.md", "Receipts")) if code(it[0]) == "kind"
    )
    kinds = set(re.findall(r"`(\w+)`", row[1])) - {"delete"}
    assert EVENTS.keys() < kinds
    fields = {
        "hold": "x",
        "by": "ann",
        "commit": "c",
        "reason": "why",
        "of": [1, 2],
        "recorded": datetime.now(UTC),
    }
    told = {event({"kind": kind, **fields}) for kind in kinds}
    assert len(told) == len(kinds)


def _findings_in(*files: str) -> dict[str, set[str]]:
    """Of the calls that make findings: the code, which is the first argument, and the severities."""
    found: dict[str, set[str]] = {}
    for file in files:
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _called(node) in _MAKERS:
                texts = [it.value if isinstance(it, ast.Constant) else None for it in node.args]
                severities = {str(it) for it in texts if it in get_args(Severity)}
                if texts and isinstance(texts[0], str):
                    found.setdefault(texts[0], set()).update(severities or {"error"})
    return found


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _said(heading: str) -> dict[str, set[str]]:
    found = list(rows(section(OPERATIONS, heading)))
    assert all(len(row) == 4 and all(row) for row in found)
    return {code(row[0]): set(row[1].split(", ")) for row in found}


def findings_of_check() -> dict[str, set[str]]:
    steps = ("jobs/check/verb.py", "jobs/core/throttle.py")
    return _findings_in(*_OF_CHECK, *steps, _OF_BOTH)


def findings_of_audit() -> dict[str, set[str]]:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "archivers").rglob("*.py")} - {*_OF_CHECK}
    steps = ("jobs/audit/audit.py", "jobs/lake.py", "jobs/publish/verb.py")
    return _findings_in(*sorted(files), _OF_BOTH, *steps)


def test_every_finding_of_check_is_explained() -> None:
    found = findings_of_check()
    assert found["index-missing"] == {"warning"}
    assert found == _said("Findings of check")


def test_every_finding_of_audit_is_explained() -> None:
    found = findings_of_audit()
    assert found["overdue"] == found["part-missing"] == {"error"}
    assert found == _said("Findings of audit")


def test_what_to_do_about_each_finding_of_audit_is_told_in_the_same_words() -> None:
    told = {code(row[0]): row[3] for row in rows(section(OPERATIONS, "Findings of audit"))}
    assert {name: re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text) for name, text in told.items()} == REMEDIES


def test_every_collection_of_bucketwise_is_explained() -> None:
    said = [code(row[0]) for row in rows(section(OPERATIONS, "bucketwise's own collections"))]
    assert sorted(said) == sorted(OWN_COLLECTIONS)


def test_every_metric_is_explained() -> None:
    metrics = Metrics()
    now = datetime(2018, 9, 1, tzinfo=UTC)
    archive = {"buckets": 1, "readings": 1, "bytes": 1, "deleted": 1, "left": 0, "quarantined": 0}
    measures = Measures(now, {"rollup": 1.0}, {"put": 1}, 0, dict.fromkeys(GAUGES, 0.0))
    result = Result("ticks", 0, {"rollup": {"readings": 1}, "archive": archive}, measures=measures)
    assert Report("run", now, [result]).exit_code == 0
    metrics.record("run", result)
    metrics.record("audit", Result("ticks", 0, {"findings": []}))
    metrics.record("drill", Result("ticks", 0, {"differing": 0}))
    said = {code(row[0]): row[1:] for row in rows(section(OPERATIONS, "Metrics and health"))}
    kinds = dict(re.findall(r"(?m)^# TYPE (bucketwise_\w+) (\w+)$", metrics.text().decode()))
    samples = re.findall(r"(?m)^(bucketwise_\w+)\{(.*)\} ", metrics.text().decode())
    assert set(said) == {name for name, _ in samples} == set(kinds)
    for name, labels in samples:
        kind, named, meaning = said[name]
        assert kind == kinds[name] and meaning
        assert set(named.split(", ")) == set(re.findall(r'(\w+)="', labels))
