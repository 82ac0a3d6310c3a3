"""The image, built for real: what is in it, and that it works as its user on a root that can't be written."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.config.tables import Store
from tests.conftest import ACCESS_KEY, SECRET_KEY, free_port
from tests.docs.played.test_container import last, until
from tests.jobs.place import MINUTES, Place
from tests.ops.image import STORE, Commands, Image, built
from tests.ops.test_lock import locked

pytestmark = pytest.mark.proof

_INSTALLED = """
import importlib.metadata, importlib.util, json
print(json.dumps([
    {it.name: it.version for it in importlib.metadata.distributions()},
    [name for name in ("pip", "setuptools", "wheel") if importlib.util.find_spec(name)],
]))
import bucketwise, duckdb, pyiceberg.catalog.sql, redis
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    with built(tmp_path_factory.mktemp("image")) as it:
        yield it


@pytest.fixture
def place(image: Image, tmp_path: Path, database: Database[dict[str, Any]], mongodb_uri: str) -> Place:
    """Readings, and a policy file whose store is the folder that is mounted into the image."""
    it = Place(tmp_path, database, mongodb_uri, Commands(image))
    it.write_config()
    it.config.write_text(it.config.read_text().replace(f"{tmp_path}/store", STORE))
    it.load()
    return it


def test_it_holds_what_the_lock_file_names_and_no_installer(image: Image, tmp_path: Path) -> None:
    ran = image.run("python", "-c", _INSTALLED, place=tmp_path)
    assert ran.code == 0, ran
    installed, installers = json.loads(ran.out)
    found = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in installed.items()}
    assert found.pop("bucketwise")
    assert found == locked()
    assert installers == []


def test_its_user_can_write_nothing(image: Image, tmp_path: Path) -> None:
    ran = image.run("sh", "-c", 'id -u; grep CapEff /proc/self/status; ! touch /x "$HOME" .', place=tmp_path)
    assert ran.code == 0
    assert ran.out.split() == [last("USER").partition(":")[0], "CapEff:", "0" * 16]
    assert ran.err.count("Read-only file system") == 3


def test_the_cycle_in_a_folder(place: Place) -> None:
    _cycle(place)


def test_the_cycle_on_s3(place: Place, moto_store: Store) -> None:
    text = place.config.read_text().replace(f"file://{STORE}", moto_store.url)
    connection = f'endpoint_url = "{moto_store.endpoint_url}"\nregion = "{moto_store.region}"\n'
    place.config.write_text(text.replace("[policies.ticks]\n", f"{connection}[policies.ticks]\n"))
    _cycle(place, AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)


def _cycle(place: Place, **environment: str) -> None:
    def call(*arguments: str) -> dict[str, Any]:
        now = ("--now", "2018-09-01T00:00:00Z")
        ran = place.command(
            *arguments, *now, "--quiet", "--json", cwd=place.folder, MONGODB_URI=place.uri, **environment
        )
        assert ran.code == 0, ran
        return ran.json

    call("check")
    ticks, iot = call("run")["policies"]
    assert (ticks["archive"]["deleted"], iot["archive"]["deleted"]) == (MINUTES, MINUTES // 10)
    assert call("query", "SELECT count(*) FROM ticks")["rows"] == [[MINUTES * 60]]
    call("audit")
    restored = call(
        "restore", "--policy", "ticks", "--since", "2018-06-30", "--until", "2018-07-01", "--to", "back"
    )
    assert restored["policies"][0]["buckets"] == MINUTES == place.database.back.count_documents({})


def test_the_service_answers_and_ends(image: Image, place: Place) -> None:
    """The image's own command and health check."""
    port = str(free_port())
    environment = {
        "MONGODB_URI": place.uri,
        "BUCKETWISE_METRICS_PORT": port,
        "BUCKETWISE_METRICS_HOST": "127.0.0.1",
    }
    _, *check = image.config["Healthcheck"]["Test"]

    def healthy() -> bool:
        return image.run(*check, place=place.folder, **environment).code == 0

    assert not healthy()
    command = (*image.config["Entrypoint"], *image.config["Cmd"])
    with image.started(*command, place=place.folder, **environment) as process:
        until(healthy)
        until(lambda: place.database.ticks.count_documents({}) == 0)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
            assert b"bucketwise_last_run_timestamp_seconds" in reply.read()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert not healthy()
