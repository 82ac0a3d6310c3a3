"""Many policies in one database and one store: each costs what it costs alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pymongo.database import Database

from bucketwise.archivers.stores import open_store
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from bucketwise.config.tables import Store
from bucketwise.jobs.check.verb import CHECK
from bucketwise.jobs.core.turn import Step
from bucketwise.jobs.run.verb import RUN
from tests.jobs.counting import Counts, run_counted
from tests.jobs.place import START

Document = dict[str, Any]
NOW = START + timedelta(days=60)


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
    return make_policy(**said)


class Cost(NamedTuple):
    """What one command costs: of the database, and how many requests to the store."""

    counts: Counts
    requests: int


def counted(database: Database[Document], uri: str, settings: Store, to: str, count: int) -> dict[str, Cost]:
    """What each command costs, of so many policies."""
    policies = [policy_of(number, to) for number in range(count)]
    for policy in policies:
        ticks = database[policy.collection]
        ticks.create_index("d")
        ticks.insert_many([{"symbol": "A", "d": START + timedelta(minutes=it), "p": 1.0} for it in range(20)])

    def do(steps: Sequence[Step], now: datetime, **options: Any) -> Cost:
        store = open_store(settings)
        results, counts = run_counted(uri, database.name, steps, policies, store, now, **options)
        assert [it.error for it in results] == [None] * count
        requests, _ = store.requests.take()
        return Cost(counts, sum(requests.values()))

    found = {"a first run": do(RUN, NOW - timedelta(days=40)), "archive": do(RUN, NOW)}
    found |= {"after an archive": do(RUN, NOW), "nothing to do": do(RUN, NOW)}
    return found | {"check": do([CHECK], NOW, dry_run=True)}


@pytest.mark.proof
@pytest.mark.parametrize(
    ("to", "kind", "few", "many"),
    [
        ("offline", "file", 2, 5),
        ("online", "file", 2, 5),
        *(
            pytest.param(to, kind, 5, 12, marks=pytest.mark.proof)
            for to, kind in (("offline", "file"), ("offline", "moto"), ("online", "file"))
        ),
    ],
)
def test_commands_documents_and_requests_are_linear_in_policies(
    database: Database[Document],
    mongodb_uri: str,
    request: pytest.FixtureRequest,
    to: str,
    kind: str,
    few: int,
    many: int,
) -> None:
    store: Store = request.getfixturevalue(f"{kind}_store")
    of_few = counted(database, mongodb_uri, store, to, few)
    database.client.drop_database(database.name)
    store = store.model_copy(update={"url": f"{store.url}/of_many"})
    if kind == "file":
        Path(store.url.removeprefix("file://")).mkdir(parents=True)
    of_many = counted(database, mongodb_uri, store, to, many)
    for what, (one, requests) in of_few.items():
        other, times = of_many[what].counts, many / few
        assert other.documents <= times * one.documents + many, what
        assert other.events <= times * one.events + many, what
        assert other.commands.total() <= times * one.commands.total() + many, what
        assert of_many[what].requests <= times * requests, what
    idle, checked = of_few["nothing to do"], of_few["check"]
    assert idle.counts.streams == of_many["nothing to do"].counts.streams == 1
    assert idle.requests <= 4 * few
    assert idle.counts.commands.total() <= 42 * few + 6
    assert checked.counts.commands.total() <= 31 * few + 2
