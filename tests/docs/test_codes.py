"""Exit codes, findings, collections and metrics: what the code has, the pages explain, and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime

from bucketwise.config.errors import BucketwiseError
from bucketwise.jobs.check.verb import OWN_COLLECTIONS
from bucketwise.jobs.core.gauges import GAUGES
from bucketwise.jobs.core.metrics import Metrics
from bucketwise.jobs.core.turn import FAILED, LEFT_SOMETHING, NOT_KEPT
from bucketwise.jobs.output.report import OUTCOMES, PRECEDENCE, Measures, Report, Result
from bucketwise.jobs.receipts import EVENTS, event
from bucketwise.jobs.suite import all_jobs
from tests.docs.pages import ROOT, code, prose, rows, section, told

EXIT_CODES = ROOT / "docs" / "exit-codes.md"


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
        it for it in rows(section(ROOT / "docs" / "archive-records.md", "Receipts")) if code(it[0]) == "kind"
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
    events = {event({"kind": kind, **fields}) for kind in kinds}
    assert len(events) == len(kinds)


def _said(heading: str) -> dict[str, set[str]]:
    found = list(rows(told(heading)))
    assert all(len(row) == 4 and all(row) for row in found)
    return {code(row[0]): set(row[1].split(", ")) for row in found}


def findings_of_check() -> dict[str, set[str]]:
    return {it.code: set(it.severities) for job in all_jobs() for it in job.checked}


def findings_of_audit() -> dict[str, set[str]]:
    return {it.code: set(it.severities) for job in all_jobs() for it in job.audited}


def test_each_declared_finding_is_made_somewhere() -> None:
    """Whatever is found in a test is declared: see `Ran.json` in tests/jobs/command.py."""
    made: Counter[str] = Counter()
    for path in (it for top in ("archivers", "jobs") for it in (ROOT / top).rglob("*.py")):
        made.update(re.findall(r'"([a-z]+(?:-[a-z]+)*)"', path.read_text(encoding="utf-8")))
    declared = Counter(it.code for job in all_jobs() for it in (*job.checked, *job.audited))
    assert [code for code, count in declared.items() if made[code] <= count] == []


def test_every_finding_of_check_is_explained() -> None:
    found = findings_of_check()
    assert found == _said("Findings of check")


def test_every_finding_of_audit_is_explained() -> None:
    found = findings_of_audit()
    assert found == _said("Findings of audit")


def test_what_to_do_about_each_finding_of_audit_is_told_in_the_same_words() -> None:
    said = {code(row[0]): row[3] for row in rows(told("Findings of audit"))}
    remedies = {it.code: it.remedy for job in all_jobs() for it in job.audited}
    assert {name: re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text) for name, text in said.items()} == remedies


def test_every_collection_of_bucketwise_is_explained() -> None:
    said = [code(row[0]) for row in rows(told("bucketwise's own collections"))]
    assert sorted(said) == sorted(OWN_COLLECTIONS)


def test_every_metric_is_explained() -> None:
    metrics = Metrics()
    now = datetime(2018, 9, 1, tzinfo=UTC)
    archive = {"buckets": 1, "readings": 1, "bytes": 1, "deleted": 1, "left": 0, "quarantined": 0}
    measures = Measures(now, {"rollup": 1.0}, {"put": 1}, 0, dict.fromkeys(GAUGES, 0.0))
    result = Result(
        "ticks", 0, {"rollup": {"readings": 1}, "archive": archive}, has_window=True, measures=measures
    )
    assert Report("run", now, [result]).exit_code == 0
    metrics.record("run", result)
    metrics.record("audit", Result("ticks", 0, {"findings": []}))
    metrics.record("drill", Result("ticks", 0, {"differing": 0}))
    said = {code(row[0]): row[1:] for row in rows(told("Metrics and health"))}
    kinds = dict(re.findall(r"(?m)^# TYPE (bucketwise_\w+) (\w+)$", metrics.text().decode()))
    samples = re.findall(r"(?m)^(bucketwise_\w+)\{(.*)\} ", metrics.text().decode())
    assert set(said) == {name for name, _ in samples} == set(kinds)
    for name, labels in samples:
        kind, named, meaning = said[name]
        assert kind == kinds[name] and meaning
        assert set(named.split(", ")) == set(re.findall(r'(\w+)="', labels))
