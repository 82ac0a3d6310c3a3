"""The number of buckets that a limit on deletes goes by is the number that the run then deletes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from config.limits import at_most
from config.policies import Store
from tests.archivers.builders import DAY0, LATER, Case, deletable, timeseries
from tests.archivers.harness import Cycle

Document = dict[str, Any]
GRACE = timedelta(days=3)


@pytest.mark.parametrize("grace", [timedelta(0), GRACE], ids=["at once", "grace"])
@pytest.mark.parametrize("to", ["offline", "online"])
@pytest.mark.parametrize("case", deletable(), ids=lambda case: case.name)
def test_it_is_what_goes(
    database: Database[Document], file_store: Store, case: Case, to: str, grace: timedelta
) -> None:
    case = (case if to == "offline" else case.online()).with_archive(max_delete="100%", grace=grace)
    cycle = Cycle(database, case, file_store).load()

    def go(now: datetime, **options: Any) -> None:
        planned = cycle.run(now, dry_run=True, **options).limit
        assert planned is not None
        assert planned.total == len(cycle.live())
        assert planned.due == cycle.run(now, **options).deleted

    middle = DAY0 + timedelta(hours=12)
    go(LATER, until=middle)
    go(LATER + GRACE / 2)
    go(LATER + GRACE)
    go(LATER + 2 * GRACE)
    assert cycle.live() == []


def test_native_time_series_have_none(database: Database[Document], file_store: Store) -> None:
    cycle = Cycle(database, timeseries().with_archive(max_delete=1), file_store).load()
    assert cycle.run(dry_run=True).limit is None
    assert cycle.run().buckets == 200


@pytest.mark.parametrize(
    ("limit", "total", "most"),
    [("20%", 10, 2), ("20%", 4, 0), ("0.1%", 1000, 1), ("100%", 7, 7), (5, 2, 5), ("29%", 100, 29)],
)
def test_a_share_is_rounded_down(limit: int | str, total: int, most: int) -> None:
    assert at_most(limit, total) == most
