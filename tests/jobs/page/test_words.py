"""Policies in words, and as the text of a policy file."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.config.load import load
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from bucketwise.config.times import parse_duration
from bucketwise.config.written import policy_toml
from bucketwise.jobs.audit.page import spelled, words
from tests.docs.pages import ROOT
from tests.jobs.place import POLICIES

MONTH = timedelta(days=30)
URL = "s3://acme-archive/market"
HEAD = '[mongodb]\nuri = "mongodb://h"\ndatabase = "d"\n[store]\nurl = "file:///tmp/x"\n'


def policy(**said: Any) -> Policy:
    standing = {"name": "ticks", "collection": "ticks", "model": "slots", "time_field": "d"}
    return make_policy(**{**standing, "series_fields": ("symbol",), "value_fields": ("p",), **said})


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, "raw readings stay in ticks; no summaries"),
        ({"archive": {"after": None, "to": "offline"}}, "raw readings stay in ticks; no summaries"),
        ({"archive": {"after": MONTH, "to": "none"}}, "raw readings stay in ticks; no summaries"),
        (
            {"archive": {"after": MONTH, "to": "offline"}, "rollup": {"hourly": "h", "daily": "d"}},
            "raw 30 days in ticks, then Parquet in s3://acme-archive/market/ticks forever; "
            "hourly and daily summaries forever",
        ),
        (
            {
                "archive": {"after": MONTH, "to": "online", "collection": "old", "grace": timedelta(days=7)},
                "rollup": {"hourly": "h", "daily": "d", "levels": ({"name": "5m", "collection": "m"},)},
                "retain": {"hourly": timedelta(days=730), "5m": timedelta(days=730)},
            },
            "raw 30 days in ticks, then the collection old forever (deleted 7 days after the copy was "
            "verified); 5m and hourly summaries 2 years; daily summaries forever",
        ),
        (
            {
                "archive": {"after": MONTH, "to": "offline"},
                "retain": {"archive": timedelta(days=7 * 365), "archive_grace": timedelta(days=7)},
            },
            "raw 30 days in ticks, then Parquet in s3://acme-archive/market/ticks until 7 years old; "
            "no summaries",
        ),
        (
            {"archive": {"after": timedelta(hours=36), "to": "offline", "delete": False}},
            "raw readings stay in ticks, copied to Parquet in s3://acme-archive/market/ticks after 36 hours; "
            "no summaries",
        ),
        (
            {"archive": {"after": MONTH, "to": "offline", "batch": timedelta(weeks=1)}},
            "raw 30 days in ticks, then Parquet in s3://acme-archive/market/ticks forever (in batches of "
            "7 days); no summaries",
        ),
    ],
)
def test_a_policy_in_words(said: dict[str, Any], expected: str) -> None:
    assert words(policy(**said), URL) == expected


def test_measurements_of_native_collections_stay() -> None:
    said = {"model": "timeseries", "archive": {"after": MONTH, "to": "offline"}}
    assert words(policy(**said), URL).startswith("raw readings stay in ticks, copied to Parquet")


@given(st.integers(1, 10**5), st.sampled_from("smhdw"))
def test_a_duration_in_full_is_as_long(count: int, unit: str) -> None:
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}[unit] * count
    if seconds > 36_500 * 86_400:
        return
    number, noun = spelled(parse_duration(f"{count}{unit}")).split()
    length = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "year": 31_536_000}[
        noun.removesuffix("s")
    ]
    assert int(number.replace(",", "")) * length == seconds
    assert noun.endswith("s") == (number != "1")


def _policies() -> dict[str, str]:
    """Texts with policies of all kinds."""
    texts = {it: (ROOT / it).read_text() for it in ("config/example.toml", "jobs/demo/bucketwise.toml")}
    texts["jobs/demo/bucketwise.toml"] = (
        texts["jobs/demo/bucketwise.toml"].replace("<uri>", "mongodb://h").replace("<store>", "file:///tmp/x")
    )
    return {**texts, "tests": HEAD + POLICIES}


@pytest.mark.parametrize("name", _policies())
def test_the_text_of_a_policy_loads_as_the_same_policy(name: str, tmp_path: Path) -> None:
    written, again = tmp_path / "written.toml", tmp_path / "again.toml"
    environment = {"MONGODB_URI": "mongodb://h", "STORE_KEY": "k"}
    written.write_text(_policies()[name])
    policies = load(written, environment).policies
    again.write_text(HEAD + "\n\n".join(map(policy_toml, policies.values())))
    assert load(again, {}).policies == policies
    assert len(policies) > 1 or name != "tests"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_of_a_policy_can_be_read(text: str) -> None:
    import tomllib

    said = policy(collection=text, series_defaults={text: text}, archive={"after": MONTH, "to": "offline"})
    found = tomllib.loads(policy_toml(said))["policies"]["ticks"]
    written = text.replace("${", "$${")  # as a policy file has it
    assert (found["collection"], found["series_defaults"]) == (written, {written: written})
    assert found["archive"] == {"after": "30d", "to": "offline"}
