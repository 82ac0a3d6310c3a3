"""The glossary has each term once, and what users type or read is explained where it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bucketwise.config.models import MODELS, POLICY_FIELDS
from bucketwise.jobs.suite import ENTRIES
from tests.docs.pages import ROOT, anchor, prose, told
from tests.docs.test_codes import findings_of_audit, findings_of_check
from tests.docs.test_policies import TABLES
from tests.jobs.place import Place

PAGE = ROOT / "docs" / "glossary.md"
TERMS = re.findall(r"(?m)^- \*\*(.+?)\*\*: ", prose(PAGE))
_HEADING = re.compile(r"(?m)^#+ (.*)$")
POLICY = """
[policies.ticks]
collection = "ticks"
model = "slots"
time_field = "d"
series_fields = ["symbol"]
value_fields = ["p"]
slot = "second"
expected_interval = "1s"
[policies.ticks.rollup]
hourly = "ticks_hourly"
daily = "ticks_daily"
percentiles = [50, 99.9]
"""


def _explained() -> str:
    """The glossary, and what it links to: pages, or sections of them with those below."""
    links = re.findall(r"\]\(([\w.-]+\.md)(?:#([\w-]+))?\)", prose(PAGE))
    return PAGE.read_text() + "".join(_linked(PAGE.parent / page, heading) for page, heading in links)


def _linked(page: Path, heading: str) -> str:
    text = page.read_text(encoding="utf-8")
    if not heading:
        return text
    (start,) = (it for it in _HEADING.finditer(text) if anchor(it[1]) == heading)
    depth = text[start.start() :].index(" ")
    end = re.search(rf"(?m)^#{{1,{depth}}} ", text[start.end() :])
    return text[start.start() : start.end() + end.start() if end else len(text)]


EXPLAINED = _explained()


def _models() -> list[str]:
    return list(MODELS)


def test_each_term_is_there_once_in_order() -> None:
    assert len(TERMS) > 60
    assert [term.lower() for term in TERMS] == sorted({term.lower() for term in TERMS})


@pytest.mark.parametrize("verb", ENTRIES)
def test_verbs(verb: str) -> None:
    assert told(f"`{verb}`")


@pytest.mark.parametrize(
    "key",
    sorted(
        {it.alias or key for table in TABLES.values() for key, it in table.model_fields.items()}
        | POLICY_FIELDS.keys() - {"name"}
    ),
)
def test_policy_keys(key: str) -> None:
    assert f"`{key}`" in EXPLAINED


@pytest.mark.parametrize("code", sorted({*findings_of_check(), *findings_of_audit()}))
def test_findings(code: str) -> None:
    assert f"| `{code}` |" in EXPLAINED


@pytest.mark.parametrize("model", _models())
def test_bucket_models(model: str) -> None:
    assert f"# `{model}`\n" in EXPLAINED


def _names(document: dict[str, Any]) -> set[str]:
    found = set(document)
    for value in document.values():
        found |= _names(value) if isinstance(value, dict) else set()
    return found


@pytest.mark.proof
def test_fields_of_summaries(place: Place) -> None:
    """Of all that summaries have: each is in the section that shows one, or in those below it."""
    place.write_config(POLICY)
    assert place("rollup").code == 0
    found: set[str] = set()
    for name in ("ticks_hourly", "ticks_daily"):
        for document in place.database[name].find():
            found |= _names(document)
    assert {"coverage", "p99_9", "longest_hole_at", "state", "hours"} <= found
    section = _linked(ROOT / "docs" / "summaries.md", "what-a-summary-looks-like")
    assert {name for name in found if not re.search(rf"(?m)(?:^|[\s{{`]){name}(?::|`)", section)} == set()
