"""What only stores in Azure and Google do wrong, or are told to do."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import obstore
import pytest

from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.base import Corrupt, Denied, ObjectStore, StoreError
from bucketwise.config.tables import Store
from tests.clouds import ACCOUNT_KEY, CREDENTIALS, container_of, use_credentials
from tests.faults.s3_proxy import (
    BitFlippedInUpload,
    Fault,
    HeldBack,
    Pass,
    Refused,
    Reply,
    Request,
    S3Proxy,
    s3_proxy,
)
from tests.faults.servers.test_store_faults import DATA, is_any, is_put, keys, proxy, store, through
from tests.google_server import PAGE

__all__ = ["proxy", "store"]


def is_list(request: Request) -> bool:
    return request.is_list


pytestmark = pytest.mark.process


@pytest.fixture(params=["google", pytest.param("azurite", marks=pytest.mark.proof)])
def direct(request: pytest.FixtureRequest) -> Store:
    """Settings of a server of a cloud."""
    settings: Store = request.getfixturevalue(f"{request.param}_store")
    return settings


def test_a_container_that_is_missing_is_told_and_never_made(direct: Store) -> None:
    elsewhere = direct.model_copy(update={"url": f"{direct.url[:2]}://there-is-none/p"})
    store = open_store(elsewhere)
    for ask in (
        store.probe,
        lambda: store.get_bytes("k"),
        lambda: store.put_bytes("k", DATA, if_absent=True),
        lambda: list(store.list()),
    ):
        absent = r"there is no such (bucket|container)\. Create the .*store\.url"
        with pytest.raises(StoreError, match=absent) as told:
            ask()
        assert type(told.value) is StoreError
    with pytest.raises(OSError, match="404"):
        container_of(elsewhere).names()


def test_without_credentials_there_is_a_mend_and_nothing_is_asked(
    direct: Store, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No service of a cloud answers who this machine is."""
    for name in ("AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_BEARER_TOKEN"):
        monkeypatch.delenv(name)
    for name in ("AZURE_MSI_ENDPOINT", "GCE_METADATA_HOST", "GCE_METADATA_IP"):
        monkeypatch.setenv(name, f"{'http://' * name.startswith('AZURE')}127.0.0.1:9")
    monkeypatch.setattr(time, "sleep", lambda _: None)
    mend = r"no valid credentials were found.*(AZURE_STORAGE_ACCOUNT_NAME|GOOGLE_APPLICATION_CREDENTIALS)"
    with pytest.raises(StoreError, match=mend) as told:
        through(direct, proxy.endpoint_url).put_bytes("k", DATA)
    assert type(told.value) is StoreError
    assert proxy.requests == []


