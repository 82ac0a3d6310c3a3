"""Archives of another version of the format are left alone, and the message says why."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.format.manifest import SCHEMA_VERSION, DamagedError, encoded, read_manifest, sealed
from bucketwise.archivers.format.names import commits, manifest_key
from bucketwise.config.tables import Store
from tests.archivers.builders import slots
from tests.archivers.harness import Cycle


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_another_version_is_named(
    database: Database[dict[str, Any]], file_store: Store, version: int
) -> None:
    loaded = Cycle(database, slots("minute"), file_store).load()
    assert loaded.run().deleted
    policy, store = loaded.policy.name, loaded.store
    commit = next(commits(store, policy))
    manifest = read_manifest(store, policy, commit)
    other = sealed(manifest.model_copy(update={"schema_version": version}))
    store.put_bytes(manifest_key(policy, commit.sequence, commit.name), encoded(other))
    with pytest.raises(
        DamagedError, match=f"version {version} .* reads {SCHEMA_VERSION}.* Use the release that wrote it"
    ):
        read_manifest(store, policy, commit)
