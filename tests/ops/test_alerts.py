"""The alert rules: what fires when, what each asks for, and where its runbook is."""

from __future__ import annotations

import re
import subprocess
from datetime import timedelta
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from bucketwise.jobs.schedule.troubles import MOST_AGE, MOST_LAG
from tests.docs.pages import ROOT, anchor, code, headings, rows, told
from tests.ops.debian import program
from tests.ops.watched import ALERTS, Prometheus, names

TESTS = ROOT / "ops" / "alerts.test.yml"
RUNBOOK = ROOT / "docs" / "runbook.md"


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]
    return found


def metrics() -> set[str]:
    return {code(row[0]) for row in rows(told("Metrics and health"))}


@pytest.mark.proof
@pytest.mark.process
def test_they_fire_when_they_should() -> None:
    """And not just before."""
    command = [program("promtool", "prometheus"), "test", "rules", TESTS.name]
    ran = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_is_tested_both_ways() -> None:
    asked = [it for test in yaml.safe_load(TESTS.read_text())["tests"] for it in test["alert_rule_test"]]
    alerts = {rule["alert"] for rule in rules()}
    assert {it["alertname"] for it in asked if it.get("exp_alerts")} == alerts
    assert {it["alertname"] for it in asked if not it.get("exp_alerts")} == alerts


def test_each_has_an_entry_in_the_runbook() -> None:
    anchors = {anchor(it) for it in headings(RUNBOOK)[1:]}
    linked = set()
    for rule in rules():
        page, _, place = rule["annotations"]["runbook_url"].partition("#")
        assert ROOT / page == RUNBOOK
        assert place == rule["alert"].lower()
        linked.add(place)
    assert linked == anchors


def test_they_ask_for_metrics_that_there_are() -> None:
    for rule in rules():
        asked = names(rule["expr"])
        assert asked and asked <= metrics(), rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_the_runbook_names_metrics_that_there_are() -> None:
    assert names(re.sub(r"`bucketwise_quarantine`", "", RUNBOOK.read_text())) <= metrics()


@pytest.mark.proof
def test_prometheus_evaluates_them_and_none_fires_where_all_is_well(watched: Prometheus) -> None:
    (group,) = watched.ask("rules")["groups"]
    found = {rule["name"]: rule for rule in group["rules"]}
    assert set(found) == {rule["alert"] for rule in rules()}
    assert {rule["health"] for rule in found.values()} == {"ok"}
    assert [name for name, rule in found.items() if rule["state"] == "firing"] == []


def test_the_page_of_the_service_has_the_same_limits() -> None:
    alerts = {it["alert"]: it["expr"] for it in rules()}
    for name, limit in {
        "BucketwiseRollupLag": MOST_LAG["rollup"],
        "BucketwiseArchiveLag": MOST_LAG["archive"],
        "BucketwiseAuditMissing": MOST_AGE["audit"],
        "BucketwiseDrillMissing": MOST_AGE["drill"],
    }.items():
        count, length = re.findall(r"> (\d+) \* (\d+)", alerts[name])[0]
        assert timedelta(seconds=int(count) * int(length)) == limit, name
