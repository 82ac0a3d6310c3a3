"""Where summaries begin, asked of all kinds in one command."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.database import Database

from rollups.targets import earliest_start


@pytest.mark.parametrize(
    "there", [{}, {"hours": (3, 9)}, {"days": (5, 7)}, {"hours": (3, 9), "days": (5, 7)}]
)
def test_the_first_start_of_any_kind(database: Database[dict[str, Any]], there: dict[str, Any]) -> None:
    """A collection that is not there has none, whichever it is."""
    for name, starts in there.items():
        found = [{"_id": at, "start": datetime.fromtimestamp(at, UTC)} for at in reversed(starts)]
        database[name].insert_many([*found, {"_id": "another's", "start": 4}, {"_id": "no summary"}])
    for names in (["hours"], ["days"], ["hours", "days"], ["days", "hours"]):
        starts = sorted(1000 * at for name in names for at in there.get(name, ()))
        for at in range(2000, 10001, 500):
            expected = next((start for start in starts if start >= at), None)
            assert earliest_start(database, names, at) == expected, (names, at)
