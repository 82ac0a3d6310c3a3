"""A name of an earlier version still works, and is told once. None is deprecated today: these are made up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from bucketwise.config import deprecated
from bucketwise.config.deprecated import DeprecatedWarning
from bucketwise.config.load import policy_in, settings_in
from bucketwise.config.problems import ConfigError
from bucketwise.config.schema import policy_file_schema

TEXT = """
[mongodb]
uri = "mongodb://localhost/?replicaSet=rs"
database = "market"

[policies.ticks]
collection = "ticks"
model = "reading"
time_field = "d"
series = ["symbol"]
value_fields = ["p"]

[policies.ticks.archive]
after = "30d"
to = "online"
collection = "ticks_archive"
wait = "1h"
"""


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(deprecated.FORMER_KEYS, (("policies", "*"), "series"), "series_fields")
    monkeypatch.setitem(deprecated.FORMER_KEYS, (("policies", "*", "archive"), "wait"), "grace")


def read(text: str) -> str:
    """The grace of the policy, as text."""
    archive = settings_in(text, Path("b.toml"), {}).policies["ticks"].archive
    return str(archive and archive.grace)


def test_a_key_by_its_former_name_counts_and_is_told_with_its_line() -> None:
    with pytest.warns(DeprecatedWarning) as told:
        assert read(TEXT) == "1:00:00"
    assert [str(it.message) for it in told] == [
        "b.toml:10: policies.ticks.series is deprecated: it is called series_fields now",
        "b.toml:17: policies.ticks.archive.wait is deprecated: it is called grace now",
    ]


def test_what_is_wrong_with_its_value_is_told_by_the_name_that_the_file_has() -> None:
    with pytest.raises(ConfigError) as found:
        read(TEXT.replace('"1h"', '"soon"'))
    (problem,) = found.value.problems
    assert (problem.key, problem.value, problem.line) == ("policies.ticks.archive.wait", '"soon"', 17)


def test_it_does_not_stand_beside_the_name_of_today() -> None:
    with pytest.raises(ConfigError, match="former name of `grace`") as found:
        read(TEXT + 'grace = "2h"\n')
    assert [it.remedy for it in found.value.problems] == ["remove wait"]


def test_a_policy_that_was_recorded_by_its_former_names_is_read() -> None:
    recorded = TEXT.partition("[policies.ticks]")
    assert policy_in(recorded[1] + recorded[2], "the ledger").series_fields == ("symbol",)


def test_editors_take_it_and_see_that_it_is_deprecated() -> None:
    schema = policy_file_schema()
    policy = schema["definitions"]["Policy"]["properties"]["series"]
    assert (policy["deprecated"], policy["description"]) == (
        True,
        "Deprecated: it is called `series_fields` now.",
    )
    told = {"collection": "t", "model": "reading", "time_field": "d", "series": ["s"], "value_fields": ["p"]}
    document = {"mongodb": {"uri": "mongodb://h", "database": "m"}, "policies": {"ticks": told}}
    assert list(Draft7Validator(schema).iter_errors(document)) == []


_PROGRAM = """
import sys
from bucketwise.config import deprecated
from bucketwise.jobs import cli
from bucketwise.jobs.core import job
from bucketwise.jobs.settings import JOB

deprecated.FORMER_KEYS[("policies", "*"), "series"] = "series_fields"
deprecated.FORMER_KEYS[("policies", "*", "archive"), "wait"] = "grace"
job.FORMER_COMMON["--only"] = "--policy"
JOB.former["--settings"] = "--config"
cli.main()
"""


@pytest.mark.process
def test_the_command_line_tells_each_in_a_line_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(TEXT)
    arguments = ["--only", "ticks", "config", "show", "--settings=b.toml", "--quiet"]
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert 'grace = "1h"' in ran.stdout
    assert ran.stderr.splitlines() == [
        "bucketwise: --only is deprecated: it is called --policy now",
        "bucketwise: --settings is deprecated: it is called --config now",
        "bucketwise: b.toml:10: policies.ticks.series is deprecated: it is called series_fields now",
        "bucketwise: b.toml:17: policies.ticks.archive.wait is deprecated: it is called grace now",
    ]
