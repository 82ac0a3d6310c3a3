"""What people who join meet: the workflow, the hooks, the templates, and the files that the pages name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.docs.pages import PAGES, ROOT, name, prose

_FOLDERS = ("config", "buckets", "rollups", "archivers", "jobs", "bucketwise", "tests", "bench", "docs")
_FILE = re.compile(rf"`((?:{'|'.join(_FOLDERS)})/[\w./-]*)`")


def _yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [it for it in PAGES if it.name != "CHANGELOG.md"], ids=name)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    assert [path for path in _FILE.findall(prose(page)) if not (ROOT / path).exists()] == []


def test_the_workflow_runs_what_ci_runs_with_every_python() -> None:
    job = _yaml(".github/workflows/ci.yml")["jobs"]["test"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = {it.rpartition(" ")[2] for it in project["classifiers"] if "Python :: 3." in it}
    assert set(job["strategy"]["matrix"]["python"]) == supported
    assert job["steps"][-1] == {"run": ".ci/run"}
    assert job["env"] == {"CHANGED_SINCE": "${{ github.event.before }}"}


def test_the_hooks_are_the_linters() -> None:
    (repo,) = _yaml(".pre-commit-config.yaml")["repos"]
    hooked = {" ".join(it["entry"].split()[:2]).replace(" --force-exclude", "") for it in repo["hooks"]}
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert lint is not None
    called = {" ".join(it.split()[:2]) for it in re.findall(r"\$\(BIN\)/(.*)", lint[1])}
    assert {it.removeprefix(".venv/bin/") for it in hooked} == {it.removesuffix(" .") for it in called}


@pytest.mark.parametrize("form", ["bug", "feature"])
def test_issue_forms(form: str) -> None:
    """As GitHub asks: a name, a description, and a label and an id of its own for each field."""
    found = _yaml(f".github/ISSUE_TEMPLATE/{form}.yml")
    fields = [it for it in found["body"] if it["type"] != "markdown"]
    assert found["name"] and found["description"]
    assert all(it["attributes"]["label"] for it in fields)
    assert len({it["id"] for it in fields}) == len(fields)