UNUSABLE = {
    # a variable: its value, the scheme, what is said
    "AZURE_STORAGE_ACCOUNT_NAME": ("hunter2\n", "az", "AZURE_STORAGE_ACCOUNT_NAME holds a line break"),
    "AZURE_STORAGE_TOKEN": ("hunter2\n", "az", "AZURE_STORAGE_TOKEN holds a line break"),
    "AZURE_STORAGE_ACCOUNT_KEY": ("hunter2 \n", "az", "Invalid Access Key"),
    "AZURE_STORAGE_SAS_TOKEN": ("hunter2", "az", "SAS"),
    "GOOGLE_BEARER_TOKEN": ("hunter2ä", "gs", "GOOGLE_BEARER_TOKEN holds a line break, or another character"),
    "GOOGLE_SERVICE_ACCOUNT_KEY": ("{hunter2}", "gs", "Unable to decode service account"),
    "GOOGLE_APPLICATION_CREDENTIALS": ("/there/is/none", "gs", "Unable to open service account file"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_credentials_that_can_not_be_used_are_named_and_not_told(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a file with a line break at its end was read into a variable."""
    value, scheme, words = UNUSABLE[name]
    use_credentials(monkeypatch)
    if name != "AZURE_STORAGE_ACCOUNT_NAME":
        for other in ("AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_BEARER_TOKEN"):
            monkeypatch.delenv(other)
    monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match=f"open {scheme}://archive/p: .*{words}") as told:
        open_store(Store(url=f"{scheme}://archive/p", endpoint_url="http://127.0.0.1:9"))
    assert "hunter2" not in str(told.value)


@pytest.mark.proof
def test_names_of_the_command_line_of_azure_are_known(
    azurite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, also in (("ACCOUNT_NAME", "ACCOUNT"), ("ACCOUNT_KEY", "KEY")):
        monkeypatch.setenv(f"AZURE_STORAGE_{also}", CREDENTIALS[f"AZURE_STORAGE_{name}"])
        monkeypatch.delenv(f"AZURE_STORAGE_{name}")
    open_store(azurite_store).put_bytes("k", DATA)
    assert container_of(azurite_store).read("k") == DATA


@pytest.mark.proof
@pytest.mark.parametrize("key", ["aHVudGVyMmh1bnRlcjI=", "hunter2 is no key"])
def test_a_wrong_key_is_not_told(azurite_store: Store, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", key)
    with pytest.raises(StoreError, match=r"Authorization|Invalid Access Key") as told:
        open_store(azurite_store).put_bytes("k", DATA)
    assert key not in str(told.value) and ACCOUNT_KEY not in str(told.value)


REFUSALS: dict[str, tuple[int, str, type[StoreError], str]] = {
    # the reason: the status, whose it is, the kind of error, and its remedy
    "AuthorizationPermissionMismatch": (403, "az", Denied, "Grant these credentials that right"),
    "AuthenticationFailed": (403, "az", StoreError, "Set AZURE_STORAGE_ACCOUNT_NAME"),
    "InvalidAuthenticationInfo": (401, "az", StoreError, "Set AZURE_STORAGE_ACCOUNT_NAME"),
    "AuthenticationRequired": (401, "gs", StoreError, "GOOGLE_APPLICATION_CREDENTIALS"),
    "BlobImmutableDueToPolicy": (409, "az", StoreError, "An immutability policy keeps it"),
    "BlobArchived": (409, "az", StoreError, "another access tier"),
    "LeaseIdMissing": (412, "az", StoreError, ""),
    "RetentionPolicyNotMet": (403, "gs", StoreError, "A retention policy of the bucket keeps it"),
    "ServerBusy": (503, "az", StoreError, "fewer requests"),
    "SlowDown": (503, "gs", StoreError, "fewer requests"),
}


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_is_told_in_the_words_of_the_cloud(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    status, scheme, kind, remedy = REFUSALS[code]
    monkeypatch.setattr(time, "sleep", lambda _: None)
    use_credentials(monkeypatch)
    settings = Store(url=f"{scheme}://archive/p", endpoint_url="http://127.0.0.1:9")
    with s3_proxy(str(settings.endpoint_url)) as proxy:
        store = through(settings, proxy.endpoint_url)
        proxy.fault = Refused(is_any, None, status, code)
        for ask in (lambda: store.get_bytes("k"), lambda: store.delete(["k"]), lambda: list(store.list())):
            with pytest.raises(StoreError, match=f"{settings.url}.*{code}: refused by the test") as told:
                ask()
            assert type(told.value) is kind
            assert remedy in told.value.remedy


class WithoutTag(Fault):
    """Does it, and does not say what it has made."""

    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        reply = pass_on(request)
        return replace(reply, headers=[it for it in reply.headers if it[0].lower() != "etag"])


def test_a_put_whose_reply_is_not_understood_is_looked_up(proxy: S3Proxy, store: ObjectStore) -> None:
    proxy.fault = WithoutTag(is_put, None)
    store.put_bytes("k", DATA, if_absent=True)
    proxy.fault = None
    assert store.get_bytes("k") == DATA


@pytest.mark.in_turn(1)
def test_an_upload_that_is_damaged_is_found_by_a_check(proxy: S3Proxy, store: ObjectStore) -> None:
    proxy.fault = BitFlippedInUpload(is_put)
    store.put_bytes("k", DATA)
    with pytest.raises(Corrupt, match="SHA-256"):
        store.check("k", len(DATA), hashlib.sha256(DATA).hexdigest())


@pytest.mark.parametrize("direct", ["google"], indirect=True)
def test_a_listing_of_names_that_begin_alike_reads_no_others(proxy: S3Proxy, store: ObjectStore) -> None:
    """The work for one commit does not grow with the others."""
    for number in range(20):
        store.put_bytes(f"m/{number:06}.json", b"x")
    proxy.requests.clear()
    assert [it.key for it in store.list("m/000012.")] == ["m/000012.json"]
    (asked,) = proxy.requests
    assert "000012" in asked.target


@pytest.mark.proof
@pytest.mark.parametrize("direct", ["google"], indirect=True)
def test_a_listing_goes_by_pages_and_begins_again_behind_those_it_gave(
    direct: Store, proxy: S3Proxy, store: ObjectStore
) -> None:
    names = [f"m/{number:06}" for number in range(PAGE + 5)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: container_of(direct).write(name, b"x"), names))
    found = store.list("m/")
    assert next(found).key == names[0]
    assert proxy.count(is_list) == 1  # what is not asked for is neither read nor held
    proxy.fault = Refused(is_list, 1, status=503)
    assert [it.key for it in found] == names[1:]
    assert proxy.count(is_list) == 3
    sent, retries = store.requests.take()
    assert (sent, retries) == ({"list": 3}, 1)


def test_a_listing_out_of_order_is_refused(direct: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store, listed = open_store(direct), obstore.list
    for name in ("a", "b"):
        store.put_bytes(name, DATA)

    def backwards(*given: Any, **named: Any) -> list[Any]:
        return [[it] for page in listed(*given, **named) for it in page][::-1]

    monkeypatch.setattr(obstore, "list", backwards)
    with pytest.raises(StoreError, match="names have to be in order"):
        list(store.list())


def test_a_process_that_was_forked_is_refused_and_does_not_wait(direct: Store) -> None:
    store = open_store(direct)
    store.put_bytes("k", DATA)
    child = os.fork()
    if not child:
        try:
            store.get_bytes("k")
        except StoreError as error:
            os._exit(17 if "forked" in str(error) else 18)
        os._exit(19)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    assert store.get_bytes("k") == DATA


def test_a_delete_of_many_removes_the_others_of_what_is_gone(direct: Store) -> None:
    store = open_store(direct)
    names = [f"d/{number:03}" for number in range(300)]
    for name in names[::2]:
        container_of(direct).write(name, b"1")
    store.delete(names)
    assert keys(store) == []
    sent, retries = store.requests.take()
    assert (sent["delete"] < 310 or direct.url.startswith("gs")) and retries == 0


def test_a_delete_of_many_leaves_no_request_on_its_way(proxy: S3Proxy, store: ObjectStore) -> None:
    """Where one of them is gone, the request of another could still remove what is put at its key next."""
    store.put_bytes("d/late", DATA)
    proxy.fault = held = HeldBack(lambda it: it.is_delete and (b"d/late" in it.body or "d/late" in it.key))
    threading.Timer(1, held.release.set).start()
    store.delete(["d/gone", "d/late"])
    store.put_bytes("d/late", b"put next")
    assert held.landed.acquire(timeout=30)
    assert store.get_bytes("d/late") == b"put next"


def test_a_folder_that_a_console_made_is_no_object(direct: Store) -> None:
    store, container = open_store(direct), container_of(direct)
    for name in ("ticks/data/dt=2018-06-30/a.parquet", "ticks/empty"):
        store.put_bytes(name, b"" if "empty" in name else b"x")
    for name in ("ticks/", "ticks/data/", "ticks/data/dt=2018-06-30/", "ticks/data/dt=2018-07-01/"):
        container.write(name, b"")
    container.write("ticks/of\\others", b"")  # for Azure it is a slash
    others = "ticks/of/others" if direct.url.startswith("az") else "ticks/of\\others"
    assert keys(store) == ["ticks/data/dt=2018-06-30/a.parquet", "ticks/empty", others]


def test_an_object_of_others_whose_name_the_client_can_not_read_is_named(direct: Store) -> None:
    container_of(direct).write("ticks//it", b"x")
    with pytest.raises(StoreError, match=r"ticks//it.*Rename that object, or remove it\.$"):
        keys(open_store(direct))
