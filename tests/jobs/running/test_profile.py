"""`run --profile`: how long each step takes, and each phase of the work."""

from __future__ import annotations

import pytest

from bucketwise.buckets.phases import PHASES
from tests.jobs.place import Place


@pytest.mark.proof
def test_a_run_tells_what_its_time_went_to(place: Place) -> None:
    ran = place("run", "--profile", "--json")
    assert ran.code == 0
    for name, without in (("ticks", set[str]()), ("iot", {"encode", "read_back", "commit"})):
        told = ran.policy(name)["profile"]
        assert set(told["steps"]) == {"rollup", "archive", "compact", "archive_expiry", "expiry", "scrub"}
        assert list(told["phases"]) == list(PHASES)
        assert {it for it, seconds in told["phases"].items() if not seconds} <= without | {"compare", "sum"}
        assert told["phases"]["delete"] <= told["steps"]["archive"]
        assert sum(told["phases"][it] for it in ("sum", "write")) <= sum(told["steps"].values())


@pytest.mark.proof
def test_people_are_shown_a_table_and_without_the_option_nothing(place: Place) -> None:
    shown = place("run", "--profile", "-p", "ticks").out
    assert "Steps" in shown and "Phases" in shown
    assert "read back" in shown
    assert "profile" not in place("run", "--json").policy("ticks")
