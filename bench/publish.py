"""Summaries in Redis beside the same in MongoDB: how large they are, and how fast they are read."""

from __future__ import annotations

import json
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import redis
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.embedded import embedded_mongod
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.rollup import rollup

SERIES, HOURS, LATEST, EXCHANGES = 2_000, 48, 24, 20
_READS = 2_000
_START = datetime(2026, 3, 1, tzinfo=UTC)
_POLICY = """
[publish.redis]
url = "redis://127.0.0.1:{port}/0"
latest_hours = {latest}
secondary = "exchange"
[policies.ticks]
collection = "ticks"
model = "reading"
time_field = "d"
series_fields = ["symbol", "exchange"]
value_fields = ["p"]
[policies.ticks.rollup]
hourly = "hourly"
"""


def measure(folder: Path | None) -> None:
    """Prints a table."""
    with (
        tempfile.TemporaryDirectory(prefix="bucketwise-bench-", dir=folder) as path,
        embedded_mongod(Path(path)) as mongod,
        _redis() as port,
        MongoClient[dict[str, Any]](mongod.uri, tz_aware=True) as client,
        redis.Redis(port=port, decode_responses=True) as kept,
    ):
        empty = kept.info("memory")["used_memory"]
        seconds = _publish(mongod.uri, client["bench"], Path(path), port)
        stats = client["bench"].command("collStats", "hourly")
        in_redis = (kept.info("memory")["used_memory"] - empty) / (SERIES * (LATEST + 1))
        in_mongodb = (stats["size"] + stats["totalIndexSize"]) / (SERIES * HOURS)
        lines = [
            f"{SERIES:,} series of {HOURS} hours, {LATEST} in Redis: rolled up, published in {seconds:.1f} s",
            f"bytes a summary: {in_redis:,.0f} in Redis, {in_mongodb:,.0f} in MongoDB (BSON and indexes)",
            "| read | Redis | MongoDB | MongoDB / Redis |\n|---|---|---|---|",
        ]
        for name, read_redis, read_mongodb in _reads(kept, client["bench"]):
            fast, slow = _median(read_redis), _median(read_mongodb)
            lines.append(f"| {name} | {fast:.0f} µs | {slow:.0f} µs | {slow / fast:.1f} |")
        sys.stdout.write("\n".join(lines) + "\n")


def _publish(uri: str, database: Database[dict[str, Any]], folder: Path, port: int) -> float:
    for hour in range(HOURS):
        at = _START + timedelta(hours=hour)
        database["ticks"].insert_many(
            {"symbol": f"S{i}", "exchange": f"E{i % EXCHANGES}", "d": at, "p": i / 7} for i in range(SERIES)
        )
    database["ticks"].create_index("d")
    path = folder / "bench.toml"
    head = f'[mongodb]\nuri = "{uri}"\ndatabase = "{database.name}"\n'
    path.write_text(head + _POLICY.format(port=port, latest=LATEST))
    now = _START + timedelta(hours=HOURS + 1)
    started = time.perf_counter()
    [result] = rollup(Call("rollup", path, (), now, True, True, True, True, Stop(), environ={})).results
    assert result.body["publish"] == {"keys": 2 * SERIES}, result
    return time.perf_counter() - started


def _reads(
    kept: Any, database: Database[dict[str, Any]]
) -> Iterator[tuple[str, Callable[[int], Any], Callable[[int], Any]]]:
    def member(i: int) -> str:
        return f"{{S{i}:E{i % EXCHANGES}}}"

    def newest(i: int, count: int) -> list[Any]:
        query = {"symbol": f"S{i}", "exchange": f"E{i % EXCHANGES}"}
        return list(database["hourly"].find(query, {"p.state": 0}).sort("start", -1).limit(count))

    def hours(i: int) -> list[Any]:
        return [json.loads(it) for it in kept.zrange(f"bw:ticks:hourly:{member(i)}", 0, -1)]

    yield "last summary", lambda i: kept.hgetall(f"bw:ticks:last:{member(i)}"), lambda i: newest(i, 1)
    yield f"last {LATEST} hours", hours, lambda i: newest(i, LATEST)
    yield (
        "series of an exchange",
        lambda i: kept.smembers(f"bw:ticks:by:exchange:E{i % EXCHANGES}"),
        lambda i: database["hourly"].distinct("symbol", {"exchange": f"E{i % EXCHANGES}"}),
    )


def _median(read: Callable[[int], Any]) -> float:
    """Microseconds, of reads of random series; as many as ten seconds allow."""
    seconds, end = [], time.perf_counter() + 10
    for i in random.Random(7).choices(range(SERIES), k=_READS):
        started = time.perf_counter()
        assert read(i)
        seconds.append(time.perf_counter() - started)
        if time.perf_counter() > end:
            break
    return statistics.median(seconds) * 1e6


@contextmanager
def _redis() -> Iterator[int]:
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("redis-server is missing: apt-get install redis-server")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port) as client:
            while True:
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()
