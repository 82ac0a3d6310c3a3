"""A store that loses what was verified, from the outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.command import Ran
from tests.jobs.place import MINUTES, NOW, Place

DATA, BUCKETS = "ticks/data/*/*.parquet", "ticks/meta/buckets/*.parquet"


def losing(place: Place, kind: str, *, flips: bool) -> Ran:
    """A run whose store damages a file as soon as its commit is made."""
    meddle = "tests.jobs.losing", {"kind": kind, "flips": flips}
    command = "run", "--json", "--quiet", "-p", "ticks", "--now", NOW
    return place.command.meddled(meddle, *command, cwd=place.folder, MONGODB_URI=place.uri)


@pytest.mark.parametrize(("kind", "flips"), [(DATA, False), (BUCKETS, True)])
def test_nothing_goes_whose_copy_went_before_it(place: Place, kind: str, flips: bool) -> None:
    ran = losing(place, kind, flips=flips)
    damaged = next(Path(place.folder, "store").glob("ticks/meta/manifests/*.json")).stem.partition("_")[2]
    assert ran.code == 5 and damaged in ran.policy("ticks")["error"]
    assert place.database.ticks.count_documents({}) == MINUTES
    for verb in ("run", "plan", "verify", "audit"):
        again = place(verb, "--json", "-p", "ticks")
        assert again.code == 5 and damaged in again.out, verb
    assert place.database.ticks.count_documents({}) == MINUTES
