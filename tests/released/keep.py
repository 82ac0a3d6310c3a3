"""Keeps what this version writes, for later versions to read: `python -m tests.released.keep`.

The folder of the version then has its archive, all collections of its database as BSON, and the buckets as
they were before they were archived; its policy file is written by hand. It is made once, and never changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
from pymongo import MongoClient

from bucketwise import __version__
from bucketwise.jobs.core.embedded import embedded_mongod

HERE = Path(__file__).parent
START = datetime(2018, 6, 30, tzinfo=UTC)
#: When the runs were; long past all readings.
NOW = ("2018-09-01T00:00:00Z", "2018-09-02T00:00:00Z")
#: Where the store was; records and markers name it.
_PLACE = Path("/var/tmp/bucketwise-released")
STORE, POLICY_FILE = "store", "bucketwise.toml"
#: The buckets before any run, by collection.
SOURCES = "sources"
Document = dict[str, Any]


def buckets() -> dict[str, list[Document]]:
    """Returns a few buckets of each kind."""
    minutes = [START + timedelta(hours=number // 4, minutes=number % 4) for number in range(20)]
    ticks = [
        {"_id": n, "symbol": "MDB", "d": at, "p": {str(s): 50 + n / 8 + s for s in range(0, 60, 7)}}
        for n, at in enumerate(minutes)
    ]
    iot = [
        {
            "_id": f"b{n}",
            "deviceid": n % 2,
            "first": int(at.timestamp()),
            "last": int(at.timestamp()) + 30,
            "samples": [{"time": int(at.timestamp()) + 10 * it, "val": it - 0.0} for it in range(4)],
        }
        for n, at in enumerate(minutes)
    ]
    rooms = [
        {"_id": n, "room": "a", "at": at, "t": 20.5 if n else float("nan")} for n, at in enumerate(minutes)
    ]
    return {"ticks": ticks, "iot": iot, "rooms": rooms}


def main() -> int:
    """Keeps it; returns 1 where the version has been kept already."""
    folder = HERE / __version__
    if (folder / STORE).exists():
        print(f"{folder} is there already, and stays as it is", file=sys.stderr)  # noqa: T201
        return 1
    store = _PLACE / STORE
    shutil.rmtree(_PLACE, ignore_errors=True)
    store.mkdir(parents=True)
    with embedded_mongod() as mongod:
        client: MongoClient[Document] = MongoClient(mongod.uri)
        database = client["market"]
        for name, documents in buckets().items():
            _write(folder / SOURCES / f"{name}.bson", map(bson.encode, documents))
            database[name].insert_many(documents)
        environment = {**os.environ, "MONGODB_URI": mongod.uri, "STORE_URL": store.as_uri()}
        for verb, now in (("run", NOW[0]), ("run", NOW[1]), ("verify", NOW[1])):
            named = ["--config", str(folder / POLICY_FILE), "--now", now]
            command = [sys.executable, "-m", "bucketwise", verb, *named]
            subprocess.run(command, env=environment, check=True)
        for name in sorted(database.list_collection_names()):
            raw = (bson.encode(it) for it in database[name].find())
            _write(folder / "database" / f"{name}.bson", raw)
    shutil.move(store, folder / STORE)
    return 0


def _write(path: Path, documents: Iterable[bytes]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(documents))


if __name__ == "__main__":
    sys.exit(main())
