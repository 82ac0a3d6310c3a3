"""Iceberg tables through the command line: what commands tell, whatever becomes of the catalog."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.moving import sweep
from bucketwise.archivers.stores import open_store
from bucketwise.buckets.bson import cursor
from bucketwise.config.load import load
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.runner import Runner
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.core.turn import RunOptions
from bucketwise.jobs.lake import registering
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.run.verb import RUN
from tests.jobs.place import MINUTES, NOW, POLICIES, Place

LAKE = "[lake]\n"
#: A catalog that is down. A secret of each kind stands in it.
DOWN = """[lake]
catalog = "ours"
namespace = "raw.ticks"
[lake.properties]
type = "rest"
uri = "http://bob:7Secret@127.0.0.1:1/"
token = "7Secret"
credential = "bob:x7Secret"
"""


def rows(metadata: str) -> int:
    return StaticTable.from_metadata(metadata).scan().count()


def findings(place: Place) -> tuple[int, list[tuple[str, str, str]]]:
    ran = place("audit", "--json")
    found = [it for name in ("ticks", "iot") for it in ran.policy(name)["findings"]]
    return ran.code, [(it["code"], it["severity"], it["message"]) for it in found]


@pytest.mark.proof
def test_runs_register_what_they_archive(place: Place) -> None:
    place.write_config(LAKE + POLICIES)
    ran = place("run", "--json")
    told = ran.policy("ticks")["lake"]
    assert (told["added"], told["removed"]) == (1, 0)
    assert rows(told["metadata"]) == MINUTES * 60
    assert ran.policy("iot")["lake"] == {"added": 0, "removed": 0, "snapshot": None, "metadata": None}
    assert place("lake", "sync", "--json").policy("ticks") == {
        "policy": "ticks",
        "exit_code": 0,
        **told,
        "added": 0,
    }
    assert findings(place) == (0, [])
    for _ in range(2):
        assert place("run", "-p", "ticks").code == 0
    assert place("status", "--json").policy("ticks")["last_runs"][0]["runs"] == 2, "they did nothing"
    before = place.everything()
    assert "lake" not in place("archive", "--dry-run", "--json").policy("ticks")
    assert "lake" not in place("plan", "--json").policy("ticks")
    assert place.everything() == before

    erased = place(
        *("erase", "-p", "ticks", "--series", "symbol=MDB", "--reason", "why", "--confirm", "ticks"), "--json"
    ).policy("ticks")
    assert (erased["lake"]["added"], erased["lake"]["removed"]) == (0, 1)
    assert rows(erased["lake"]["metadata"]) == 0
    shown = place("lake", "sync")
    assert (
        f"ticks: Iceberg table: 0 parts added, 0 taken out; snapshot {erased['lake']['snapshot']}"
        in shown.out
    )
    assert "iot: nothing is archived offline" in shown.out


@pytest.mark.proof
def test_a_run_that_its_window_ends_registers_what_it_archived(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a table would lack for weeks what runs of a large backlog have moved."""
    place.write_config(LAKE + '[throttle]\nwindow = "23:00-05:00"\n' + POLICIES)
    monkeypatch.setattr(sweep, "MAX_READINGS", 40 * 60)
    monkeypatch.setattr(cursor, "FIRST_DOCUMENTS", 20)
    monkeypatch.setattr(cursor, "MOST_DOCUMENTS", 20)
    late, steady, commit = [0.0], clock.steady, OfflineArchive.commit

    def committed(archive: OfflineArchive, *given: Any) -> Any:
        late[0] += 2 * 3600  # it begins at 1:00
        return commit(archive, *given)

    monkeypatch.setattr(OfflineArchive, "commit", committed)
    monkeypatch.setattr("bucketwise.jobs.core.clock.steady", lambda: steady() + late[0])
    settings = load(place.config, {"MONGODB_URI": place.uri})
    assert settings.store is not None
    now = clock.parse_instant("2018-09-01T01:00:00Z", "--now")
    runner = Runner(
        "run", RUN, place.database, open_store(settings.store), now, Stop(), ProgressDisplay(quiet=True)
    )
    runner.options, runner.is_now_given = RunOptions(followers=registering(settings.lake)), True
    result = runner.run_one(settings.policies["ticks"])
    monkeypatch.undo()
    archived = list(open_store(settings.store).list("ticks/meta/manifests/"))
    assert result.stopped == "window over" and 0 < len(archived) < 5
    assert 0 < rows(result.body["lake"]["metadata"]) < MINUTES * 60
    assert [it for it in findings(place)[1] if it[0].startswith("lake")] == []
    later = place("run", "--json", "--no-throttle", now="2018-09-01T01:00:00Z")
    told = later.policy("ticks")["lake"]
    assert rows(told["metadata"]) == MINUTES * 60


