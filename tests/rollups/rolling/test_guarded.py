"""Transactions of a run, where the server has them tried again."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.rollups.context import transaction
from tests.rollups.conftest import nobody_else

Document = dict[str, Any]


class Large:
    """What the caller of a transaction has in hand."""


def test_a_conflict_keeps_nothing_of_its_callers(database: Database[Document]) -> None:
    """A run meets one now and then: the lease is renewed while a transaction has written to it."""
    things = database.things
    things.insert_one({"_id": 1, "count": 0})
    tries = 0

    def step(session: ClientSession) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            things.find_one({}, session=session)
            things.update_one({}, {"$inc": {"count": 10}})  # somebody else
        things.update_one({}, {"$inc": {"count": 1}}, session=session)

    def caller() -> weakref.ref[Large]:
        large = Large()
        transaction(database, nobody_else, step)
        return weakref.ref(large)

    gc.disable()
    try:
        held = caller()
    finally:
        gc.enable()
    assert (tries, things.find_one()) == (2, {"_id": 1, "count": 11})
    assert held() is None
