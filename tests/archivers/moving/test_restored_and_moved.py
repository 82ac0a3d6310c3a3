"""A bucket that was restored, and then moved in time: its old copy must not count beside the new one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import bson
import pytest
from pymongo.database import Database

from config.tables import Store
from tests.archivers.builders import CODEC, LATER, reading
from tests.archivers.harness import Cycle

Document = dict[str, Any]
DAY = timedelta(days=1)


@pytest.mark.parametrize("days", [10, -10])
@pytest.mark.parametrize("only", ["where it is now", "where it was", "all"])
def test_it_is_archived_once(database: Database[Document], file_store: Store, days: int, only: str) -> None:
    """Also by a run of a range in which its old copy is not."""
    cycle = Cycle(database, reading(), file_store).load()
    cycle.run()
    before = sum(cycle.rows().values())
    cycle.restore(cycle.policy.collection)
    cycle.unpin()
    first = bson.decode(cycle.case.documents[0], CODEC)
    field = str(cycle.policy.time_field)
    at = first[field]
    moved = at + days * DAY
    database[cycle.policy.collection].update_one({"_id": first["_id"]}, {"$set": {field: moved}})
    expected = sorted(cycle.live())
    around = {"where it is now": moved, "where it was": at}.get(only)
    within = {} if around is None else {"since": around - DAY, "until": around + DAY}
    cycle.run(LATER + DAY, **within)
    assert sorted({*cycle.archived(), *cycle.live()}) == expected
    cycle.run(LATER + 2 * DAY)
    cycle.run(LATER + 3 * DAY)
    assert cycle.live() == []
    assert sorted(cycle.archived()) == expected
    assert sum(cycle.rows().values()) == before
    assert cycle.verify().bad == []
