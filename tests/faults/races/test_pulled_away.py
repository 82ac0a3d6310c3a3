"""Collections and stores are changed under a run: renamed, dropped, capped, emptied by a TTL index, gone."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.config.tables import Store
from bucketwise.jobs.core.ledger import COLLECTION as RUNS
from tests.faults.scene import OFFLINE, ONLINE, RAW, ROLLUP, SAMPLES, SLOTS, Scene
from tests.faults.stopping import set_parameter, stopped
from tests.faults.tally import Tally
from tests.jobs.command import CommandLine
from tests.tiers import tier

Db = Database[dict[str, Any]]
MODELS = {"slots": SLOTS, "samples": SAMPLES}
ARCHIVES = {"offline": OFFLINE, "online": ONLINE}
NEW = range(500, 506)  # buckets that come with the change


def renamed(it: Scene) -> None:
    it.database["it"].rename("it_elsewhere")


def dropped(it: Scene) -> None:
    it.database["it"].drop()


def made_anew(it: Scene) -> None:
    it.database["it"].drop()
    for number in NEW:
        it.insert(number, it.when(number - NEW.start), 4)


def capped(it: Scene) -> None:
    it.database.command("convertToCapped", "it", size=1 << 20)


def expiring(it: Scene) -> None:
    """By a TTL index, whose monitor goes every second here."""
    it.database["it"].create_index("d", expireAfterSeconds=0)
    while it.database["it"].count_documents({}):
        threading.Event().wait(0.02)


def index_dropped(it: Scene) -> None:
    it.database["it"].drop_indexes()


def summaries_dropped(it: Scene) -> None:
    it.database["it_hourly"].drop()


def archive_dropped(it: Scene) -> None:
    it.database["it_archive"].drop()
    it.database["it_archive_overflow"].drop()


def store_removed(it: Scene) -> None:
    shutil.rmtree(it.folder / "store", ignore_errors=True)


#: What is done, at which steps of which archive, and the exit codes that may come of it.
FAULTS: dict[Callable[[Scene], None], dict[str, tuple[list[str], set[int]]]] = {
    renamed: {
        "offline": (
            ["before summaries", "before put part", "after put manifest", "before delete"],
            {0, 1, 3},
        ),
        "online": (["before summaries", "before copy", "before delete", "after delete"], {0, 1, 3}),
    },
    dropped: {
        "offline": (
            ["before summaries", "before put part", "after put manifest", "before delete"],
            {0, 1, 3},
        ),
        "online": (["before summaries", "before copy", "before delete"], {0, 1, 3}),
    },
    made_anew: {
        "offline": (["before summaries", "before put part", "before delete"], {0, 1, 3}),
        "online": (["before summaries", "before copy", "before delete"], {0, 1, 3}),
    },
    capped: {
        "offline": (["before summaries", "before put part", "before delete"], {0, 1}),
        "online": (["before copy", "before delete"], {0, 1}),
    },
    expiring: {
        "offline": (["before put part", "after put manifest", "before delete"], {0}),
        "online": (["before copy", "before delete"], {0}),
    },
    index_dropped: {
        "offline": (["before summaries", "before put part", "before delete"], {0}),
        "online": (["before copy", "before delete"], {0}),
    },
    summaries_dropped: {
        "offline": (["before summaries", "before put part", "after delete"], {0}),
        "online": (["before copy", "before delete"], {0}),
    },
    archive_dropped: {"online": (["before copy", "after copy", "before delete"], {0, 5})},
    store_removed: {"offline": (["before put part", "before put manifest", "after receipt"], {0, 1, 5})},
}
FIRST = {
    (dropped, "slots", "offline", "before put part"),
    (archive_dropped, "samples", "online", "before delete"),
    (store_removed, "slots", "offline", "after receipt"),
}


def _tries() -> list[Any]:
    found = []
    for fault, archives in FAULTS.items():
        for archive, (steps, codes) in archives.items():
            for model in MODELS:
                if fault is expiring and model == "samples":
                    continue  # its times are numbers, which no TTL index takes
                for at in steps:
                    marks = tier(is_first=(fault, model, archive, at) in FIRST, is_proof=model == "slots")
                    name = f"{fault.__name__}, {model} {archive}: {at}"
                    found.append(pytest.param(fault, model, archive, at, codes, id=name, marks=marks))
    return found


@pytest.fixture
def quick_ttl(client: MongoClient[dict[str, Any]]) -> Iterator[None]:
    with set_parameter(client, "ttlMonitorSleepSecs", 1):
        yield


@pytest.mark.proof
@pytest.mark.parametrize(("fault", "model", "archive", "at", "codes"), _tries())
def test_changed_under_a_run(
    tmp_path: Path,
    database: Db,
    mongodb_uri: str,
    file_store: Store,
    bucketwise: CommandLine,
    tally: Tally,
    quick_ttl: None,  # noqa: ARG001
    fault: Callable[[Scene], None],
    model: str,
    archive: str,
    at: str,
    codes: set[int],
) -> None:
    text = MODELS[model] + ROLLUP + ARCHIVES[archive]
    it = Scene(tmp_path, database, mongodb_uri, file_store, bucketwise, text).fill(buckets=12, readings=4)
    with stopped(it, at) as run:
        assert run.step == at
        fault(it)
    if fault is renamed:
        put_back(it)
    if fault in (dropped, made_anew, expiring):
        forget_what_was_taken(it)
    toll = it.toll()
    tally("changed under a run", f"{fault.__name__}, {archive}: {at}", runs=4, **toll._asdict())
    assert toll[1:] == (0, 0), run
    assert run.code in codes, run
    (entry,) = database[RUNS].find()
    assert entry["exit_code"] == run.code
    recover(it, fault)


def put_back(it: Scene) -> None:
    """What a run may have made under the name meanwhile has nothing in it."""
    assert it.database["it"].count_documents({}) == 0
    it.database["it"].drop()
    it.database["it_elsewhere"].rename("it")


def forget_what_was_taken(it: Scene) -> None:
    """Of what the collection held: a bucket that was archived by then is archived whole. The others are gone
    by the hand of whoever dropped them."""
    archived, live = it.truth.archived(), it.truth.live()
    for identity, unit in list(it.truth.units.items()):
        rows = list(it.truth.rows_of([unit]))
        there = [row for row in rows if archived[row]]
        assert there in ([], rows), identity
        if not there and unit not in live:
            it.truth.removed(identity)
    it.database["it"].drop_indexes()


def recover(it: Scene, fault: Callable[[Scene], None]) -> None:
    if fault is capped:
        documents = it.truth.raw("it")
        it.database["it"].drop()
        for raw in documents:
            it.database["it"].insert_one(RawBSONDocument(raw, RAW))
    if fault is dropped and not it.database.list_collection_names(filter={"name": "it"}):
        it.database.create_collection("it")
    if fault in (dropped, made_anew):  # a run may be the first to see that only summaries tell of it
        assert it.run().code in (0, 3)
    if fault is archive_dropped and it.run().code == 5:
        it.well("adopt", "--reason", "nothing was in it")
    if fault is store_removed:
        (it.folder / "store").mkdir(exist_ok=True)
    if fault is store_removed and it.run().code == 5:
        # A person must look: nothing was deleted on the account of the commits that are gone.
        receipts = it.database["bucketwise_receipts"]
        assert receipts.count_documents({"deleted": {"$gt": 0}}) == 0
        lost = [receipt["seal"] for receipt in receipts.find({"kind": "offline"})]
        receipts.update_one({"_id.name": "heads"}, {"$addToSet": {"lost": {"$each": lost}}})
        receipts.delete_many({"kind": "offline"})
        it.well("adopt", "--reason", "the store was removed")
    if fault in (dropped, made_anew):  # what somebody took out is counted by summaries alone
        it.database["it_hourly"].drop()
        it.database["it_daily"].drop()
    if fault in (dropped, made_anew, summaries_dropped):
        it.run()
        it.well("rollup", "--since", "2018-06-01", "--until", "2018-08-01")
    it.finish(summaries=fault not in (dropped, made_anew, expiring))
