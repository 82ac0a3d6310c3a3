"""What released versions have written is read by this one: policy file, archive, ledger and records."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from tests.jobs.command import CommandLine, Ran
from tests.released.keep import HERE, NOW, POLICY_FILE, SOURCES, STORE

VERSIONS = sorted(it.name for it in HERE.iterdir() if (it / POLICY_FILE).exists())
LATER = "2018-09-03T00:00:00Z"
Db = Database[dict[str, Any]]


def _documents(path: Path) -> list[RawBSONDocument]:
    return [RawBSONDocument(it.raw) for it in bson.decode_iter(path.read_bytes(), RAW)]


RAW: bson.CodecOptions[RawBSONDocument] = bson.CodecOptions(document_class=RawBSONDocument)


@pytest.mark.proof
@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_read(
    version: str, tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine
) -> None:
    kept = HERE / version
    shutil.copytree(kept / STORE, tmp_path / STORE)
    for path in (kept / "database").glob("*.bson"):
        database.create_collection(path.stem)
        if documents := _documents(path):
            database[path.stem].insert_many(documents)
    shutil.copy(kept / POLICY_FILE, tmp_path)

    def run(*arguments: str) -> Ran:
        return bucketwise(
            *arguments,
            "--json",
            "--now",
            LATER,
            cwd=tmp_path,
            MONGODB_URI=mongodb_uri,
            BUCKETWISE_MONGODB_DATABASE=database.name,
            STORE_URL=(tmp_path / STORE).as_uri(),
        )

    assert run("config", "show").code == 0
    adopted = run("adopt", "--reason", "Restored from a dump")
    assert adopted.code == 0, adopted
    verified = run("verify")
    assert (verified.code, [it["bad"] for it in verified.json["policies"]]) == (0, [0, 0, 0]), verified
    for name in ("ticks", "iot", "rooms"):
        before = _documents(kept / SOURCES / f"{name}.bson")
        assert run("restore", "-p", name, "--to", f"{name}_back").code == 0
        found: Any = database.get_collection(f"{name}_back", codec_options=RAW)
        assert sorted(bytes(it.raw) for it in found.find()) == sorted(bytes(it.raw) for it in before)
    told = {it["policy"]: it["runs"] for it in run("history").json["policies"]}
    assert {(it["version"], it["exit_code"]) for it in told["ticks"] if it["now_given"] in NOW} == {
        (version, 0)
    }
    again = run("run")
    assert again.code == 0, again
    assert again.policy("ticks")["rollup"]["hourly"]["written"] == 0
    assert [it["archive"]["buckets"] for it in again.json["policies"]] == [0, 0, 0]
    assert run("audit").code == 0
