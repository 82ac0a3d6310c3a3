"""The site: its pages of reference tell what there is, and all of it is built without a network."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bucketwise import __version__
from bucketwise.config.models import POLICY_FIELDS
from bucketwise.jobs.suite import ENTRIES, all_jobs
from tests.docs.pages import ROOT


def _reference() -> Any:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.proof
def test_the_pages_of_reference_tell_all_that_there_is() -> None:
    pages = _reference().pages()
    told = {name: set(re.findall(r"(?m)^(?:#+ |\| )`([^`]+)`", text)) for name, text in pages.items()}
    assert told["reference/commands.md"] >= ENTRIES.keys() | {"--since", "--workers"}
    assert told["reference/json.md"] >= ENTRIES.keys() | {"removed_bytes", "problems"}
    keys = {field.alias or name for name, field in POLICY_FIELDS.items() if name != "name"}
    assert told["reference/policy-keys.md"] >= keys | {"policies.NAME.rollup.levels", "uri", "metrics_file"}
    findings = {it.code for job in all_jobs() for it in (*job.checked, *job.audited)}
    assert told["reference/findings.md"] == findings
    assert "bucketwise_runs_total" in told["reference/metrics.md"]
    assert "| `after` | duration | required | A bucket has expired" in pages["reference/policy-keys.md"]


@pytest.mark.proof
@pytest.mark.process
def test_the_site_is_built_beside_older_versions_and_asks_for_nothing_elsewhere(tmp_path: Path) -> None:
    """Links and anchors are checked as it is built."""
    for name in ("0.0.10", "0.0.9", "notes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(name)
    mkdocs = Path(sys.executable).with_name("mkdocs")
    proxies = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:1")
    built = subprocess.run(
        [mkdocs, "build", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1", **proxies},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    told = json.loads((tmp_path / "versions.json").read_text())
    assert [it["version"] for it in told] == [__version__, "0.0.10", "0.0.9"]
    assert [it["aliases"] for it in told] == [["latest"], [], []]
    assert f"url={__version__}/index.html" in (tmp_path / "index.html").read_text()
    assert (tmp_path / "0.0.9" / "index.html").read_text() == "0.0.9"
    site = tmp_path / __version__
    sources = {it.stem for it in (ROOT / "docs").rglob("*.md")} - {"README"}
    pages = {it.stem: it.read_text(encoding="utf-8") for it in site.rglob("*.html")}
    assert sources <= pages.keys()
    loaded = re.compile(r"<(?:script|img|link)[^>]* (?:src|href)=\"?(https?://[^\" >]+)")
    assert {url for text in pages.values() for url in loaded.findall(text)} == set()
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "archive_grace" in index and "tombstone" in index
    assert (site / "bucketwise.schema.json").exists()
