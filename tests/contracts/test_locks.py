"""What holds for every store that can lock objects: S3's, Azure's, Google's.

The server of Azure is its emulator behind a stand-in that knows locks; that of Google is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError

from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.base import AlreadyExists, ObjectStore
from bucketwise.config.tables import ObjectLock, Store
from bucketwise.jobs.check.services import check_stores
from tests.archivers.builders import slots
from tests.clouds import container_of
from tests.conftest import s3_client

pytestmark = pytest.mark.process

Mode = Literal["governance", "compliance"]
NOW = datetime.now(UTC).replace(microsecond=0)
#: What each cloud calls the modes.
MODES = {
    "s3": {"governance": "GOVERNANCE", "compliance": "COMPLIANCE"},
    "gs": {"governance": "Unlocked", "compliance": "Locked"},
    "az": {"governance": "unlocked", "compliance": "locked"},
}


class Bucket:
    """An S3 bucket, seen without the store under test."""

    def __init__(self, settings: Store) -> None:
        self.client = s3_client(str(settings.endpoint_url))
        url = urlsplit(settings.url)
        self.name, self.prefix = url.netloc, url.path.strip("/")

    def lock_of(self, name: str) -> tuple[str, datetime] | None:
        head = self.client.head_object(Bucket=self.name, Key=f"{self.prefix}/{name}")
        mode = head.get("ObjectLockMode")
        return mode and (mode, head["ObjectLockRetainUntilDate"])

    def remove_versions(self, name: str) -> list[int]:
        found = self.client.list_object_versions(Bucket=self.name, Prefix=f"{self.prefix}/{name}")
        return [self._status_of_removal(it) for it in found["Versions"]]

    def _status_of_removal(self, version: Any) -> int:
        where = {"Bucket": self.name, "Key": version["Key"], "VersionId": version["VersionId"]}
        try:
            self.client.delete_object(**where)
        except ClientError as error:
            return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
        return 200


@pytest.fixture(params=["moto", "google", pytest.param("azurite", marks=pytest.mark.proof)])
def settings(request: pytest.FixtureRequest) -> Store:
    """Settings of an empty store whose files are locked."""
    found: Store = request.getfixturevalue(f"{request.param}_locking_store")
    return locking(found, "governance")


def locking(settings: Store, mode: Mode, days: int = 30) -> Store:
    return settings.model_copy(update={"object_lock": ObjectLock(mode=mode, days=days)})


def seen(settings: Store) -> Any:
    return Bucket(settings) if settings.url.startswith("s3") else container_of(settings)


def told(store: ObjectStore) -> Sequence[tuple[str, str]]:
    return [(it.code, it.severity) for it in check_stores(store, [slots().policy]) if it.code != "store"]


@pytest.mark.parametrize("mode", ["governance", "compliance"])
def test_what_is_put_from_an_instant_on_is_locked_from_then(settings: Store, mode: Mode) -> None:
    store = open_store(locking(settings, mode))
    store.put_bytes("a/k=1", b"part", locked_from=NOW)
    store.put_bytes("a/m", b"manifest", if_absent=True, locked_from=NOW - timedelta(days=1))
    store.put_bytes("free", b"record")
    assert [store.get_bytes(it) for it in ("a/k=1", "a/m", "free")] == [b"part", b"manifest", b"record"]
    there, named = seen(settings), MODES[settings.url[:2]][mode]
    assert there.lock_of("a/k=1") == (named, NOW + timedelta(days=30))
    assert there.lock_of("a/m") == (named, NOW + timedelta(days=29))
    assert there.lock_of("free") is None
    with pytest.raises(AlreadyExists):
        store.put_bytes("a/m", b"manifest", if_absent=True, locked_from=NOW)


def test_a_lock_that_would_be_over_is_not_put(settings: Store) -> None:
    """The clouds refuse them."""
    open_store(settings).put_bytes("k", b"part", locked_from=NOW - timedelta(days=31))
    assert seen(settings).lock_of("k") is None


def test_without_a_lock_in_the_settings_nothing_is_locked(settings: Store) -> None:
    unlocked = settings.model_copy(update={"object_lock": None})
    open_store(unlocked).put_bytes("k", b"part", locked_from=NOW)
    assert seen(settings).lock_of("k") is None


def test_what_is_replaced_or_deleted_stays_and_is_told(settings: Store) -> None:
    """And nobody removes it: the lock of what comes in its place does not shorten the one that is there."""
    store = open_store(settings)
    store.put_bytes("it/k", b"first", locked_from=NOW)
    store.put_bytes("it/k", b"second", locked_from=NOW - timedelta(days=20))
    store.put_bytes("it/m", b"1", locked_from=NOW)
    store.put_bytes("its", b"of another", locked_from=NOW + timedelta(days=9))
    store.put_bytes("it/stays", b"3", locked_from=NOW + timedelta(days=9))
    assert store.get_bytes("it/k") == b"second"
    store.delete(["it/k", "it/m"])
    assert [it.key for it in store.list()] == ["it/stays", "its"]
    (older,) = store.older_versions("it/")
    assert (older.count, older.locked_until, older.unknown) == (3, NOW + timedelta(days=30), "")
    assert older.place == f"{settings.url}/it/"
    assert all(status in (403, 409) for status in seen(settings).remove_versions("it/k"))
    assert store.older_versions("it/") == [older]


def test_a_check_says_that_files_are_locked_and_leaves_nothing(settings: Store) -> None:
    store = open_store(settings)
    assert told(store) == [("object-lock", "ok")]
    assert list(store.list()) == []
