"""The checker itself: what is lost or double is found, and a whole cycle passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.config.tables import Store
from tests.faults.scene import OFFLINE, ONLINE, ROLLUP, SAMPLES, SLOTS, Scene
from tests.faults.truth import Toll
from tests.jobs.command import CommandLine

READINGS = 24 * 5


def scene(
    text: str, tmp_path: Path, database: Database[Any], uri: str, store: Store, command: CommandLine
) -> Scene:
    return Scene(tmp_path, database, uri, store, command, text).fill()


@pytest.mark.proof
@pytest.mark.parametrize(
    ("model", "archive", "kind"),
    [
        (SAMPLES, OFFLINE, "moto"),
        pytest.param(SLOTS, OFFLINE, "rclone", marks=pytest.mark.proof),
        pytest.param(SAMPLES, ONLINE, "file", marks=pytest.mark.proof),
        pytest.param(SLOTS, OFFLINE, "moto", marks=pytest.mark.proof),
        pytest.param(SAMPLES, OFFLINE, "rclone", marks=pytest.mark.proof),
        pytest.param(SLOTS, ONLINE, "file", marks=pytest.mark.proof),
    ],
    ids=["samples-moto", "slots-rclone", "samples-online", "slots-moto", "samples-rclone", "slots-online"],
)
def test_a_whole_cycle(
    request: pytest.FixtureRequest,
    model: str,
    archive: str,
    kind: str,
    tmp_path: Path,
    database: Database[Any],
    mongodb_uri: str,
    bucketwise: CommandLine,
) -> None:
    store: Store = request.getfixturevalue(f"{kind}_store")
    it = scene(model + ROLLUP + archive, tmp_path, database, mongodb_uri, store, bucketwise)
    assert it.toll() == Toll(READINGS, 0, 0)
    it.finish()
    assert it.toll() == Toll(READINGS, 0, 0)
    it.check_restores()
    it.audited()


@pytest.mark.proof
@pytest.mark.parametrize("texts", [SLOTS, SAMPLES], ids=["slots", "samples"])
def test_what_is_lost_and_double_is_found(
    texts: str,
    tmp_path: Path,
    database: Database[Any],
    mongodb_uri: str,
    file_store: Store,
    bucketwise: CommandLine,
) -> None:
    it = scene(texts + ROLLUP + OFFLINE, tmp_path, database, mongodb_uri, file_store, bucketwise)
    database["it"].delete_one({"_id": 3})
    assert it.toll() == Toll(READINGS, 5, 0)
    it.write(*it.truth.units[3])
    it.well()
    database["it_hourly"].update_one({}, {"$inc": {"count": 1}})
    with pytest.raises(AssertionError):
        it.truth.check_summaries()
    (path,) = (tmp_path / "store" / "it" / "meta" / "manifests").iterdir()
    manifest = json.loads(path.read_text())
    path.with_name("again.json").write_text(json.dumps(manifest | {"commit": "again"}))
    assert it.toll() == Toll(READINGS, 0, READINGS)
    with pytest.raises(AssertionError):
        it.truth.check_finished()
    path.with_name("again.json").unlink()
    path.unlink()
    assert it.toll() == Toll(READINGS, READINGS, 0)
