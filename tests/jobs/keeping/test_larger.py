"""Summaries that will be larger than their documents are told before they are made."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.jobs.place import POLICIES, START, Place

CODE = "summaries-larger"


def sparse(place: Place) -> None:
    """A document an hour, with a reading every five minutes."""
    place.write_config(POLICIES.replace('slot = "second"', 'slot = "minute"'))
    place.database.ticks.delete_many({})
    place.database.ticks.insert_many(
        {"symbol": "MDB", "d": START + timedelta(hours=it), "p": {str(5 * n): 50 + n / 8 for n in range(12)}}
        for it in range(48)
    )


def told(findings: list[dict[str, Any]]) -> list[str]:
    return [it["message"] for it in findings if it["code"] == CODE]


@pytest.mark.proof
def test_check_plan_and_what_comes_agree(place: Place) -> None:
    sparse(place)
    checked = place("check", "--json", "-p", "ticks")
    (message,) = told(checked.policy("ticks")["findings"])
    assert checked.code == 0 and "hourly: 12 readings" in message and "daily summaries pay" in message
    planned = place("plan", "--json", "-p", "ticks").policy("ticks")
    assert told(planned["archive"]["fit"]["misfits"]) == [message]
    assert message in place("plan", "-p", "ticks").out
    documents = place.database.command("collStats", "ticks")["size"]
    assert place("run", "-p", "ticks").code == 0
    hourly, daily = (place.database.command("collStats", f"ticks_{it}")["size"] for it in ("hourly", "daily"))
    assert hourly > documents > daily


def test_seconds_pay(place: Place) -> None:
    assert told(place("check", "--json", "-p", "ticks").policy("ticks")["findings"]) == []
