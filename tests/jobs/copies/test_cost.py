"""What copies cost: requests to them, and commands to MongoDB."""

from __future__ import annotations

from datetime import datetime

import pytest

from bucketwise.archivers.records.changes import StoreJournal
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.copied import copies_of
from bucketwise.config.load import load
from bucketwise.jobs.copy import following_copies
from bucketwise.jobs.run.verb import RUN
from tests.jobs.copies.test_copies import copied
from tests.jobs.counting import run_counted
from tests.jobs.place import NOW, Place
from tests.jobs.states import after


@pytest.mark.proof
@after("run")
def test_a_run_with_nothing_to_do_asks_no_copy(place: Place) -> None:
    now = datetime.fromisoformat(NOW.replace("Z", "+00:00"))
    counts = {}
    for names in ((), ("b",)):
        copied(place, *names)
        if names:
            assert place("copy").code == 0
        settings = load(place.config, {"MONGODB_URI": place.uri})
        assert settings.store is not None
        store = open_store(settings.store, StoreJournal(lambda: now, place.database))
        policies = [settings.policies["ticks"]]
        follow = following_copies(settings.store)
        for _ in range(2):  # the first one may have something to note
            store.requests.take()
            asked = place.uri, place.database.name, RUN, policies, store, now
            (result,), counted = run_counted(*asked, followers=follow)
            assert result.exit_code == 0
        counts[names] = sum(counted.commands.values())
    found = copies_of(store)
    assert found is not None
    of_first, of_copy = found.first.requests.take()[0], found.copies[0].store.requests.take()[0]
    assert set(of_copy) <= {"clean"}  # a directory is looked at for what was left of writes
    assert sum(of_first.values()) <= 4
    assert counts["b",] - counts[()] <= 6  # whatever the archive holds
