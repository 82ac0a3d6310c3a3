"""Archives of older versions of the format are read; those of later ones are left alone, and it is said why.

`version1` and `version2` hold two policies' archives as they were written then; beside the first lie the
documents that went into both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bson
import pytest

from archivers.format.archive import OfflineArchive
from archivers.format.manifest import (
    SCHEMA_VERSION,
    DamagedError,
    commits,
    encoded,
    manifest_key,
    read_manifest,
    sealed,
)
from archivers.stores.file import FileStore

HERE = Path(__file__).parent
OLD = HERE / "version1"


def documents(name: str) -> list[bytes]:
    path = OLD / f"{name}.bson"
    return [bson.encode(it) for it in bson.decode_all(path.read_bytes())] if path.exists() else []


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
@pytest.mark.parametrize("policy", ["gaps", "probes"])
def test_older_versions_are_read(policy: str, version: int) -> None:
    store = FileStore(HERE / f"version{version}")
    found: dict[str, list[bytes]] = {"main": [], "extra": []}
    for commit in commits(store, policy):
        manifest = read_manifest(store, policy, commit.name)
        assert manifest.schema_version == version
        batch = OfflineArchive(manifest.archived_policy, store).load(manifest)
        found["main"] += batch.main
        found["extra"] += batch.extra
    assert len(found["main"]) == 12
    assert sorted(found["main"]) == sorted(documents(policy))
    assert sorted(found["extra"]) == sorted(documents(f"{policy}_more"))


def test_a_later_version_is_named(tmp_path: Path) -> None:
    old = FileStore(OLD)
    (commit,) = commits(old, "gaps")
    manifest = read_manifest(old, "gaps", commit.name)

    def read_as(**changed: Any) -> None:
        store = FileStore(tmp_path)
        later = sealed(manifest.model_copy(update=changed))
        store.put_bytes(manifest_key("gaps", commit.name), encoded(later))
        read_manifest(store, "gaps", commit.name)

    read_as(schema_version=SCHEMA_VERSION)
    with pytest.raises(DamagedError, match=r"version 4 .* reads 1 to 3.* Use the release that wrote it"):
        read_as(schema_version=SCHEMA_VERSION + 1)
