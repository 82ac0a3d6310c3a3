"""The number of buckets that a limit on deletes goes by is the number that the run then deletes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import bson
import pytest
from bson.binary import Binary
from pymongo.database import Database

from bucketwise.config.amounts import at_most
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Rule
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, LATER, MINUTE, Case, deletable, encode, insert, timeseries
from tests.archivers.harness import Cycle, in_turn
from tests.archivers.reading.test_readings import ticks

Document = dict[str, Any]
GRACE = timedelta(days=3)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("case", "to", "grace"), in_turn(deletable(), ["offline", "online"], [timedelta(0), GRACE], many=4)
)
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


def test_what_was_put_back_by_hand_is_limited(database: Database[Document], file_store: Store) -> None:
    """No receipt tells that it is live, so that the count beforehand knows of nothing that may go."""
    case = ticks([{"_id": i, "symbol": "S", "d": DAY0 + i * MINUTE, "p": 1.0} for i in range(20)])
    case = case.with_archive(grace=GRACE)
    cycle = Cycle(database, case, file_store).load()
    cycle.run()
    assert cycle.run(LATER + GRACE).deleted == 20
    insert(database, "ticks", case.documents)
    cycle.case = case.with_archive(max_delete=19)
    for message in ("more is due than the 0 buckets of ticks", "would delete 20 of the 20 buckets"):
        with pytest.raises(HaltedError, match=message):
            cycle.run(LATER + 2 * GRACE)
        assert len(cycle.live()) == 20
    cycle.case = case.with_archive(max_delete=20)
    assert cycle.run(LATER + 2 * GRACE).deleted == 20


@pytest.mark.parametrize("is_inside", [False, True])
def test_what_a_rule_keeps_is_not_counted_though_a_query_finds_it(
    database: Database[Document], file_store: Store, is_inside: bool
) -> None:
    """MongoDB can't tell whether a glob matches a UUID, nor which of its series keeps a bucket longest."""
    rule = Rule(match={"symbol": ("0*",)}, after=timedelta(days=1))
    names = [UUID(int=1), *(UUID(int=it << 124) for it in range(1, 10))]  # 00…1; others begin otherwise
    if is_inside:
        shape: Document = {
            "model": "samples", "series_fields": ("samples.*.symbol",), "value_fields": ("p",),
            "samples_field": "samples", "sample_time_field": "d", "start_field": "d", "end_field": "d",
            "time_field": None,
        }  # fmt: skip
        documents = [
            {"_id": i, "d": DAY0, "samples": [{"symbol": it, "d": DAY0, "p": 1.0} for it in ("0", str(i))]}
            for i in range(10)
        ]
    else:
        shape = {}
        documents = [
            {"_id": i, "symbol": Binary.from_uuid(it), "d": DAY0, "p": 1.0} for i, it in enumerate(names)
        ]
    case = ticks([{"symbol": "X", "d": DAY0}], rules=(rule,), **shape)
    case = replace(case, documents=[encode(it) for it in documents])
    cycle = Cycle(database, case.with_archive(max_delete=1, after=timedelta(days=36_500)), file_store).load()
    planned = cycle.run(dry_run=True).limit
    assert planned is not None and planned.due == 1
    assert cycle.run().deleted == 1
    assert [bson.decode(it)["_id"] for it in cycle.live()] == list(range(1, 10))


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("to", ["offline", "online"])
def test_what_is_sound_again_is_limited(database: Database[Document], file_store: Store, to: str) -> None:
    """The quarantine still names it, where nothing was rolled up since."""
    case = ticks([{"_id": i, "symbol": "S", "d": DAY0 + i * MINUTE, "p": 1.0} for i in range(20)])
    case = (case if to == "offline" else case.online()).with_archive(max_delete=19)
    cycle = Cycle(database, case, file_store).load()
    names = [{"policy": "ticks", "id": i} for i in range(20)]
    database["bucketwise_quarantine"].insert_many([{"_id": it, "first_seen": DAY0} for it in names])
    with pytest.raises(HaltedError, match="quarantined ones that are sound again"):
        cycle.run()
    assert len(cycle.live()) == 20
    database["bucketwise_quarantine"].delete_one({"_id.id": 0})
    with pytest.raises(HaltedError):
        cycle.run()
    assert len(cycle.live()) == 20
