"""`store.object_lock`: the files of a commit are locked in S3, and `check` says what that means."""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError
from pymongo.database import Database

from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.records.receipts import COLLECTION as RECEIPTS
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.base import Denied
from bucketwise.config.tables import ObjectLock, Store
from bucketwise.jobs.check.services import check_stores
from tests.archivers.builders import LATER, slots
from tests.archivers.harness import Cycle
from tests.archivers.rewriting.test_compacting import often
from tests.conftest import s3_client

Document = dict[str, Any]
LOCKED = {"data", "meta/buckets", "meta/manifests"}


@pytest.fixture(params=["governance", "compliance"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def locking(store: Store, mode: Any, *, has_locks: bool = True) -> Store:
    """A store in a bucket of its own, whose files are to be locked."""
    bucket = f"locked-{uuid.uuid4().hex[:12]}"
    s3_client(str(store.endpoint_url)).create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=has_locks)
    lock = ObjectLock(mode=mode, days=30_000)
    return store.model_copy(update={"url": f"s3://{bucket}/archive", "object_lock": lock})


def locks(settings: Store) -> dict[str, set[tuple[str | None, datetime | None]]]:
    """Mode and end of the locks, by folder."""
    bucket, _, prefix = settings.url.removeprefix("s3://").partition("/")
    found: dict[str, set[tuple[str | None, datetime | None]]] = {}
    for it in open_store(settings).list():
        head = s3_client(str(settings.endpoint_url)).head_object(Bucket=bucket, Key=f"{prefix}/{it.key}")
        folder = "/".join(it.key.split("/")[1 : 2 if "/data/" in it.key else 3])
        told = head.get("ObjectLockMode"), head.get("ObjectLockRetainUntilDate")
        found.setdefault(folder, set()).add(told)
    return found


@pytest.mark.proof
@pytest.mark.in_turn(1)
def test_the_files_of_commits_are_locked_and_nothing_else(
    database: Database[Document], moto_store: Store, mode: str
) -> None:
    settings = locking(moto_store, mode)
    cycle = Cycle(database, slots(), settings).load()
    assert cycle.run().deleted > 0
    found = locks(settings)
    until = LATER + timedelta(days=30_000)
    for folder in LOCKED:
        ((told, ends),) = found.pop(folder)
        assert (told, ends and ends.replace(microsecond=0)) == (mode.upper(), until.replace(microsecond=0))
    assert all(it == {(None, None)} for it in found.values())
    assert cycle.verify().bad == []
    assert sorted(cycle.archived()) == sorted(cycle.case.documents)


def test_a_manifest_that_is_signed_stays_locked(database: Database[Document], moto_store: Store) -> None:
    settings = locking(moto_store, "governance")
    cycle = Cycle(database, slots(), settings).load()
    cycle.run()
    before, archive = locks(settings)["meta/manifests"], cycle.as_stored()
    manifests = [archive.manifest(it) for it in archive.commits()]
    keys = Keys("a key of the tests, long enough")
    assert manifests and all(archive.chain.sign(it, keys) for it in manifests)
    assert locks(settings)["meta/manifests"] == before != {(None, None)}


@pytest.mark.proof
def test_what_is_dropped_stays_as_a_locked_version(database: Database[Document], moto_store: Store) -> None:
    """A merge drops what it has merged: the locked versions of it stay, and nobody fights that."""
    settings = locking(moto_store, "compliance")
    cycle = Cycle(database, slots("minute"), settings).load()
    often(cycle, hours=12)
    assert cycle.compact().commits > 0
    cycle.run(LATER + timedelta(hours=2))
    (older,) = cycle.store.older_versions(cycle.policy.name)
    assert older.locked_until is not None
    dropped = list(database[RECEIPTS].find({"kind": "dropped", "versions": {"$exists": True}}))
    assert dropped
    bucket, _, prefix = settings.url.removeprefix("s3://").partition("/")
    client = s3_client(str(settings.endpoint_url))
    for it in dropped[0]["versions"]:
        where = {"Bucket": bucket, "Key": f"{prefix}/{it['key']}", "VersionId": it["version"]}
        assert client.get_object(**where)["Body"].read()
        with pytest.raises(ClientError):
            client.delete_object(**where)


def test_check_says_what_it_means(moto_store: Store, file_store: Store) -> None:
    def told(settings: Store) -> list[tuple[str, str]]:
        return [(it.code, it.severity) for it in [*check_stores(open_store(settings), [slots().policy])][1:]]

    assert told(file_store) == told(moto_store) == []
    assert told(locking(moto_store, "governance")) == [("object-lock", "ok")]
    assert told(locking(moto_store, "governance", has_locks=False)) == [("object-lock", "error")]
    versioned = locking(moto_store, "governance", has_locks=False).model_copy(update={"object_lock": None})
    bucket = versioned.url.removeprefix("s3://").partition("/")[0]
    s3_client(str(versioned.endpoint_url)).put_bucket_versioning(
        Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    assert told(versioned) == [("store-versioned", "ok")]


def test_what_moves_to_another_class_stays_locked_until_the_same_time(moto_store: Store) -> None:
    """S3 refuses a copy with a lock that has ended."""
    settings = locking(moto_store, "compliance")
    client = s3_client(str(settings.endpoint_url))
    bucket = settings.url.removeprefix("s3://").partition("/")[0]
    later = datetime(2099, 1, 1, tzinfo=UTC)
    for key, until in ("locked", later), ("ended", datetime(2020, 1, 1, tzinfo=UTC)):
        where = {"Bucket": bucket, "Key": f"archive/{key}"}
        lock = {"ObjectLockMode": "COMPLIANCE", "ObjectLockRetainUntilDate": until}
        client.put_object(**where, Body=b"part", ChecksumAlgorithm="SHA256", **lock)
    store: Any = open_store(settings).inner
    # This server asks for a checksum beside a lock, as S3 does of what is put, and not of copies.
    store._client.meta.events.register(
        "before-call.s3.CopyObject",
        lambda params, **_: params["headers"].update({"x-amz-sdk-checksum-algorithm": "SHA256"}),
    )
    for key, kept in ("locked", ("COMPLIANCE", later)), ("ended", (None, None)):
        assert store.move(key, 4, hashlib.sha256(b"part").hexdigest(), "GLACIER")
        head = client.head_object(Bucket=bucket, Key=f"archive/{key}")
        assert head["StorageClass"] == "GLACIER"
        assert (head.get("ObjectLockMode"), head.get("ObjectLockRetainUntilDate")) == kept


def _held(settings: Store) -> tuple[Any, dict[str, str]]:
    """The store, and where a part lies in it that is locked and under a legal hold."""
    where = {"Bucket": settings.url.removeprefix("s3://").partition("/")[0], "Key": "archive/held"}
    lock = {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": datetime(2099, 1, 1, tzinfo=UTC)}
    s3_client(str(settings.endpoint_url)).put_object(
        **where, Body=b"part", ChecksumAlgorithm="SHA256", ObjectLockLegalHoldStatus="ON", **lock
    )
    store: Any = open_store(settings).inner
    store._client.meta.events.register(
        "before-call.s3.CopyObject",
        lambda params, **_: params["headers"].update({"x-amz-sdk-checksum-algorithm": "SHA256"}),
    )
    return store, where


def test_a_legal_hold_goes_with_what_moves(moto_store: Store) -> None:
    settings = locking(moto_store, "governance")
    store, where = _held(settings)
    assert store.move("held", 4, hashlib.sha256(b"part").hexdigest(), "GLACIER")
    head = s3_client(str(settings.endpoint_url)).head_object(**where)
    assert (head["StorageClass"], head["ObjectLockLegalHoldStatus"]) == ("GLACIER", "ON")


@pytest.mark.parametrize("right", ["Retention", "LegalHold"])
def test_what_has_a_lock_that_can_not_be_seen_does_not_move(moto_store: Store, right: str) -> None:
    """S3 tells a lock to those alone who have the right to see it."""
    settings = locking(moto_store, "governance")
    store, where = _held(settings)
    events, refusal = store._client.meta.events, b"<Error><Code>AccessDenied</Code></Error>"
    hidden = {"Retention": "ObjectLockMode", "LegalHold": "ObjectLockLegalHoldStatus"}[right]
    events.register("after-call.s3.HeadObject", lambda parsed, **_: parsed.pop(hidden, None))
    events.register(
        f"before-send.s3.GetObject{right}",
        lambda request, **_: AWSResponse(request.url, 403, {}, SimpleNamespace(stream=lambda: [refusal])),
    )
    with pytest.raises(Denied, match=f"would be lost. Grant s3:GetObject{right}"):
        store.move("held", 4, hashlib.sha256(b"part").hexdigest(), "GLACIER")
    assert s3_client(str(settings.endpoint_url)).head_object(**where).get("StorageClass") is None
