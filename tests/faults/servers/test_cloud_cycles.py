"""The whole life of an archive in Azure and in Google Cloud Storage, and of copies there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.config.tables import Store
from tests.clouds import container_of
from tests.faults.scene import NOW, OFFLINE, ROLLUP, SLOTS, START, Scene
from tests.faults.truth import files_of
from tests.jobs.command import CommandLine

DAY = timedelta(days=1)
LIVE = SLOTS + ROLLUP + OFFLINE
ENCRYPTED = f'encryption_key = "{"0123456789abcdef" * 2}"\n'
MakeScene = Callable[..., Scene]


@pytest.fixture(params=["google", pytest.param("azurite", marks=pytest.mark.proof)])
def cloud(request: pytest.FixtureRequest) -> Store:
    """Settings of an empty store in a cloud."""
    settings: Store = request.getfixturevalue(f"{request.param}_store")
    return settings


@pytest.fixture
def scene(tmp_path: Path, database: Database[Any], mongodb_uri: str, bucketwise: CommandLine) -> MakeScene:
    def make(store: Store, text: str = LIVE) -> Scene:
        return Scene(tmp_path, database, mongodb_uri, store, bucketwise, text).fill(buckets=12, readings=4)

    return make


def copy_in(store: Store, *keys: str) -> str:
    """The table of a copy there."""
    endpoint = f'endpoint_url = "{store.endpoint_url}"\n' if store.endpoint_url else ""
    return "\n".join([f'[[store.copies]]\nname = "second"\nurl = "{store.url}"\n{endpoint}', *keys])


def test_a_run_and_a_restore(cloud: Store, scene: MakeScene) -> None:
    it = scene(cloud)
    it.well("check")
    it.well()
    assert it.toll() == (48, 0, 0)
    it.well("verify")
    it.check_restores()


@pytest.mark.proof
def test_the_whole_life_of_an_archive(cloud: Store, scene: MakeScene) -> None:
    """Small commits are made, merged and cleared, a late reading comes, a series is erased, and at last all
    of it is past its time."""
    it = scene(cloud)
    for minutes in (50, 110, 170, 210):
        it.well(now=START + timedelta(days=30, minutes=minutes))
    assert len(it.truth.manifests()) == 4
    assert it.well("compact", now=NOW - 2 * DAY)["into"] == 2
    it.finish(now=NOW)
    assert len(it.truth.manifests()) == 2
    it.insert(100, START + timedelta(minutes=30), 3)
    it.well("run", "--workers", "2", now=NOW + DAY)
    it.finish(now=NOW + DAY)
    it.audited(now=NOW + DAY)
    it.well("drill", now=NOW + DAY)
    it.check_restores()

    ones = sorted(unit[0] for number, unit in it.truth.units.items() if number % 2)
    given = ["--series", "dev=0", "--reason", "asked for", "--confirm", "it"]
    body = it.well("erase", *given, now=NOW + DAY)
    assert sorted(it.restored(now=NOW + DAY)) == ones
    assert not any("older versions" in it["why"] for it in body["remaining"])  # it was asked, and keeps none
    it.well("verify", now=NOW + DAY)

    it.text += '[policies.it.retain]\narchive = "1y"\n'
    it.write_config()
    then = NOW + timedelta(days=800)
    it.well(now=then)
    it.well(now=then + 8 * DAY)
    left = [name for name in it.truth.files.names() if "/data/" in name or "/meta/buckets/" in name]
    assert left == []
    it.audited(now=then + 8 * DAY)


@pytest.mark.proof
@pytest.mark.parametrize("encryption", ["", ENCRYPTED], ids=["plain", "encrypted"])
def test_a_copy_there_heals_the_first_store_and_takes_its_place(
    cloud: Store, file_store: Store, scene: MakeScene, encryption: str
) -> None:
    it = scene(file_store, encryption + copy_in(cloud) + LIVE)
    it.well()
    first, second = files_of(file_store), container_of(cloud)
    before = contents(first)
    assert contents(second) == before
    part = next(name for name in first.names() if "/data/" in name)
    first.remove(part)
    it.database.drop_collection("back")
    it.well("restore", "--policy", "it", "--to", "back", code=3)
    assert sorted(it.truth.raw("back")) == sorted(unit[0] for unit in it.truth.units.values())
    assert it.well("repair")["repaired"] == 1
    manifest = next(name for name in second.names() if "/manifests/" in name)
    second.write(manifest, b"damaged")
    it.well("verify", code=5)
    assert it.well("repair")["repaired"] == 1
    assert contents(first) == contents(second) == before
    for name in first.names():  # the whole store is lost
        first.remove(name)
    it.well("repair")
    assert contents(first) == before
    it.check_restores()


@pytest.mark.proof
def test_a_directory_is_a_copy_of_a_store_there(cloud: Store, file_store: Store, scene: MakeScene) -> None:
    it = scene(cloud)
    it.well()
    it.text = copy_in(file_store) + LIVE
    it.write_config()
    assert it.well("copy")["copied"] > 3
    assert contents(files_of(cloud)) == contents(files_of(file_store))
    for name in files_of(cloud).names():
        files_of(cloud).remove(name)
    it.well("restore", "--policy", "it", "--to", "back", code=3)
    it.well("repair")
    it.check_restores()


@pytest.mark.proof
def test_an_iceberg_table_of_it_lies_there(cloud: Store, scene: MakeScene) -> None:
    it = scene(cloud, "[lake]\n" + LIVE)
    told = it.well()["lake"]
    assert (told["added"], told["removed"]) == (2, 0)
    name = told["metadata"].removeprefix(f"{cloud.url}/")
    (snapshot,) = json.loads(container_of(cloud).read(name))["snapshots"]
    assert snapshot["snapshot-id"] == told["snapshot"]
    assert it.well("lake", "sync")["added"] == 0


def contents(files: Any) -> dict[str, bytes]:
    return {name: files.read(name) for name in files.names()}


def test_a_container_that_is_not_there_ends_a_run_before_anything_goes(
    cloud: Store, scene: MakeScene
) -> None:
    """And nothing makes it."""
    away = cloud.model_copy(update={"url": f"{cloud.url[:2]}://there-is-none/archive"})
    it = scene(away)
    before = it.truth.raw("it")
    for verb, words in (("check", "there is no such"), ("run", "there is no such")):
        ran = it.run(verb)
        assert ran.code == 1 and words in ran.err + ran.out and "Traceback" not in ran.err, ran
    assert it.truth.raw("it") == before


@pytest.mark.in_turn(1)
@pytest.mark.parametrize(("scheme", "extra"), [("az", "azure"), ("gs", "gcs")])
def test_without_the_client_nothing_is_touched(scene: MakeScene, scheme: str, extra: str) -> None:
    it = scene(Store(url=f"{scheme}://acme/x", endpoint_url="http://127.0.0.1:9"))
    text = "import sys; sys.modules['obstore'] = None; from bucketwise.jobs.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", text, "run"], cwd=it.folder, capture_output=True, text=True)
    assert ran.returncode == 2, ran
    assert f"pip install 'bucketwise[{extra}]'" in ran.stderr and "Traceback" not in ran.stderr
    assert it.database.list_collection_names() == ["it"]
