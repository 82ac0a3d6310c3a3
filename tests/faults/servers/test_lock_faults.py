"""What a store in Azure or Google does when a lock is refused, ignored or can't be seen.

`direct`: a server that locks, with no proxy before it; of Azure the stand-in before its emulator.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.az import _credential as azure_credential
from bucketwise.archivers.stores.base import USUAL, Denied, ObjectStore, StoreError
from bucketwise.archivers.stores.gs import _credentials as google_credentials
from bucketwise.config.tables import ObjectLock, Store
from bucketwise.jobs.check.services import check_stores
from tests.archivers.builders import slots
from tests.clouds import GoogleBucket, container_of, new_store, use_credentials
from tests.faults.s3_proxy import (
    Fault,
    Pass,
    Refused,
    Reply,
    ReplyLost,
    Request,
    RequestLost,
    S3Proxy,
    s3_proxy,
)
from tests.faults.servers.test_store_faults import ATTEMPTS, DATA, is_any, keys, through

pytestmark = pytest.mark.process

NOW = datetime.now(UTC).replace(microsecond=0)
LOCK = ("x-goog-object-lock", "x-ms-immutability-policy")
RIGHTS = {"gs": "storage.objects.setRetention", "az": "immutableStorage/runAsSuperUser/action"}


def locks(request: Request) -> bool:
    return request.is_put and any(key.lower().startswith(LOCK) for key, _ in request.headers)


def reads_lock(request: Request) -> bool:
    return request.method == "HEAD" or "fields=retention" in request.target


class LocksIgnored(Fault):
    """As by a server that knows nothing of them."""

    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        kept = [it for it in request.headers if not it[0].lower().startswith(LOCK)]
        return pass_on(replace(request, headers=kept))


@pytest.fixture(params=["google", pytest.param("azurite", marks=pytest.mark.proof)])
def direct(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Its clients don't wait between their tries."""
    found: Store = request.getfixturevalue(f"{request.param}_locking_store")
    monkeypatch.setattr("bucketwise.archivers.stores.clouds.time", SimpleNamespace(sleep=lambda _: None))
    return locking(found)


def locking(settings: Store) -> Store:
    return settings.model_copy(update={"object_lock": ObjectLock(mode="compliance", days=30)})


@pytest.fixture
def proxy(direct: Store) -> Iterator[S3Proxy]:
    with s3_proxy(str(direct.endpoint_url)) as running:
        yield running


@pytest.fixture
def store(direct: Store, proxy: S3Proxy) -> ObjectStore:
    return through(direct, proxy.endpoint_url)


def is_locked(direct: Store, key: str = "k") -> bool:
    found: Any = container_of(direct).lock_of(key)
    return found is not None and found[1] == NOW + timedelta(days=30)


def test_a_right_that_is_missing_is_named(direct: Store, proxy: S3Proxy, store: ObjectStore) -> None:
    """By a put, and by a check, which tries one."""
    proxy.fault = Refused(locks, None, status=403, code="AccessDenied")
    with pytest.raises(Denied, match=f"put .*/k: AccessDenied.*To lock files: .*{RIGHTS[direct.url[:2]]}"):
        store.put_bytes("k", DATA, locked_from=NOW)
    assert keys(store) == []
    store.put_bytes("k", DATA)
    (told,) = check_stores(store, [slots().policy])
    assert (told.code, told.severity) == ("store", "error") and RIGHTS[direct.url[:2]] in told.message


ABSENT = {"gs": "the bucket has no object retention", "az": "the container has no immutability for versions"}


