"""What a run costs does not grow with the commits that earlier runs have made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.stores import open_store
from bucketwise.config.policies import Compact, Policy
from bucketwise.config.tables import Store
from bucketwise.jobs.core.turn import Step
from bucketwise.jobs.run.verb import RUN
from bucketwise.jobs.status import STATUS
from tests.jobs.counting import CountingStore, run_counted, ticks_policy
from tests.jobs.place import START

Document = dict[str, Any]
EVERY = timedelta(hours=3)
FEW, MANY = 2, 10  # at the same hour of the day
FROM = START + timedelta(days=30)
#: What the server sends of a change stream comes in so many replies.
UNSTEADY = ("getMore", "killCursors", "endSessions", "hello")


def policy_of(**more: Any) -> Policy:
    return ticks_policy(**{"to": "offline", "compact": Compact(after=None), **more})


class Cron:
    """A cron line that runs every three hours on a few readings an hour."""

    def __init__(self, database: Database[Document], uri: str, settings: Store, policy: Policy) -> None:
        self.database, self.uri, self.settings, self.policy = database, uri, settings, policy
        self.turns = 0
        database["ticks"].create_index("d")
        times = [START + number * timedelta(minutes=20) for number in range(9 * (MANY + 4))]
        database["ticks"].insert_many([{"symbol": "A", "d": it, "p": 1.0} for it in times])
        self.counted(FROM)

    def until(self, turns: int) -> None:
        while self.turns < turns:
            self.next()

    def next(self) -> tuple[dict[str, int], dict[str, int]]:
        self.turns += 1
        return self.counted(FROM + self.turns * EVERY)

    def again(self, steps: Sequence[Step] = RUN, **options: Any) -> tuple[dict[str, int], dict[str, int]]:
        return self.counted(FROM + self.turns * EVERY, steps, **options)

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


def commits(cron: Cron) -> int:
    return cron.database["bucketwise_receipts"].count_documents({"kind": "offline"})


def check_nothing_to_do(cron: Cron, few: dict[str, int], many: dict[str, int]) -> None:
    """What the store is asked."""
    assert commits(cron) == MANY
    assert many == few
    assert many["list"] == 1
    assert sum(count for it, count in many.items() if it != "listed") <= 4, many


@pytest.mark.proof
@pytest.mark.parametrize("kept", [{"delete": False}, {"grace": timedelta(days=60)}], ids=["kept", "in grace"])
def test_a_run_with_nothing_to_do_but_to_keep(
    database: Database[Document], mongodb_uri: str, file_store: Store, kept: Document
) -> None:
    cron = Cron(database, mongodb_uri, file_store, policy_of(**kept))
    found = []
    for turns in (FEW, MANY):
        cron.until(turns)
        cron.again()
        found.append(cron.again()[1])
    check_nothing_to_do(cron, *found)


@pytest.mark.proof
def test_runs_and_questions_where_all_is_deleted(
    database: Database[Document], mongodb_uri: str, file_store: Store
) -> None:
    """The same is archived at the same hour of the day: midnight has a day to roll up as well. Now and then a
    run looks at the ledger's age besides."""
    cron = Cron(database, mongodb_uri, file_store, policy_of())
    questions, runs, archiving = [], [], []
    for turns in (FEW, MANY):
        cron.until(turns - 1)
        archiving.append(cron.next())
        questions.append([cron.again(steps, dry_run=True) for steps in ((STATUS,), RUN)])
        cron.again()
        runs.append(cron.again())
    assert questions[0] == questions[1]
    assert runs[0] == runs[1]
    check_nothing_to_do(cron, runs[0][1], runs[1][1])
    few, many = archiving
    assert many[1] == few[1]
    assert all(abs(count - few[0].get(name, 0)) <= 1 for name, count in many[0].items()), (few, many)
