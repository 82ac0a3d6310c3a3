"""A policy that says another kind of archive than the one its buckets lie in: nothing passes over them."""

from __future__ import annotations

import pytest

from tests.jobs.place import Place
from tests.jobs.states import after

ONLINE = 'to = "online"\ncollection = "ticks_old"'


@pytest.mark.parametrize("says", [ONLINE, 'to = "none"'], ids=["online", "none"])
@after("run -p ticks")
def test_what_reads_the_archive_says_so(place: Place, says: str) -> None:
    path = place.folder / "bucketwise.toml"
    path.write_text(path.read_text().replace('to = "offline"', says, 1))
    for command in (("run",), ("restore", "--to", "back"), ("verify",), ("drill",), ("readings",)):
        ran = place(*command, "-p", "ticks")
        assert (ran.code, "buckets lie in its offline archive" in ran.err) == (1, True), command
    found = place("check", "-p", "ticks", "--json", now=None).policy("ticks")["findings"]
    assert ("archive-kind", "error") in {(it["code"], it["severity"]) for it in found}
    path.write_text(path.read_text().replace(says, 'to = "offline"', 1))
    ran = place("restore", "-p", "ticks", "--to", "back", "--json")
    assert ran.policy("ticks")["buckets"] == 180
