"""`compact` as a user runs it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tests.jobs.place import POLICIES, START, Place

HOUR = timedelta(hours=1)
BYTES = 1_500_000


@pytest.mark.proof
def test_it_keeps_to_the_memory_that_it_is_given(place: Place) -> None:
    """Of three buckets of a day, two are as much as fits into a section with 50 MB."""
    place.database.ticks.delete_many({})
    for hour in range(3):
        document = {"symbol": "MDB", "d": START + hour * HOUR, "p": {"0": 1.5}, "note": "x" * BYTES}
        place.database.ticks.insert_one(document)
        assert place("run", "-p", "ticks").code == 0
    merged = place("compact", "-p", "ticks", "--dry-run", "--json").policy("ticks")
    assert (merged["commits"], merged["into"]) == (3, 1)
    place.write_config(POLICIES + '\n[work]\nmemory = "50MB"\n')
    for arguments in (["--dry-run"], []):
        merged = place("compact", "-p", "ticks", "--json", *arguments).policy("ticks")
        assert (merged["commits"], merged["into"]) == (3, 1)
    *_, last = sorted((place.folder / "store/ticks/meta/manifests").iterdir())
    assert [it["buckets"] for it in json.loads(last.read_bytes())["sections"]] == [2, 1]
    assert place("verify", "-p", "ticks").code == 0
