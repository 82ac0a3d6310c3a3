"""The role that operations.md shows is enough for the policy file of the README, on a server that asks."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from jobs.embedded import Mongod, find_mongod
from tests.docs.pages import ROOT, blocks
from tests.jobs.command import CommandLine, Ran

NOW = "2018-09-01"
START = datetime(2018, 6, 30, tzinfo=UTC)
Client = MongoClient[dict[str, Any]]


def role() -> dict[str, Any]:
    (block,) = [it for it in blocks(ROOT / "docs" / "operations.md") if it.marks == ("role",)]
    shown = re.search(r"createRole\((.*)\)", block.text, re.DOTALL)
    assert shown
    assert 'db.getSiblingDB("market")' in block.text
    found: dict[str, Any] = json.loads(shown[1])
    return found


@pytest.fixture(scope="module")
def asking_mongod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A replica set of one that asks who is there; a client of its root."""
    folder = tmp_path_factory.mktemp("asking")
    key = folder / "key"
    key.write_text(base64.b64encode(os.urandom(96)).decode())
    key.chmod(0o600)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(find_mongod(folder)), "--replSet", "rs0", "--bind_ip", "127.0.0.1", "--port", str(port)]
    command += ["--dbpath", str(folder), "--nounixsocket", "--quiet", "--wiredTigerCacheSizeGB", "0.25"]
    command += ["--oplogSize", "128", "--auth", "--keyFile", str(key)]
    with (folder / "log").open("wb") as log:
        mongod = Mongod(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log), port, folder)
    try:
        with Client("127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=60_000) as first:
            members = [{"_id": 0, "host": f"127.0.0.1:{port}"}]
            first.admin.command("replSetInitiate", {"_id": "rs0", "members": members})
            _await(lambda: bool(first.admin.command("hello")["isWritablePrimary"]))
            first.admin.command("createUser", "root", pwd="root", roles=["root"])
        with Client(f"mongodb://root:root@127.0.0.1:{port}/?replicaSet=rs0", tz_aware=True) as it:
            yield it
    finally:
        mongod.stop()


def _await(holds: Any) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except PyMongoError:
            pass
        time.sleep(0.05)
    raise AssertionError("the server was not ready after a minute")


@pytest.fixture
def as_told(asking_mongod: Client, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The README's policy file in `tmp_path`, ticks in its database, and a user with the role."""
    database = asking_mongod.market
    shown = role()
    database.command(
        {"createRole": shown["role"], "privileges": shown["privileges"], "roles": shown["roles"]}
    )
    database.command("createUser", "bucketwise", pwd="s3cret", roles=["bucketwise"])
    minutes = [START + timedelta(minutes=count) for count in range(60)]
    database.ticks.insert_many({"symbol": "MDB", "d": at, "p": {"0": 56.5, "59": 57.0}} for at in minutes)
    database.ticks.create_index("d")
    (policies,) = [it for it in blocks(ROOT / "README.md") if it.language == "toml"]
    (tmp_path / "bucketwise.toml").write_text(policies.text)
    assert asking_mongod.address is not None
    host, port = asking_mongod.address
    yield {
        "MONGODB_URI": f"mongodb://bucketwise:s3cret@{host}:{port}/?replicaSet=rs0&authSource=market",
        "BUCKETWISE_STORE_URL": (tmp_path / "store").as_uri(),
    }
    database.command("dropAllUsersFromDatabase")
    database.command("dropAllRolesFromDatabase")
    asking_mongod.drop_database("market")


def test_the_role_is_enough(
    as_told: dict[str, str], asking_mongod: Client, tmp_path: Path, bucketwise: CommandLine
) -> None:
    def call(*arguments: str) -> Ran:
        ran = bucketwise(*arguments, "--now", NOW, "--quiet", "--json", cwd=tmp_path, **as_told)
        assert ran.code == 0, ran
        return ran

    checked = call("check")
    findings = [*checked.json["findings"], *checked.policy("ticks")["findings"]]
    assert {it["severity"] for it in findings} == {"ok"}
    call("plan")
    assert call("run").policy("ticks")["archive"]["deleted"] == 60
    for verb in ("verify", "audit", "status"):
        call(verb)
    restored = call("restore", "-p", "ticks", "--to", "ticks_restored")
    assert restored.policy("ticks")["buckets"] == 60
    assert asking_mongod.market.ticks_restored.count_documents({}) == 60
    assert call("run").policy("ticks")["rollup"]["hourly"]["written"] == 0
    assert call("run").policy("ticks")["rollup"]["late"] == {"mode": "stream", "events": 0, "reason": None}


def test_without_the_right_to_the_change_stream_late_readings_are_scanned_for(
    as_told: dict[str, str], asking_mongod: Client, tmp_path: Path, bucketwise: CommandLine
) -> None:
    everywhere = {"db": "market", "collection": ""}
    removed = [{"resource": everywhere, "actions": ["changeStream"]}]
    asking_mongod.market.command("revokePrivilegesFromRole", "bucketwise", privileges=removed)

    def call(verb: str) -> Ran:
        return bucketwise(verb, "--now", NOW, "--quiet", "--json", cwd=tmp_path, **as_told)

    (found,) = [it for it in call("check").policy("ticks")["findings"] if it["severity"] != "ok"]
    assert (found["code"], found["severity"]) == ("stream-unreadable", "warning")
    late = call("rollup").policy("ticks")["late"]
    assert late["mode"] == "scan" and "the user lacks the right to it" in late["reason"]
    config = tmp_path / "bucketwise.toml"
    text = config.read_text()
    config.write_text(
        text.replace("[policies.ticks.rollup]", '[policies.ticks.rollup]\nlate_data = "stream"')
    )
    (found,) = [it for it in call("check").policy("ticks")["findings"] if it["severity"] != "ok"]
    assert (found["code"], found["severity"]) == ("stream-unreadable", "error")
    ran = call("rollup")
    assert ran.code == 1
    assert "late_data" in str(ran.json) and "the user lacks the right to it" in str(ran.json)