@pytest.mark.proof
def test_a_catalog_that_is_down_holds_nothing_up(place: Place) -> None:
    place.write_config(DOWN + POLICIES)
    ran = place("run", "--json")
    assert (ran.code, ran.policy("ticks")["archive"]["deleted"]) == (0, MINUTES)
    error = ran.policy("ticks")["lake"]["error"]
    assert error.startswith("Iceberg table ours: raw.ticks.ticks: ") and "the next run registers" in error
    assert "ticks: its Iceberg table is behind: Iceberg table ours" in place("archive").out
    tried = place("lake", "sync", "--json")
    assert (tried.code, tried.policy("ticks")["error"], tried.policy("iot")["exit_code"]) == (1, error, 0)
    code, ((finding, severity, message),) = findings(place)
    assert (code, finding, severity) == (0, "lake-behind", "warning")
    for it in (ran, tried, place("run", "--json", now=NOW), place("audit", "--json")):
        assert "7Secret" not in it.out + it.err

    place.write_config(LAKE + POLICIES)
    code, ((finding, severity, message),) = findings(place)
    assert (code, finding, severity) == (0, "lake-behind", "warning")
    assert "parts that it lacks: 1, such as file:///" in message
    assert place("run", "--json").policy("ticks")["lake"]["added"] == 1
    assert findings(place) == (0, [])


@pytest.mark.proof
def test_what_somebody_took_out_of_a_table_is_told(place: Place) -> None:
    catalog = (
        f'[lake]\ncatalog = "ours"\nproperties = {{type = "sql", uri = "sqlite:///{place.folder}/c.db"}}\n'
    )
    place.write_config(catalog + POLICIES)
    place("run")
    table = SqlCatalog("ours", uri=f"sqlite:///{place.folder}/c.db").load_table(
        (place.database.name, "ticks")
    )
    table.delete()
    code, ((finding, severity, _message),) = findings(place)
    assert (code, finding, severity) == (4, "lake-differs", "error")
    assert place("lake", "sync", "--json").policy("ticks")["added"] == 1
    assert findings(place) == (0, [])


@pytest.mark.proof
def test_what_lake_needs(place: Place) -> None:
    ran = place("lake", "sync")
    assert ran.code == 2 and "has no table [lake]. Add one" in ran.err
    assert place("lake", "drain").code == 2
    place.write_config(LAKE + POLICIES)
    meddled = place.command.meddled(
        ("tests.jobs.targets.test_lake", {}),
        "run",
        "--json",
        "--now",
        NOW,
        cwd=place.folder,
        MONGODB_URI=place.uri,
    )
    assert meddled.code == 0
    assert "pip install 'bucketwise[lake]'" in meddled.policy("ticks")["lake"]["error"]
    refused = place.command.meddled(
        ("tests.jobs.targets.test_lake", {}), "lake", "sync", cwd=place.folder, MONGODB_URI=place.uri
    )
    assert refused.code == 2 and "pip install 'bucketwise[lake]'" in refused.err


def install() -> None:
    """In a process without pyiceberg."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyiceberg" or ".lake." in name]:
        del sys.modules[name]
    sys.modules["pyiceberg"] = None  # type: ignore[assignment]
