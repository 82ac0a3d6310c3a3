"""What a restore takes, and where it puts it, from the outside."""

from __future__ import annotations

from typing import Any

import pytest

from bucketwise.jobs.core.lease import COLLECTION as LEASE
from bucketwise.jobs.core.ledger import COLLECTION as RUNS
from tests.jobs.place import NOW, POLICIES, Place
from tests.jobs.states import after


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same file", "another file"])
@after("run")
def test_nothing_is_restored_into_the_collections_of_another_policy(place: Place, elsewhere: bool) -> None:
    """Which would count, archive and delete it as its own."""
    if elsewhere:
        place.write_config(POLICIES.partition("[policies.iot]")[0])
    before = kept(place)
    for to in ("iot", "iot_hourly", "iot_archive"):
        for option in (["--to", to], ["--to", "back", "--versions", "all", "--versions-to", to]):
            ran = place("restore", "-p", "ticks", *option)
            assert (ran.code, "policy iot works on this collection" in ran.err) == (2, True), option
    assert kept(place) == before
    assert place("restore", "-p", "ticks", "--to", "ticks", "--keep-for", "1d").code == 0


def kept(place: Place) -> dict[str, Any]:
    """All but the record of the runs themselves."""
    return {name: it for name, it in place.everything().items() if name not in (RUNS, LEASE)}


def test_a_series_of_a_field_that_was_added_is_restored_alone(place: Place) -> None:
    """Of commits from before as well: the buckets have the field."""
    venue = {"$toString": {"$mod": [{"$minute": "$d"}, 3]}}
    place.database.ticks.update_many({}, [{"$set": {"venue": venue}}])
    assert place("run", "-p", "ticks", now=NOW).code == 0
    place.write_config(POLICIES.replace('["symbol"]', '["symbol", "venue"]'))
    assert place("restore", "-p", "ticks", "--series", "venue=2", "--to", "back").code == 0
    found = list(place.database.back.find())
    assert {it["venue"] for it in found} == {"2"} and len(found) == 60