def test_a_container_without_locks_is_told_and_nothing_is_put(
    direct: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent, other = ABSENT[direct.url[:2]], new_store(direct.url[:2], str(direct.endpoint_url), monkeypatch)
    store = open_store(locking(other))
    with pytest.raises(StoreError, match=f"put .*/k: .*If {absent}: (Create|Enable) ") as failed:
        store.put_bytes("k", DATA, locked_from=NOW)
    assert type(failed.value) is StoreError and keys(store) == []
    _, told = check_stores(store, [slots().policy])
    assert (told.code, told.severity) == ("object-lock", "error")
    assert told.message.startswith(f"store.object_lock is set, and {absent}. ")


def test_a_bucket_of_google_that_locks_and_keeps_no_versions_is_told(google_store: Store) -> None:
    """Nothing could be removed from it."""
    bucket = container_of(google_store)
    assert isinstance(bucket, GoogleBucket)
    bucket.set_up(retention=True, versions=False)
    _, told = check_stores(open_store(locking(google_store)), [slots().policy])
    assert (told.code, told.severity) == ("object-lock", "error")
    assert "keeps no versions" in told.message and "Turn object versioning on" in told.message


@pytest.mark.parametrize("times", [1, None])
def test_a_put_whose_reply_is_lost_is_done_and_locked(
    direct: Store, proxy: S3Proxy, store: ObjectStore, times: int | None
) -> None:
    proxy.fault = ReplyLost(locks, times)
    store.put_bytes("k", DATA, locked_from=NOW, if_absent=True)
    assert is_locked(direct) and proxy.count(locks) == (ATTEMPTS if times is None else 2)


def test_equal_bytes_without_a_lock_are_not_taken_for_a_put_that_was_lost(
    direct: Store, proxy: S3Proxy, store: ObjectStore
) -> None:
    container_of(direct).write("k", DATA)
    proxy.fault = RequestLost(locks, None)
    with pytest.raises(StoreError, match=r"lock .*/k: it was put to be locked until .*, and is not locked"):
        store.put_bytes("k", DATA, locked_from=NOW)
    proxy.fault = None
    store.put_bytes("k", DATA, locked_from=NOW)
    assert is_locked(direct)


def test_a_server_that_ignores_locks_is_found_out(direct: Store, proxy: S3Proxy, store: ObjectStore) -> None:
    proxy.fault = LocksIgnored(locks, None)
    with pytest.raises(StoreError, match="and is not locked"):
        store.put_bytes("k", DATA, locked_from=NOW)
    assert container_of(direct).lock_of("k") is None


def test_a_lock_that_ends_earlier_or_can_be_lifted_does_not_do(
    direct: Store, proxy: S3Proxy, store: ObjectStore
) -> None:
    """It lies there from before, and the put that would replace it is lost."""
    day = timedelta(days=1)
    for before, told in (
        (direct, f"is locked until {NOW + 29 * day:%Y-%m-%d}T.*compliance"),
        (governed(direct), f"is locked until {NOW + 31 * day:%Y-%m-%d}T.*governance"),
    ):
        proxy.fault = None
        began = NOW - day if before is direct else NOW + day
        through(before, proxy.endpoint_url).put_bytes("k", DATA, locked_from=began)
        proxy.fault = RequestLost(locks, None)
        with pytest.raises(StoreError, match=told):
            store.put_bytes("k", DATA, locked_from=NOW)


def governed(settings: Store) -> Store:
    return settings.model_copy(update={"object_lock": ObjectLock(mode="governance", days=30)})


@pytest.mark.parametrize(("status", "mend"), [(403, "Grant"), (503, "safe to run again")])
def test_a_lock_that_can_not_be_read_back_is_an_error(
    direct: Store, proxy: S3Proxy, store: ObjectStore, status: int, mend: str
) -> None:
    proxy.fault = Refused(reads_lock, None, status=status, code="")
    with pytest.raises(StoreError, match=f"look at the lock of .*/k: .*{mend}"):
        store.put_bytes("k", DATA, locked_from=NOW)
    assert proxy.count(reads_lock) == (ATTEMPTS if status == 503 else 1)
    proxy.fault = Refused(reads_lock, ATTEMPTS - 1, status=503, code="")
    store.put_bytes("k", DATA, locked_from=NOW)
    assert is_locked(direct)


def test_where_versions_can_not_be_asked_for_that_is_told(proxy: S3Proxy, store: ObjectStore) -> None:
    lists = Refused(lambda it: "versions" in it.target, None, status=403, code="")
    proxy.fault = lists
    (told,) = store.older_versions("it/")
    assert told.unknown.startswith(f"list the versions below {store.url}/it/: ") and told.count == 0


def test_what_can_not_be_asked_of_a_container_is_tried(proxy: S3Proxy, store: ObjectStore) -> None:
    proxy.fault = Refused(
        lambda it: "objectRetention" in it.target or it.target.endswith("restype=container"), None, 403
    )
    told = store.versioning()
    assert proxy.fault.struck == 1
    assert (told.keeps_versions, told.has_locks, told.lock) == (True, True, "compliance (Locked), 30 days")
    assert keys(store) == []


def test_a_check_finds_out_that_locked_files_can_not_be_deleted(google_store: Store) -> None:
    """Where the bucket can't be asked whether it keeps versions."""
    bucket = container_of(google_store)
    assert isinstance(bucket, GoogleBucket)
    bucket.set_up(retention=True, versions=False)
    with s3_proxy(str(google_store.endpoint_url)) as proxy:
        proxy.fault = Refused(lambda it: "objectRetention" in it.target, None, 403, "forbidden")
        (told,) = check_stores(through(locking(google_store), proxy.endpoint_url), [slots().policy])
    assert (told.code, told.severity) == ("store", "error")
    assert "RetentionPolicyNotMet" in told.message and "a lock where no versions are kept" in told.message


def test_a_lock_that_would_have_ended_is_not_put(direct: Store, proxy: S3Proxy, store: ObjectStore) -> None:
    """Each cloud refuses one."""
    store.put_bytes("k", DATA, locked_from=NOW - timedelta(days=31))
    assert container_of(direct).lock_of("k") is None
    assert proxy.count(reads_lock) == 0


def test_a_server_that_is_away_gives_a_mend(direct: Store) -> None:
    (told,) = through(direct, "http://127.0.0.1:9").older_versions("it/")
    assert "the connection failed" in told.unknown and "store.endpoint_url" in told.unknown


def test_what_is_soft_deleted_is_counted(google_store: Store) -> None:
    bucket = container_of(google_store)
    assert isinstance(bucket, GoogleBucket)
    store = open_store(google_store)
    assert store.versioning().keeps_versions is False
    bucket.keep_soft_deleted()
    assert store.versioning().keeps_versions is None
    for name in ("it/a", "it/b", "its"):
        store.put_bytes(name, DATA)
    store.delete(["it/a", "its"])
    (told,) = store.older_versions("it/")
    assert (told.count, told.soft_deleted, told.locked_until) == (1, 1, None)


def test_who_asks_for_a_lock_is_who_puts(
    direct: Store, monkeypatch: pytest.MonkeyPatch, proxy: S3Proxy
) -> None:
    """A token goes before a key, in both clients."""
    monkeypatch.setenv("AZURE_STORAGE_TOKEN", "of-the-tests")
    proxy.fault = Refused(is_any, None, status=403, code="AuthorizationPermissionMismatch")
    store: Any = through(direct, proxy.endpoint_url)
    with pytest.raises(Denied):
        store.put_bytes("k", DATA, locked_from=NOW)
    with pytest.raises(Denied):
        store.get_bytes("k")
    with pytest.raises(StoreError, match=r"AuthorizationPermissionMismatch|403|sends a token to no http:"):
        store._asked("look at", "", lambda it: it.container())
    assert len(proxy.requests) == (3 if direct.url.startswith("gs") else 2)
    assert len({it.header("authorization") for it in proxy.requests}) == 1
    assert not any("sig=" in it.target for it in proxy.requests)


IDENTITIES = {
    # whose: what is set, and who it is
    "token": ({"AZURE_STORAGE_TOKEN": "t", "AZURE_STORAGE_KEY": "k"}, "BearerToken"),
    "key": ({"AZURE_STORAGE_KEY": "k", "AZURE_STORAGE_SAS_TOKEN": "s"}, "dict"),
    "workload": (
        {"AZURE_FEDERATED_TOKEN_FILE": "/f", "AZURE_CLIENT_SECRET": "s"},
        "WorkloadIdentityCredential",
    ),
    "secret": ({"AZURE_CLIENT_SECRET": "s", "AZURE_STORAGE_SAS_TOKEN": "s"}, "ClientSecretCredential"),
    "signature": ({"AZURE_STORAGE_SAS_TOKEN": "s", "AZURE_USE_AZURE_CLI": "true"}, "str"),
    "az": ({"AZURE_USE_AZURE_CLI": "true"}, "AzureCliCredential"),
    "machine": ({}, "ManagedIdentityCredential"),
}


@pytest.mark.parametrize("whose", IDENTITIES)
def test_who_asks_in_azure_is_found_in_the_order_of_the_manual(
    whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_credentials(monkeypatch)
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    given, kind = IDENTITIES[whose]
    if whose in ("workload", "secret"):
        given = given | {"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert type(azure_credential()).__name__ == kind


def test_who_asks_in_google_is_found_in_the_order_of_the_manual(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_credentials(monkeypatch)
    assert google_credentials().token == "of the tests"
    monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
    file = tmp_path / "adc.json"
    names = ("client_id", "client_secret", "refresh_token", "quota_project_id")
    file.write_text(json.dumps({"type": "authorized_user", **{it: it[0] for it in names}}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    found = google_credentials()
    assert (found.refresh_token, found.quota_project_id) == ("r", None)
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", '{"hunter2": 1}')
    settings = Store(url="gs://acme/x", endpoint_url="http://127.0.0.1:9")
    monkeypatch.setattr("bucketwise.archivers.stores.gs.GCSStore", lambda *_, **__: None)
    (told,) = open_store(settings).older_versions("it/")
    assert "no valid credentials were found" in told.unknown and "hunter2" not in told.unknown


def test_where_no_token_can_be_got_the_cloud_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials may be good: whoever gives tokens for them was not reached."""
    use_credentials(monkeypatch)
    monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
    monkeypatch.setattr("bucketwise.archivers.stores.clouds.time", SimpleNamespace(sleep=lambda _: None))
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    account = {"type": "service_account", "client_email": "a@b", "private_key": key.decode()}
    more = {"private_key_id": "1", "token_uri": "http://127.0.0.1:9/token"}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account | more))
    store = open_store(Store(url="gs://acme/x", endpoint_url="http://127.0.0.1:9"))
    (told,) = store.older_versions("it/")
    assert "the connection failed: no token could be got" in told.unknown
    assert store.requests.take() == ({"list": USUAL.attempts}, USUAL.attempts - 1)


#: Opens a store in each cloud whose files are locked.
OPENS = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[2:]))
from bucketwise.archivers.stores import open_store
from bucketwise.config.tables import ObjectLock, Store
settings = Store(url=sys.argv[1], endpoint_url="http://127.0.0.1:9")
open_store(settings)
open_store(settings.model_copy(update={"object_lock": ObjectLock(mode="governance", days=1)}))
print([it for it in ("azure.core", "azure.storage.blob", "google.oauth2", "requests") if it in sys.modules])
"""
KEYS = {
    "AZURE_STORAGE_ACCOUNT_NAME": "acme",
    "AZURE_STORAGE_ACCOUNT_KEY": "aaaa",
    "GOOGLE_BEARER_TOKEN": "token",
}


def opened(*given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", OPENS, *given], capture_output=True, text=True, env=KEYS)


@pytest.mark.parametrize(("scheme", "extra", "missing"), [("az", "azure", "azure"), ("gs", "gcs", "google")])
def test_without_the_client_that_reads_locks_nothing_is_opened(scheme: str, extra: str, missing: str) -> None:
    told = opened(f"{scheme}://acme/x", missing).stderr.splitlines()[-1]
    assert f"UsageError: store.url = '{scheme}://acme/x'" in told
    assert f"Run: pip install 'bucketwise[{extra}]'" in told


@pytest.mark.parametrize("scheme", ["az", "gs"])
def test_no_client_that_reads_locks_is_imported_before_it_is_needed(scheme: str) -> None:
    ran = opened(f"{scheme}://acme/x")
    assert ran.stdout.strip() == "[]", ran.stderr


@pytest.mark.proof
@pytest.mark.parametrize("direct", ["azurite"], indirect=True)
@pytest.mark.parametrize("fault", [RequestLost(locks, None), Refused(locks, None), Refused(locks, None, 403)])
def test_a_signature_that_is_made_of_a_key_is_not_told(
    direct: Store, proxy: S3Proxy, store: ObjectStore, fault: Fault
) -> None:
    """It is part of the URL."""
    proxy.fault = fault
    with pytest.raises(StoreError) as told:
        store.put_bytes("k", DATA, locked_from=NOW)
    assert "sig=" in proxy.requests[0].target and proxy.requests[0].header("authorization") is None
    assert "sig=" not in str(told.value) and "http" not in str(told.value)
    with pytest.raises(StoreError, match="connection failed") as told:
        through(direct, "http://127.0.0.1:9").put_bytes("k", DATA, locked_from=NOW)
    assert "sig=" not in str(told.value)
