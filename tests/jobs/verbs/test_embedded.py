from __future__ import annotations

import os
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.jobs.core import embedded
from bucketwise.jobs.core.embedded import EmbeddedMongodError, embedded_mongod


def test_a_transaction_and_a_change_stream_work(database: Database[dict[str, Any]]) -> None:
    database.create_collection("c")
    with database.c.watch() as stream:
        with database.client.start_session() as session, session.start_transaction():
            database.c.insert_one({"_id": 1}, session=session)
        assert stream.next()["documentKey"] == {"_id": 1}


@pytest.mark.proof
@pytest.mark.process
def test_a_dbpath_keeps_its_data_on_another_port(tmp_path: Path) -> None:
    with embedded_mongod(tmp_path) as first, MongoClient[dict[str, Any]](first.uri) as client:
        client.db.c.insert_one({"_id": 7})
    with embedded_mongod(tmp_path) as second, MongoClient[dict[str, Any]](second.uri) as client:
        assert client.db.c.find_one() == {"_id": 7}
    assert second.port != first.port
    with pytest.raises(ProcessLookupError):
        os.kill(second.pid, 0)


def test_no_mongod_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda _: None)  # type: ignore[attr-defined]
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EmbeddedMongodError, match=r"pip install 'bucketwise\[demo\]'"):
        embedded.start_mongod(tmp_path)


@pytest.mark.process
def test_a_mongod_that_dies_shows_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "storage.bson").write_bytes(b"not bson")
    with pytest.raises(
        EmbeddedMongodError, match=r"(?s)ended at its start with code \d+.*storage engine metadata file"
    ):
        embedded.start_mongod(tmp_path)


@pytest.mark.process
def test_a_missing_library_says_which_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mongod = tmp_path / "mongod"
    mongod.write_text(
        "#!/bin/sh\necho 'mongod: error while loading shared libraries: libcurl.so.4' >&2\nexit 127\n"
    )
    mongod.chmod(0o755)
    monkeypatch.setattr(embedded, "find_mongod", lambda _: mongod)
    with pytest.raises(EmbeddedMongodError, match=r"(?s)libcurl\.so\.4.*apt-get install libcurl4"):
        embedded.start_mongod(tmp_path / "db")


def test_a_wheel_without_its_run_bit_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = tmp_path / "fiftyone" / "db" / "bin" / "mongod"
    packaged.parent.mkdir(parents=True)
    packaged.write_bytes(b"")
    packaged.chmod(0o644)
    parent = ModuleSpec("fiftyone", None, is_package=True)
    parent.submodule_search_locations = [str(tmp_path / "fiftyone")]
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda _: parent)  # type: ignore[attr-defined]
    assert embedded.find_mongod(tmp_path) == packaged
    assert os.access(packaged, os.X_OK)
