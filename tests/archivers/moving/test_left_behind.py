"""Windows that copies are about to leave, or that somebody has deleted buckets of: rolled up once a day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.run import RolledUp
from bucketwise.buckets.fields.times import LAST_MS, as_ms
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, LATER, Case, encode, samples
from tests.archivers.harness import Cycle
from tests.archivers.moving.test_twice import bucket

Document = dict[str, Any]
Span = tuple[int, int]
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
#: Two days beside each other, and one much later.
DAYS = [DAY0, DAY0 + DAY, DAY0 + 40 * DAY]
STARTS = [day + hour * 60 * MINUTE for day in DAYS for hour in range(24)]


def copied(database: Database[Document], store: Store, **archive: Any) -> Cycle:
    """Buckets of three minutes, with hours between them; all were copied, and none deleted."""
    base = samples("dates")
    buckets = [bucket(i, at, at + MINUTE, at + 2 * MINUTE) for i, at in enumerate(STARTS)]
    case = Case(base.name, base.policy, list(map(encode, buckets)), []).with_archive(**archive)
    cycle = Cycle(database, case, store).load()
    assert cycle.run().deleted == 0
    return cycle


def noting(forced: list[Span], left: list[Span]) -> RolledUp:
    """Notes what is rolled up, and what of it copies are about to leave."""

    def rolled_up(start: int, end: int, *, force: bool = False, leaving: Sequence[Span] = ()) -> bool:
        left.extend(leaving)
        if force:
            forced.append((start, end))
        return True

    return rolled_up


def together(*spans: tuple[datetime, datetime]) -> list[Span]:
    return [(as_ms(first), as_ms(last) + 1) for first, last in spans]


#: The first two days are one stretch.
STRETCHES = [(STARTS[0], STARTS[47] + 2 * MINUTE), (STARTS[48], STARTS[-1] + 2 * MINUTE)]


@pytest.mark.parametrize("to", ["offline", "online"])
def test_of_buckets_that_are_shorter_than_their_copies(
    database: Database[Document], file_store: Store, to: str
) -> None:
    where = {"to": "online", "collection": "iot_archive"} if to == "online" else {"to": "offline"}
    cycle = copied(database, file_store, grace=2 * DAY, **where)
    for i, at in enumerate(STARTS):
        cycle.database["iot"].replace_one({"_id": i}, bucket(i, at + MINUTE, at + 2 * MINUTE))
    forced, left = list[Span](), list[Span]()
    for days in (3, 6):
        cycle.run(LATER + days * DAY, through=LAST_MS, rolled_up=noting(forced, left))
    assert sorted(left) == together(*((at, at + 2 * MINUTE) for at in STARTS))
    assert sorted(forced) == together(*STRETCHES)


def test_of_buckets_that_somebody_has_deleted(database: Database[Document], file_store: Store) -> None:
    cycle, forced, left = copied(database, file_store, delete=False), list[Span](), list[Span]()
    stay = [0, 48]  # a commit of which all have gone is another case
    cycle.database["iot"].delete_many({"_id": {"$nin": stay}})
    cycle.run(LATER + DAY, through=LAST_MS, rolled_up=noting(forced, left))
    stretches = [(STARTS[at], end) for at, (_, end) in zip((1, 49), STRETCHES, strict=True)]
    assert (sorted(forced), left) == (together(*stretches), [])
