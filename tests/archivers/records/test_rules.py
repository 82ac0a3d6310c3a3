"""The rule of a commit: found once, by its documents, and looked at again before the commit goes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pymongo.database import Database

from bucketwise.archivers.kinds import archive_of
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Retain, Rule, RuleRetain
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, LATER, Case, encode, offline
from tests.archivers.harness import Cycle
from tests.jobs.counting import CountingStore

Document = dict[str, Any]
DAY = timedelta(days=1)


def with_rules(*symbols: str) -> Case:
    """A day of a reading an hour of each. What begins with an M stays longer."""
    policy = make_policy(
        name="ticks", collection="ticks", model="reading", time_field="d", series_fields=("symbol",),
        value_fields=("p",), archive=offline(),
        retain=Retain(archive=60 * DAY, archive_grace=DAY),
        rules=(Rule(match={"symbol": ("M*",)}, retain=RuleRetain(archive=400 * DAY)),),
    )  # fmt: skip
    rows = [(symbol, DAY0 + hour * timedelta(hours=1)) for symbol in symbols for hour in range(24)]
    documents = [
        encode({"_id": i, "symbol": symbol, "d": at, "p": i / 8}) for i, (symbol, at) in enumerate(rows)
    ]
    return Case("ruled", policy, documents, [((symbol,), at, 0.0) for symbol, at in rows])


def expired(cycle: Cycle, days: int, **given: Any) -> tuple[int, int]:
    """How many buckets got a tombstone, and how many went."""
    cycle.fence += 1
    report = archive_of(cycle.context(DAY0 + days * DAY, fence=cycle.fence, **given)).expire()
    return report.tombstoned.buckets, report.expired.buckets


def test_the_documents_of_a_commit_are_read_once(database: Database[Document], file_store: Store) -> None:
    cycle = Cycle(database, with_rules("MDB", "FOO"), file_store).load()
    assert cycle.run(DAY0 + 40 * DAY).deleted == 48
    counted = []
    for days in (100, 101, 102):
        store = CountingStore(cycle.store)
        assert expired(cycle, days, store=store) == (0, 0)
        counted.append(store.asked["get_bytes"] + store.asked["get"])
    assert counted[0] > 1 and counted[1] == counted[2] <= counted[0] - 2
    assert expired(cycle, 440) == (48, 0)
    assert expired(cycle, 442) == (0, 48)


def test_no_receipt_is_trusted_with_the_end_of_a_commit(
    database: Database[Document], file_store: Store
) -> None:
    cycle = Cycle(database, with_rules("MDB", "FOO"), file_store).load()
    assert cycle.run(DAY0 + 40 * DAY).deleted == 48
    assert expired(cycle, 100) == (0, 0)
    receipts = database["bucketwise_receipts"]
    assert receipts.update_many({"rules.longest": 0}, {"$set": {"rules.longest": 1}}).modified_count == 1
    assert expired(cycle, 101) == (48, 0)
    assert expired(cycle, 103) == (0, 0)
    assert len(cycle.rows()) == 48


def test_a_commit_of_the_shorter_rule_alone_goes_by_it(
    database: Database[Document], file_store: Store
) -> None:
    cycle = Cycle(database, with_rules("FOO"), file_store).load()
    assert cycle.run(LATER).deleted == 24
    assert expired(cycle, 200) == (24, 0)
    assert expired(cycle, 202) == (0, 24)
