"""A release, built for real: what is in it; its image works as its user, on a root that can't be written."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise import __version__
from bucketwise.config.schema import policy_file_schema
from bucketwise.config.tables import Store
from tests.conftest import ACCESS_KEY, SECRET_KEY, free_port
from tests.docs.pages import ROOT
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
import bucketwise, cryptography, duckdb, pyiceberg.catalog.sql, redis
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Image]]:
    with built(tmp_path_factory.mktemp("release")) as it:
        yield it


@pytest.fixture
def image(release: tuple[Path, Image]) -> Image:
    return release[1]


@pytest.fixture
def place(image: Image, tmp_path: Path, database: Database[dict[str, Any]], mongodb_uri: str) -> Place:
    """Readings, and a policy file whose store is the folder that is mounted into the image."""
    it = Place(tmp_path, database, mongodb_uri, Commands(image))
    it.write_config()
    it.config.write_text(it.config.read_text().replace(f"{tmp_path}/store", STORE))
    it.load()
    return it


def test_what_a_release_has(release: tuple[Path, Image]) -> None:
    folder, _ = release
    stem = f"bucketwise-{__version__}"
    assert {it.name for it in folder.iterdir()} == {
        f"{stem}-py3-none-any.whl",
        f"{stem}.tar.gz",
        f"{stem}-image.tar",
        f"{stem}.cdx.json",
        f"{stem}-manual.tar.gz",
        "bucketwise.schema.json",
        "SHA256SUMS",
    }
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        with (folder / name).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == digest
    assert json.loads((folder / "bucketwise.schema.json").read_text()) == policy_file_schema()
    materials = json.loads((folder / f"{stem}.cdx.json").read_text())
    assert {it["name"]: it["version"] for it in materials["components"]} == locked()
    wheel = zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl").namelist()
    sources = {
        f"bucketwise/{path.relative_to(ROOT)}"
        for top in ("config", "buckets", "rollups", "archivers", "jobs")
        for path in (ROOT / top).rglob("*.py")
    }
    assert sources <= set(wheel), "the wheel is built from the source distribution"
    pages = {"policies.md", "policies-reading.md", "policies-keeping.md"}
    assert {f"bucketwise/config/{it}" for it in pages} <= set(wheel)


def test_a_release_is_never_written_over_another_one(release: tuple[Path, Image]) -> None:
    again = _refused("--without-image", "--output", str(release[0]))
    assert "is there already" in again


def test_without_a_program_that_builds_images_there_is_no_release(tmp_path: Path) -> None:
    told = _refused("--output", str(tmp_path / "release"), PATH=str(tmp_path))
    assert re.findall(r"(\w+) is not installed", told) == ["docker", "podman", "buildah"]
    assert "--without-image" in told
    assert list(tmp_path.iterdir()) == []


def _refused(*arguments: str, **environment: str) -> str:
    command = [sys.executable, str(ROOT / "ops" / "release.py"), "--allow-changes", *arguments]
    ran = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (1, "")
    return ran.stderr


def test_the_image_holds_what_the_lock_file_names_and_no_installer(image: Image, tmp_path: Path) -> None:
    ran = image.run("python", "-c", _INSTALLED, place=tmp_path)
    assert ran.code == 0, ran
    installed, installers = json.loads(ran.out)
    found = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in installed.items()}
    assert found.pop("bucketwise")
    assert found == locked()
    assert installers == []


def test_the_images_user_can_write_nothing(image: Image, tmp_path: Path) -> None:
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
