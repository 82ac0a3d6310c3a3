"""What the ledger holds after real runs: how it stays small, and what it has to know all the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bucketwise.archivers.recovering.commits import CommitRegistry
from bucketwise.archivers.stores import open_store
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.load import load
from bucketwise.jobs.core import lease, ledger
from bucketwise.jobs.core.runner import Runner
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.run.verb import RUN
from tests.jobs.place import MINUTES, NOW, Db, Place
from tests.jobs.states import after


def test_runs_with_nothing_to_do_share_an_entry(place: Place) -> None:
    assert [place("run", "-p", "ticks").code for _ in range(4)] == [0] * 4
    idle, busy = place("status", "--json").policy("ticks")["last_runs"]
    assert (idle["verb"], idle["runs"], idle["outcome"]) == ("run", 3, "done")
    assert busy["started"] < idle["since"] < idle["started"] < idle["ended"]
    assert (busy["runs"], busy["since"]) == (1, busy["started"])
    assert place.database[ledger.COLLECTION].count_documents({}) == 2
    assert "3" in place("status").out


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("text", "entries"), [("", 1), ('keep = "30d"', 1), ('keep = "101d"', 2), ('keep = "forever"', 2)]
)
@after("run -p ticks")
def test_a_run_removes_what_is_older_than_the_file_says(place: Place, text: str, entries: int) -> None:
    _age(place.database, 100)
    place.config.write_text(place.config.read_text() + f"[ledger]\n{text}\n")
    place.database[lease.COLLECTION].update_one({"_id": "ticks"}, {"$set": {"fence": 10}})
    assert place("run", "-p", "ticks").code == 0
    assert place.database[ledger.COLLECTION].count_documents({}) == entries


def test_an_old_run_is_known_until_its_commit_is_registered(
    place: Place, mongodb_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut off after its manifest, and nothing ran for longer than entries are kept. Were it not known,
    the bucket that has changed since would count as it is and as it was."""

    def fail(*_: Any, **__: Any) -> None:
        raise BucketwiseError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(CommitRegistry, "register", fail)
        assert _run(place, mongodb_uri) == 1
    assert len(list(place.folder.rglob("*manifests/*.json"))) == 1
    _age(place.database, 100)
    changed = {"$set": {"p": {"0": 1.0, "1": 2.0}}}
    place.database.ticks.update_one({"d": {"$lt": datetime(2018, 6, 30, 0, 1, tzinfo=UTC)}}, changed)
    place.database[lease.COLLECTION].update_one({"_id": "ticks"}, {"$set": {"fence": 10}})
    with monkeypatch.context() as patch:  # one that fails removes nothing
        patch.setattr("bucketwise.jobs.rollup.prepare", fail)
        assert _run(place, mongodb_uri) == 1
    assert place.database[ledger.COLLECTION].count_documents({}) == 2
    place.database[lease.COLLECTION].update_one({"_id": "ticks"}, {"$set": {"fence": 21}})
    assert _run(place, mongodb_uri) == 0
    assert place("readings", "-p", "ticks", "-o", "all.csv", "--json").policy("ticks")["readings"] == (
        (MINUTES - 1) * 60 + 2
    )
    assert place.database[ledger.COLLECTION].count_documents({"exit_code": 1}) == 1


def _age(database: Db, days: int) -> None:
    for entry in database[ledger.COLLECTION].find():
        older = {"started": entry["started"] - timedelta(days=days)}
        database[ledger.COLLECTION].update_one({"_id": entry["_id"]}, {"$set": older})


def _run(place: Place, uri: str) -> int:
    settings = load(place.config, {"MONGODB_URI": uri})
    assert settings.store is not None
    runner = Runner(
        "run",
        RUN,
        place.database,
        open_store(settings.store),
        datetime.fromisoformat(NOW),
        Stop(),
        ProgressDisplay(quiet=True),
        is_now_given=True,
        keep=settings.ledger.keep,
    )
    return runner.run_one(settings.policies["ticks"]).exit_code
