"""What a run costs does not grow with the commits that earlier runs have made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from archivers.stores import open_store
from config.policies import Compact, Policy
from config.tables import Store
from jobs.running.turn import Step
from jobs.steps.status import STATUS
from jobs.steps.working import RUN
from tests.jobs.counting import CountingStore, run_counted, ticks_policy
from tests.jobs.place import START

Document = dict[str, Any]
HOUR = timedelta(hours=1)
FEW, MANY = 8, 40
FROM = START + timedelta(days=30)
#: What the server sends of a change stream comes in so many replies.
UNSTEADY = ("getMore", "killCursors", "endSessions", "hello")


def policy_of(**more: Any) -> Policy:
    return ticks_policy(**{"to": "offline", "compact": Compact(after=None), **more})


class Hourly:
    """A cron line that runs every hour on a few readings an hour."""

    def __init__(self, database: Database[Document], uri: str, settings: Store, policy: Policy) -> None:
        self.database, self.uri, self.settings, self.policy = database, uri, settings, policy
        self.hours = 0
        database["ticks"].create_index("d")
        times = [START + number * timedelta(minutes=20) for number in range(3 * (MANY + 4))]
        database["ticks"].insert_many([{"symbol": "A", "d": it, "p": 1.0} for it in times])
        self.counted(FROM)

    def until(self, hours: int) -> None:
        while self.hours < hours:
            self.next()

    def next(self) -> tuple[dict[str, int], dict[str, int]]:
        self.hours += 1
        return self.counted(FROM + self.hours * HOUR)

    def again(self, steps: Sequence[Step] = RUN, **options: Any) -> tuple[dict[str, int], dict[str, int]]:
        return self.counted(FROM + self.hours * HOUR, steps, **options)

    def counted(
        self, now: datetime, steps: Sequence[Step] = RUN, **options: Any
    ) -> tuple[dict[str, int], dict[str, int]]:
        """The commands and the requests to the store."""
        store: Any = CountingStore(open_store(self.settings))
        found = run_counted(self.uri, self.database.name, steps, [self.policy], store, now, **options)
        (result,), counts = found
        assert result.exit_code == 0, result.error
        commands = Counter({it: n for it, n in counts.commands.items() if it not in UNSTEADY})
        return dict(commands), dict(store.asked)


def commits(hourly: Hourly) -> int:
    return hourly.database["bucketwise_receipts"].count_documents({"kind": "offline"})


STAYING: dict[str, Document] = {
    "deleted": {},
    "kept": {"delete": False},
    "in grace": {"grace": timedelta(days=60)},
}


@pytest.mark.parametrize("kind", STAYING)
def test_a_run_with_nothing_to_do(
    database: Database[Document], mongodb_uri: str, file_store: Store, kind: str
) -> None:
    hourly = Hourly(database, mongodb_uri, file_store, policy_of(**STAYING[kind]))
    found = []
    for hours in (FEW, MANY):
        hourly.until(hours)
        hourly.again()
        found.append(hourly.again())
    assert commits(hourly) == MANY
    assert found[0][1] == found[1][1]
    assert kind != "deleted" or found[0][0] == found[1][0]
    asked = found[1][1]
    assert asked["list"] == 1
    assert sum(count for it, count in asked.items() if it != "listed") <= 4, asked


@pytest.mark.parametrize("steps", [(STATUS,), RUN], ids=["status", "plan"])
def test_asking(
    database: Database[Document], mongodb_uri: str, file_store: Store, steps: Sequence[Step]
) -> None:
    hourly = Hourly(database, mongodb_uri, file_store, policy_of())
    found = []
    for hours in (FEW, MANY):
        hourly.until(hours)
        found.append(hourly.again(steps, dry_run=True))
    assert found[0] == found[1]


def test_a_run_that_archives_an_hour(
    database: Database[Document], mongodb_uri: str, file_store: Store
) -> None:
    hourly = Hourly(database, mongodb_uri, file_store, policy_of())
    """At the same hour of the day: midnight has a day to roll up as well. Now and then a run looks at the
    ledger's age besides."""
    hourly.until(FEW)
    few = hourly.next()
    hourly.until(FEW + 24)
    many = hourly.next()
    assert many[1] == few[1]
    assert all(abs(count - few[0].get(name, 0)) <= 1 for name, count in many[0].items()), (few, many)
