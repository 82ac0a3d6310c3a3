"""Collections with a default collation: each text is told from others by its bytes, and no command leaves it
to a collection how texts in its query are compared."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from bucketwise.archivers.stores import open_store
from bucketwise.buckets.fields.times import EVER
from bucketwise.config.policies import Retain
from bucketwise.config.tables import Store
from bucketwise.jobs.audit.verb import AUDIT
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.runner import Runner
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.core.turn import RunOptions
from bucketwise.jobs.hold.holds import place_step
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.run.verb import RUN
from bucketwise.rollups.holds import Hold
from tests.jobs.counting import ticks_policy
from tests.jobs.place import POLICIES, Place

Document = dict[str, Any]
START = datetime(2018, 1, 1, tzinfo=UTC)
COLLATIONS = [
    {"locale": "en", "strength": 1},
    pytest.param({"locale": "en", "strength": 2}, marks=pytest.mark.proof),
    pytest.param({"locale": "en", "numericOrdering": True}, marks=pytest.mark.proof),
]


class Bare(CommandListener):
    """Commands on some collections with text in a query, `_id`s apart, and without a collation."""

    def __init__(self, collections: set[str]) -> None:
        self.collections = collections
        self.seen, self.bare = 0, list[Document]()

    def started(self, event: CommandStartedEvent) -> None:
        command = event.command
        if command.get(event.command_name) not in self.collections:
            return
        asked = [command, *command.get("deletes", ()), *command.get("updates", ())]
        for it in asked:
            query = [it.get(key) for key in ("filter", "query", "q", "pipeline") if key in it]
            self.seen += bool(query)
            if any(map(_holds_text, query)) and "collation" not in it:
                self.bare.append({"command": event.command_name, "query": query})

    def succeeded(self, _event: CommandSucceededEvent) -> None: ...

    def failed(self, _event: CommandFailedEvent) -> None: ...


def _holds_text(value: Any) -> bool:
    if isinstance(value, str):
        return not value.startswith("$")
    if isinstance(value, list):
        return any(map(_holds_text, value))
    if not isinstance(value, dict):
        return False
    return any(
        _holds_text(it)
        for key, it in value.items()
        if key not in ("_id", "$type", "$exists", "$project", "$changeStream", "$dateToString", "$dateTrunc")
    )


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("to", ["offline", "online"])
@pytest.mark.parametrize("collation", COLLATIONS)
def test_series_that_a_collation_takes_for_one_are_two(
    mongodb_uri: str, database: Database[Document], tmp_path: Path, to: str, collation: Document
) -> None:
    policy = ticks_policy(to=to, collection="gone" if to == "online" else None)
    keep = Retain(hourly=timedelta(days=50), grace=timedelta())
    policy = policy.model_copy(update={"retain": keep})
    names = ["mdb", "MDB", "10", "9"]
    for name in ("ticks", "gone"):
        database.create_collection(name, collation=collation)
    database["ticks"].insert_many(
        {"_id": f"{name}-{number}-{i}", "symbol": name, "d": START + timedelta(hours=number), "p": 1.0 + i}
        for i, name in enumerate(names)
        for number in range(3)
    )
    listener = Bare({"ticks", "gone", "hourly", "daily"})
    store = open_store(Store(url=(tmp_path / "store").as_uri()))
    (tmp_path / "store").mkdir()
    hold = Hold("h", {"symbol": "mdb"}, EVER, "why", START, "me", freeze=False, salt=b"0" * 32)

    def run(steps: Any, day: int) -> None:
        with MongoClient[Document](mongodb_uri, tz_aware=True, event_listeners=[listener]) as client:
            now = START + timedelta(days=day)
            display = ProgressDisplay(quiet=True)
            runner = Runner(
                "run", steps, client[database.name], store, now, Stop(), display,
                options=RunOptions(), is_now_given=True, known=(policy,),
            )  # fmt: skip
            (result,) = runner.run_all([policy])
            assert result.exit_code == 0, (result.error, result.body)

    run(RUN, 40)
    assert database["ticks"].count_documents({}) == 0
    found = {(it["symbol"], it["start"]): it["p"]["sum"] for it in database["hourly"].find()}
    hours = [START + timedelta(hours=number) for number in range(3)]
    assert found == {(name, hour): 1.0 + i for i, name in enumerate(names) for hour in hours}
    if to == "online":
        assert database["gone"].count_documents({}) == 12
    run((AUDIT,), 40)
    run((place_step(hold),), 41)
    run(RUN, 60)
    assert {it["symbol"] for it in database["hourly"].find()} == {"mdb"}
    assert listener.seen > 20
    assert listener.bare == []


@pytest.mark.proof
def test_a_step_leads_from_a_reading_of_just_this_series(place: Place) -> None:
    """Beside it lie summaries of another, whose name a collation takes for the same."""
    place.write_config(POLICIES + '[policies.iot.values.t]\nkind = "counter"\n')
    place.database.create_collection("iot_hourly", collation={"locale": "en", "strength": 2})
    place.database.iot.delete_many({})
    for hour in range(6):
        at = START + timedelta(hours=hour, minutes=5)
        place.database.iot.insert_one({"sensor": "aA"[hour % 2], "at": at, "t": float(hour)})
        assert place("run", "-p", "iot", now=iso(at + timedelta(minutes=67))).code == 0
    found = place.database.iot_hourly.find(sort=[("start", 1)])
    assert [it["t"]["increase"] for it in found] == [0.0, 0.0, 2.0, 2.0, 2.0, 2.0]
