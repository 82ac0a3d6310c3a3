"""Many policies in one database: each costs what it costs alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.stores import open_store
from bucketwise.config.policies import Policy
from bucketwise.config.tables import Store
from bucketwise.jobs.running.turn import Step
from bucketwise.jobs.steps.working import CHECK, RUN
from tests.jobs.counting import Counts, run_counted
from tests.jobs.place import START

Document = dict[str, Any]
NOW = START + timedelta(days=60)
FEW, MANY = 5, 12


def policy_of(number: int, to: str) -> Policy:
    online = {"collection": f"archive_{number}"} if to == "online" else {}
    said: dict[str, Any] = {
        "name": f"ticks_{number}",
        "collection": f"ticks_{number}",
        "model": "reading",
        "time_field": "d",
        "series_fields": ("symbol",),
        "value_fields": ("p",),
        "rollup": {"hourly": f"hourly_{number}", "daily": f"daily_{number}"},
        "archive": {"after": timedelta(days=30), "to": to, **online},
    }
    return Policy(**said)


def counted(
    database: Database[Document], uri: str, settings: Store, to: str, count: int
) -> dict[str, Counts]:
    """What each command costs, of so many policies."""
    policies = [policy_of(number, to) for number in range(count)]
    for policy in policies:
        ticks = database[policy.collection]
        ticks.create_index("d")
        ticks.insert_many([{"symbol": "A", "d": START + timedelta(minutes=it), "p": 1.0} for it in range(20)])

    def do(steps: Sequence[Step], now: datetime, **options: Any) -> Counts:
        results, counts = run_counted(
            uri, database.name, steps, policies, open_store(settings), now, **options
        )
        assert [it.error for it in results] == [None] * count
        return counts

    found = {"a first run": do(RUN, NOW - timedelta(days=40)), "archive": do(RUN, NOW)}
    found |= {"after an archive": do(RUN, NOW), "nothing to do": do(RUN, NOW)}
    return found | {"check": do([CHECK], NOW, dry_run=True)}


@pytest.mark.parametrize("to", ["offline", "online"])
def test_commands_and_documents_are_linear_in_policies(
    database: Database[Document], mongodb_uri: str, file_store: Store, to: str
) -> None:
    few = counted(database, mongodb_uri, file_store, to, FEW)
    database.client.drop_database(database.name)
    store = Store(url=f"{file_store.url}/of_many")
    Path(store.url.removeprefix("file://")).mkdir(parents=True)
    many = counted(database, mongodb_uri, store, to, MANY)
    for what, one in few.items():
        other, times = many[what], MANY / FEW
        assert other.documents <= times * one.documents + MANY, what
        assert other.events <= times * one.events + MANY, what
        assert other.commands.total() <= times * one.commands.total() + MANY, what
    assert few["nothing to do"].streams == many["nothing to do"].streams == 1
    assert few["nothing to do"].commands.total() <= 46 * FEW + 1
    assert few["check"].commands.total() <= 26 * FEW + 1
