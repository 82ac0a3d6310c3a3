"""Processes of the command line, killed from outside at about some moment: two clean runs finish, a third
changes nothing. `tests.faults.proofs.test_crash_points` kills them at exact steps, on less data.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.config.load import load
from bucketwise.config.tables import Store
from bucketwise.jobs.core.embedded import Mongod
from tests.archivers.builders import DAY0, MINUTE, SECOND, Case, Reading, encode, insert
from tests.archivers.harness import Cycle, expected_rows, whole
from tests.faults.stopping import set_parameter
from tests.jobs.command import started

Document = dict[str, Any]
POLICY = """
[policies.ticks]
collection = "ticks"
model = "slots"
time_field = "d"
series_fields = ["symbol"]
value_fields = ["p"]
slot = "second"
[policies.ticks.rollup]
hourly = "ticks_hourly"
[policies.ticks.archive]
after = "30d"
"""
OFFLINE = POLICY + 'to = "offline"\n'
ONLINE = POLICY + 'to = "online"\ncollection = "ticks_archive"\n'


class Place:
    """A folder with a policy file, a store beside it, and 1500 buckets in the database."""

    def __init__(self, database: Database[Document], uri: str, folder: Path, text: str) -> None:
        self.folder, self.database = folder, database
        (folder / "store").mkdir()
        self.store = Store(url=(folder / "store").as_uri())
        head = f'[mongodb]\nuri = "{uri}"\ndatabase = "{database.name}"\n[store]\nurl = "{self.store.url}"\n'
        (folder / "bucketwise.toml").write_text(head + text)
        documents: list[bytes] = []
        readings: list[Reading] = []
        for i in range(1500):
            at, symbol = DAY0 + (i // 2) * 2 * MINUTE, ("MDB", "ORCL")[i % 2]
            held = {str(n): 50 + (i * n % 40) / 4 for n in range(60)}
            documents.append(encode({"_id": i, "p": held, "symbol": symbol, "d": at}))
            readings += [((symbol,), at + int(n) * SECOND, value) for n, value in held.items()]
        insert(database, "ticks", documents)
        policy = load(folder / "bucketwise.toml", environ={}).policies["ticks"]
        self.cycle = Cycle(database, Case("ticks", policy, documents, readings), self.store)

    def arguments(self) -> list[str]:
        return ["run", "--json", "--now", (DAY0 + timedelta(days=60)).isoformat()]

    def run(self) -> Document:
        with started(*self.arguments(), cwd=self.folder) as process:
            out, err = process.communicate(timeout=120)
        assert process.returncode == 0, (out, err)
        (body,) = json.loads(out)["policies"]
        assert isinstance(body, dict)
        return body

    def kill_when(self, happened: Callable[[], bool]) -> str | None:
        """None, or what the run wrote where it ended before."""
        with started(*self.arguments(), cwd=self.folder) as process:
            while process.poll() is None:
                if happened():
                    process.kill()
                    process.communicate()
                    return None
                time.sleep(0.002)
            out, err = process.communicate()
        return f"{process.returncode}: {out} {err}"

    def check_nothing_is_lost(self) -> None:
        live = set(self.cycle.live())
        if self.online:
            held = set(self.cycle.archived())
        else:
            archive = self.cycle.as_stored()
            batches = [whole(archive, archive.manifest(commit)) for commit in archive.commits()]
            held = {document for batch in batches for document in batch.main}
        assert live | held == set(self.cycle.case.documents)

    def check_finished(self) -> None:
        self.run()
        self.run()
        assert self.cycle.live() == []
        assert self.cycle.archived() == sorted(self.cycle.case.documents)
        if not self.online:
            assert self.cycle.rows() == expected_rows(self.cycle.case)
        counts: Counter[tuple[str, Any]] = Counter()
        for (symbol,), at, _ in self.cycle.case.readings:
            counts[symbol, at.replace(minute=0, second=0)] += 1
        summaries = self.database["ticks_hourly"].find()
        assert {(it["symbol"], it["start"]): it["count"] for it in summaries} == counts
        before = self.cycle.listing()
        third = self.run()
        assert (third["archive"]["buckets"], third["archive"]["deleted"]) == (0, 0)
        assert third["rollup"]["hourly"]["written"] == 0
        assert self.cycle.listing() == before

    @property
    def online(self) -> bool:
        return self.cycle.policy.archive is not None and self.cycle.policy.archive.to == "online"

    def has(self, pattern: str) -> bool:
        return next((self.folder / "store").glob(pattern), None) is not None

    def deleting(self) -> bool:
        return self.database["ticks"].estimated_document_count() < 1500


MOMENTS: dict[str, tuple[str, Callable[[Place], bool]]] = {
    "a part": (OFFLINE, lambda place: place.has("ticks/data/*/*.parquet")),
    "the buckets file": (OFFLINE, lambda place: place.has("ticks/meta/buckets/*")),
    "the manifest": (OFFLINE, lambda place: place.has("ticks/meta/manifests/*")),
    "a delete": (OFFLINE, Place.deleting),
    "a summary": (ONLINE, lambda place: bool(place.database["ticks_hourly"].find_one())),
    "a copy": (ONLINE, lambda place: bool(place.database["ticks_archive"].find_one())),
    "a delete online": (ONLINE, Place.deleting),
}


@pytest.fixture(autouse=True)
def short_transactions(client: MongoClient[Document]) -> Iterator[None]:
    """What a killed process leaves open keeps the next one waiting: a minute, where nobody says otherwise."""
    with set_parameter(client, "transactionLifetimeLimitSeconds", 3):
        yield


@pytest.mark.proof
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_when_there_is(
    database: Database[Document], mongod: Mongod, tmp_path: Path, moment: str
) -> None:
    text, happened = MOMENTS[moment]
    place = Place(database, mongod.uri, tmp_path, text)
    assert place.kill_when(lambda: happened(place)) is None
    place.check_nothing_is_lost()
    place.check_finished()


@pytest.mark.proof
@pytest.mark.parametrize("text", [OFFLINE, ONLINE], ids=["offline", "online"])
@pytest.mark.parametrize("seed", range(8))
def test_killed_again_and_again(
    database: Database[Document], mongod: Mongod, tmp_path: Path, text: str, seed: int
) -> None:
    """At random moments, until a run ends by itself."""
    place = Place(database, mongod.uri, tmp_path, text)
    chance = random.Random(seed)
    for _ in range(12):
        end = time.monotonic() + chance.uniform(0.5, 4)
        if ended := place.kill_when(lambda end=end: time.monotonic() > end):  # type: ignore[misc]
            assert ended.startswith("0: ")
            break
        place.check_nothing_is_lost()
    place.check_finished()
