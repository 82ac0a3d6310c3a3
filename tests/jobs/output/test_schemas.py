"""The schemas of what commands print: one for each, and they tell what is wrong. `tests/docs/test_json.py`
holds what each command prints against its own."""

from __future__ import annotations

from typing import Any

import pytest

from bucketwise.jobs.settings import output_schema
from bucketwise.jobs.suite import all_jobs
from tests.jobs.output.schemas import undeclared

GOOD: dict[str, Any] = {
    "schema": 1,
    "command": "compact",
    "exit_code": 0,
    "now": "2018-09-01T00:00:00Z",
    "policies": [
        {
            "policy": "ticks",
            "exit_code": 0,
            "commits": 24,
            "into": 1,
            "buckets": 2880,
            "bytes_before": 214310,
            "bytes_after": None,
        }
    ],
}


def with_policy(**keys: Any) -> dict[str, Any]:
    return {**GOOD, "policies": [{key: it for key, it in (GOOD["policies"][0] | keys).items() if it != "-"}]}


def test_each_command_has_one() -> None:
    for job in all_jobs():
        schema = output_schema(job)
        assert schema["properties"]["command"] == {"const": job.name}
        assert "properties" in schema["properties"]["policies"]["items"]


def test_what_is_as_it_should_be() -> None:
    assert undeclared(GOOD) == []
    assert undeclared(with_policy(commits="-", error="it failed", exit_code=1)) == []
    assert undeclared({**GOOD, "policies": [], "error": "no such file", "exit_code": 2, "problems": []}) == []


@pytest.mark.parametrize(
    "told",
    [
        with_policy(commits="24"),
        with_policy(commits="-"),
        with_policy(more=1),
        {**GOOD, "now": "yesterday"} | {"exit_code": "0"},
        {**GOOD, "command": "run"},
        {key: it for key, it in GOOD.items() if key != "policies"},
    ],
)
def test_what_is_not(told: dict[str, Any]) -> None:
    assert undeclared(told) != []
