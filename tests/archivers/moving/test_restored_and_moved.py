"""A bucket that was restored, and then moved in time: its old copy must not count beside the new one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import bson
import pytest

from bucketwise.buckets.fields.times import TimeRange
from bucketwise.rollups.holds import COLLECTION as HOLDS
from bucketwise.rollups.holds import Hold, Holds
from tests.archivers.builders import CODEC, LATER, reading
from tests.archivers.harness import Cycle, in_turn
from tests.archivers.moving.test_crash import few
from tests.archivers.states import States, all_archived

Document = dict[str, Any]
DAY = timedelta(days=1)


def given_back(cycle: Cycle) -> None:
    cycle.run()
    cycle.restore(cycle.policy.collection)
    cycle.unpin()


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(("only", "days"), in_turn(["where it is now", "where it was", "all"], [10, -10]))
def test_it_is_archived_once(prepared: States, days: int, only: str) -> None:
    """Also by a run of a range in which its old copy is not."""
    cycle = prepared(few(reading(), 60), given_back)
    before = sum(cycle.rows().values())
    first = bson.decode(cycle.case.documents[0], CODEC)
    field = str(cycle.policy.time_field)
    at = first[field]
    moved = at + days * DAY
    cycle.database[cycle.policy.collection].update_one({"_id": first["_id"]}, {"$set": {field: moved}})
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


@pytest.mark.proof
@pytest.mark.parametrize(("held_by", "days"), in_turn(["a hold", "the range of the run"], [10, -10]))
def test_its_old_copy_goes_as_it_is_copied_again(prepared: States, days: int, held_by: str) -> None:
    """In a grace a bucket moves, and is copied again. Its old copy does not count any more, whoever deletes
    the bucket, and whatever holds the old copy's commit back."""
    cycle = prepared(few(reading(), 60).with_archive(grace=DAY), all_archived)
    database, before = cycle.database, sum(cycle.rows().values())
    first = bson.decode(cycle.case.documents[0], CODEC)
    field, source = str(cycle.policy.time_field), database[cycle.policy.collection]
    at = first[field]
    moved = at + days * DAY
    source.update_one({"_id": first["_id"]}, {"$set": {field: moved}})
    expected = sorted(cycle.live())
    around: Any = {} if held_by == "a hold" else {"since": moved - DAY, "until": moved + DAY}
    if held_by == "a hold":
        start, end = at - timedelta(hours=1), at + timedelta(hours=1)
        hold = Hold("case", {}, TimeRange(start, end), "a court", LATER, "me", True, bytes(32))
        with database.client.start_session() as session:
            Holds(database, cycle.policy.identity).put(hold, session)
    cycle.run(LATER + timedelta(hours=1), since=moved - DAY, until=moved + DAY)  # copies it where it is now
    for hours in (36, 72):
        cycle.run(LATER + timedelta(hours=hours), **around)
        assert sorted({*cycle.archived(), *cycle.live()}) == expected
    assert source.find_one({"_id": first["_id"]}) is None
    if held_by == "a hold":
        database[HOLDS].delete_many({})
    for days_later in (5, 7, 9):
        cycle.run(LATER + days_later * DAY)
    assert cycle.live() == []
    assert sorted(cycle.archived()) == expected
    assert sum(cycle.rows().values()) == before
    assert cycle.verify().bad == []
