"""The dashboard: every panel asks for something that there is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.ops.test_alerts import metrics
from tests.ops.watched import Prometheus, names

DASHBOARD: dict[str, Any] = json.loads((ROOT / "ops" / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = [it for it in DASHBOARD["panels"] if it["type"] != "row"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]


@pytest.mark.proof
@pytest.mark.parametrize(("title", "expression"), QUERIES)
def test_each_query_gives_data(title: str, expression: str, watched: Prometheus) -> None:
    """Of the file that runs write, for all policies and for one."""
    for policy in (".*", "ticks"):
        asked = expression.replace("$policy", policy).replace("$__rate_interval", "5m")
        assert "$" not in asked
        for name in names(asked):
            asked = asked.replace(name + "{", name + '{job="file", ')
        found = watched.query(asked)
        assert found, f"{title}: {asked} gives nothing"
        assert all(it["value"][1] not in ("NaN", "+Inf", "-Inf") for it in found)
        if policy == "ticks" and "policy" in found[0]["metric"]:
            assert {it["metric"]["policy"] for it in found} == {"ticks"}


@pytest.mark.proof
def test_its_variable_gives_the_policies(watched: Prometheus) -> None:
    (variable,) = [it for it in DASHBOARD["templating"]["list"] if it["name"] == "policy"]
    asked = variable["query"]["query"]
    assert asked == "label_values(bucketwise_last_run_timestamp_seconds, policy)"
    found = watched.query("count by (policy) (bucketwise_last_run_timestamp_seconds)")
    assert {it["metric"]["policy"] for it in found} == {"ticks", "iot"}


def test_every_metric_has_its_place() -> None:
    assert {name for _, expression in QUERIES for name in names(expression)} == metrics()


def test_panels_are_told_apart_and_lie_beside_each_other() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken and grid["x"] + grid["w"] <= 24, panel["title"]
        taken |= cells
    for panel in PANELS:
        assert panel["description"] and panel["fieldConfig"]["defaults"]["unit"]
        for it in (panel, *panel["targets"]):
            assert it["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.proof
def test_the_service_serves_what_runs_write(watched: Prometheus) -> None:
    """`audit`, `drill` and `verify` are no runs of the service."""
    served = {
        job: {it["metric"]["__name__"] for it in watched.query(f'{{__name__=~"bucketwise_.+", job="{job}"}}')}
        for job in ("file", "service")
    }
    assert served["file"] == metrics()
    assert served["file"] - served["service"] == {
        "bucketwise_audit_findings",
        "bucketwise_drill_differing_buckets",
    }
