"""What a store does when the network, the server or the disk does wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.az import AZURE
from bucketwise.archivers.stores.base import (
    AlreadyExists,
    Denied,
    ObjectStore,
    OutcomeUnknown,
    RetryLimits,
    Rights,
    StoreError,
)
from bucketwise.archivers.stores.clouds import CloudStore
from bucketwise.archivers.stores.gs import GOOGLE
from bucketwise.archivers.stores.s3 import S3Store
from bucketwise.config.errors import UsageError
from bucketwise.config.tables import Store
from tests.conftest import SECRET_KEY
from tests.faults.s3_proxy import (
    BitFlippedInDownload,
    BitFlippedInUpload,
    BodyCutShort,
    ConditionIgnored,
    HeldBack,
    Matches,
    Pass,
    Refused,
    Reply,
    ReplyLost,
    Request,
    RequestLost,
    RivalComesFirst,
    S3Proxy,
    s3_proxy,
)

pytestmark = pytest.mark.process

ATTEMPTS = 3
S3_SERVERS = ["moto", "rclone"]
of_s3 = pytest.mark.parametrize("direct", S3_SERVERS, indirect=True)
DATA = bytes(range(256)) * 40
CLOUDS = {"az": AZURE, "gs": GOOGLE}


@pytest.fixture(params=[*S3_SERVERS, "google", pytest.param("azurite", marks=pytest.mark.proof)])
def direct(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Settings of a server with no proxy before it. Its clients don't wait between their tries."""
    settings: Store = request.getfixturevalue(f"{request.param}_store")
    for client in ("botocore.endpoint.time", "bucketwise.archivers.stores.clouds.time"):
        monkeypatch.setattr(client, SimpleNamespace(sleep=lambda _: None))
    return settings


@pytest.fixture
def proxy(direct: Store) -> Iterator[S3Proxy]:
    with s3_proxy(str(direct.endpoint_url)) as running:
        yield running


@pytest.fixture
def store(direct: Store, proxy: S3Proxy) -> ObjectStore:
    return through(direct, proxy.endpoint_url)


@pytest.fixture
def truth(direct: Store) -> ObjectStore:
    """The same objects, seen past the proxy."""
    return open_store(direct)


def through(settings: Store, endpoint_url: str, timeout: float = 30.0) -> ObjectStore:
    url = urlsplit(settings.url)
    if url.scheme in CLOUDS:
        there = settings.model_copy(
            update={"endpoint_url": endpoint_url + urlsplit(str(settings.endpoint_url)).path}
        )
        return CloudStore(CLOUDS[url.scheme], there, limits=RetryLimits(ATTEMPTS, timeout))
    return S3Store(
        url.netloc,
        url.path.strip("/"),
        endpoint_url=endpoint_url,
        region=settings.region,
        limits=RetryLimits(ATTEMPTS, timeout),
    )


def keys(store: ObjectStore) -> list[str]:
    return [item.key for item in store.list()]


def is_put(request: Request) -> bool:
    return request.is_put


def is_get(request: Request) -> bool:
    return request.is_get


def is_any(request: Request) -> bool:  # noqa: ARG001
    return True


# Writes


@pytest.mark.proof
@pytest.mark.parametrize("times", [1, ATTEMPTS - 1, None])
def test_a_put_whose_reply_is_lost_is_done(
    proxy: S3Proxy, store: ObjectStore, truth: ObjectStore, times: int | None
) -> None:
    proxy.fault = ReplyLost(is_put, times)
    store.put_bytes("k", DATA)
    assert truth.get_bytes("k") == DATA
    assert proxy.count(is_put) == (ATTEMPTS if times is None else times + 1)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("times", [1, None])
def test_a_conditional_put_whose_reply_is_lost_is_done(
    proxy: S3Proxy, store: ObjectStore, truth: ObjectStore, times: int | None
) -> None:
    proxy.fault = ReplyLost(is_put, times)
    store.put_bytes("k", DATA, if_absent=True)
    assert truth.get_bytes("k") == DATA


@pytest.mark.parametrize("direct", ["moto", "google"], indirect=True)  # rclone ignores conditions
def test_a_rival_that_came_first_is_not_taken_for_our_own_lost_put(
    proxy: S3Proxy, store: ObjectStore, truth: ObjectStore
) -> None:
    proxy.fault = RivalComesFirst(is_put)
    with pytest.raises(AlreadyExists):
        store.put_bytes("k", DATA, if_absent=True)
    assert truth.get_bytes("k") == b"the rival's"


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    "fault", [RequestLost(is_put, None), Refused(is_put, None), Refused(is_put, None, status=503)]
)
def test_a_put_that_never_arrives_has_failed_and_nothing_is_there(
    proxy: S3Proxy, store: ObjectStore, truth: ObjectStore, fault: RequestLost | Refused
) -> None:
    proxy.fault = fault
    with pytest.raises(StoreError, match="safe to run again") as caught:
        store.put_bytes("k", DATA)
    assert type(caught.value) is StoreError
    assert keys(truth) == []


@pytest.mark.in_turn(1)
def test_an_overwrite_that_never_arrives_leaves_what_was_there(
    proxy: S3Proxy, store: ObjectStore, truth: ObjectStore
) -> None:
    truth.put_bytes("k", b"old")
    proxy.fault = RequestLost(is_put, None)
    with pytest.raises(StoreError):
        store.put_bytes("k", DATA)
    assert truth.get_bytes("k") == b"old"


@pytest.mark.in_turn(1)
def test_where_all_replies_are_lost_the_outcome_is_unknown(
    proxy: S3Proxy, store: ObjectStore, truth: ObjectStore
) -> None:
    proxy.fault = ReplyLost(is_any, None)
    with pytest.raises(OutcomeUnknown, match=r"Reading it back failed too.*safe to run again"):
        store.put_bytes("k", DATA)
    assert truth.get_bytes("k") == DATA


@pytest.mark.in_turn(1)
def test_a_put_that_may_still_land_has_an_unknown_outcome(
    direct: Store, proxy: S3Proxy, truth: ObjectStore
) -> None:
    fault = proxy.fault = HeldBack(is_put, None)
    with pytest.raises(OutcomeUnknown, match="may come"):
        through(direct, proxy.endpoint_url, timeout=1.5).put_bytes("k", DATA)
    assert keys(truth) == []
    assert (held := proxy.count(is_put)) > 0
    fault.release.set()
    assert all(fault.landed.acquire(timeout=300) for _ in range(held))
    assert truth.get_bytes("k") == DATA


@dataclass
class HeldBackThenRefused(HeldBack):
    """Refuses what comes after the first request, which lands late."""

    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        if self.struck > 1:
            return Refused(self.on, status=503).strike(request, pass_on)
        return super().strike(request, pass_on)


@pytest.mark.parametrize("direct", ["google"], indirect=True)
def test_a_put_of_which_the_first_try_may_still_land_has_an_unknown_outcome(
    direct: Store, proxy: S3Proxy, truth: ObjectStore
) -> None:
    fault = proxy.fault = HeldBackThenRefused(is_put, None)
    with pytest.raises(OutcomeUnknown, match="may come"):
        through(direct, proxy.endpoint_url, timeout=1.5).put_bytes("k", DATA)
    assert (keys(truth), proxy.count(is_put)) == ([], ATTEMPTS)
    fault.release.set()
    assert fault.landed.acquire(timeout=300)
    assert truth.get_bytes("k") == DATA


@of_s3
@pytest.mark.in_turn(2)
@pytest.mark.parametrize("times", [ATTEMPTS - 1, None])
def test_a_refusal_that_names_the_checksum_of_the_object_is_a_refusal(
    proxy: S3Proxy, store: ObjectStore, times: int | None
) -> None:
    store.put_bytes("k", DATA)
    proxy.fault = Refused(is_get, times, more=[("x-amz-checksum-crc32", "AAAAAA==")])
    if times is None:
        with pytest.raises(StoreError, match=r"500.*safe to run again"):
            store.get_bytes("k")
    else:
        assert store.get_bytes("k") == DATA


@pytest.mark.in_turn(1)
def test_a_server_that_is_away_gives_a_mend(direct: Store, proxy: S3Proxy) -> None:
    away = through(direct, "http://127.0.0.1:9")
    with pytest.raises(StoreError, match=r"connect.*store\.endpoint_url"):
        away.get_bytes("k")
    with pytest.raises(StoreError, match="connect"):
        away.put_bytes("k", DATA)
    assert proxy.requests == []


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("status", "code"), [(500, "InternalError"), (503, "SlowDown"), (503, "ServiceUnavailable")]
)
def test_a_server_that_stumbles_is_asked_again(
    proxy: S3Proxy, store: ObjectStore, status: int, code: str
) -> None:
    def stumble() -> None:
        proxy.fault = Refused(is_any, ATTEMPTS - 1, status=status, code=code)

    stumble()
    store.put_bytes("k", DATA)
    stumble()
    assert store.get_bytes("k") == DATA
    stumble()
    assert keys(store) == ["k"]
    stumble()
    store.delete(["k"])
    stumble()
    assert store.head("k") is None


# Reads


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("fault", [BodyCutShort, ReplyLost])
def test_a_download_that_breaks_off_once_is_fetched_again(
    proxy: S3Proxy, store: ObjectStore, fault: type[BodyCutShort]
) -> None:
    store.put_bytes("k", DATA)
    proxy.fault = fault(is_get)
    assert store.get_bytes("k") == DATA
    assert proxy.fault.struck == 1


@of_s3
@pytest.mark.in_turn(1)
def test_a_download_in_which_a_bit_has_flipped_is_fetched_again(proxy: S3Proxy, store: ObjectStore) -> None:
    store.put_bytes("k", DATA)
    proxy.fault = BitFlippedInDownload(is_get)
    assert store.get_bytes("k") == DATA
    proxy.fault = BitFlippedInDownload(is_get, None)
    with pytest.raises(StoreError, match="safe to run again"):
        store.get_bytes("k")


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("fault", [BodyCutShort, ReplyLost])
def test_a_download_that_breaks_off_each_time_is_an_error(
    proxy: S3Proxy, store: ObjectStore, fault: type[BodyCutShort]
) -> None:
    store.put_bytes("k", DATA)
    proxy.fault = fault(is_get, None)
    with pytest.raises(StoreError, match="safe to run again"):
        store.get_bytes("k")
    assert proxy.fault.struck >= ATTEMPTS


@of_s3
@pytest.mark.in_turn(1)
def test_an_upload_that_is_damaged_never_reads_back_as_good(proxy: S3Proxy, store: ObjectStore) -> None:
    # Neither server compares the bytes with the checksum sent along; both keep it, and tell on the way back.
    proxy.fault = BitFlippedInUpload(is_put, None)
    store.put_bytes("k", DATA)
    with pytest.raises(StoreError, match="checksum"):
        store.get_bytes("k")


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("fault", [BodyCutShort, ReplyLost])
def test_a_listing_that_breaks_off_is_asked_again(
    proxy: S3Proxy, store: ObjectStore, fault: type[BodyCutShort]
) -> None:
    for name in "abc":
        store.put_bytes(name, b"")
    proxy.fault = fault(lambda request: request.is_list)
    assert keys(store) == ["a", "b", "c"]
    assert proxy.fault.struck == 1


@pytest.mark.in_turn(1)
def test_a_delete_whose_reply_is_lost_is_done(proxy: S3Proxy, store: ObjectStore, truth: ObjectStore) -> None:
    store.put_bytes("k", b"")
    proxy.fault = ReplyLost(lambda request: request.is_delete)
    store.delete(["k"])
    assert keys(truth) == []
    assert proxy.fault.struck == 1


# What a server can't or won't


@pytest.mark.parametrize("direct", ["moto"], indirect=True)  # rclone ignores them by itself: see the contract
def test_a_server_that_ignores_conditions_is_found_out(
    proxy: S3Proxy, store: ObjectStore, truth: ObjectStore
) -> None:
    proxy.fault = ConditionIgnored(is_put, None)
    assert store.probe() is False
    store.put_bytes("k", b"first", if_absent=True)
    with pytest.raises(AlreadyExists):
        store.put_bytes("k", b"second", if_absent=True)
    assert truth.get_bytes("k") == b"first"
    assert keys(truth) == ["k"]


@of_s3
@pytest.mark.in_turn(1)
def test_a_server_that_knows_no_conditions_is_asked_without(
    proxy: S3Proxy, store: ObjectStore, truth: ObjectStore
) -> None:
    proxy.fault = Refused(lambda r: r.header("if-none-match") is not None, None, 501, code="NotImplemented")
    assert store.probe() is False
    store.put_bytes("k", b"first", if_absent=True)
    with pytest.raises(AlreadyExists):
        store.put_bytes("k", b"second", if_absent=True)
    assert truth.get_bytes("k") == b"first"


@of_s3
@pytest.mark.in_turn(1)
def test_a_server_that_knows_no_storage_classes_says_so(
    proxy: S3Proxy, store: ObjectStore, truth: ObjectStore
) -> None:
    asks: Matches = lambda r: r.header("x-amz-storage-class") is not None  # noqa: E731
    proxy.fault = Refused(asks, None, 501, code="NotImplemented")
    with pytest.raises(StoreError, match=r"can't do that\. If archive\.storage_class is set, leave it out"):
        store.put_bytes("k", b"1", storage_class="STANDARD_IA")
    assert keys(truth) == []
    store.put_bytes("k", b"1")
    assert keys(truth) == ["k"]


RIGHTS: dict[str, Matches] = {
    "write": is_put,
    "read": is_get,
    "list": lambda request: request.is_list,
    "delete": lambda request: request.is_delete,
}
S3_RIGHTS = Rights("s3:PutObject", "s3:GetObject", "s3:ListBucket", "s3:DeleteObject")


def rights_of(settings: Store) -> Rights:
    cloud = CLOUDS.get(settings.url[:2])
    return S3_RIGHTS if cloud is None else cloud.rights


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("right", RIGHTS)
def test_a_probe_names_the_right_that_is_missing(
    direct: Store, proxy: S3Proxy, store: ObjectStore, right: str
) -> None:
    proxy.fault = Refused(RIGHTS[right], None, status=403, code="AccessDenied")
    with pytest.raises(Denied, match=re.escape(f"missing: {getattr(rights_of(direct), right)}. Grant")):
        store.probe()


@pytest.mark.in_turn(2)
def test_a_probe_names_all_rights_that_are_missing(direct: Store, proxy: S3Proxy, store: ObjectStore) -> None:
    proxy.fault = Refused(is_any, None, status=403, code="AccessDenied")
    names = rights_of(direct)
    with pytest.raises(
        Denied, match=re.escape(f"missing: {names.write}, {names.list}, {names.delete}. Grant")
    ):
        store.probe()


@pytest.mark.in_turn(1)
def test_a_delete_that_is_denied_says_so(proxy: S3Proxy, store: ObjectStore, truth: ObjectStore) -> None:
    store.put_bytes("a/k", b"")
    proxy.fault = Refused(lambda request: request.is_delete, None, status=403, code="AccessDenied")
    with pytest.raises(Denied, match=r"delete \w+://.*/a/k: AccessDenied.*Grant"):
        store.delete(["a/k"])
    assert keys(truth) == ["a/k"]
    assert proxy.count(lambda request: request.is_delete) == 1


# Settings that are wrong


@of_s3
@pytest.mark.in_turn(1)
def test_a_missing_bucket_gives_a_mend(direct: Store) -> None:
    store = open_store(direct.model_copy(update={"url": "s3://no-such-bucket-here/p"}))
    for ask in (store.probe, lambda: store.get_bytes("k"), lambda: list(store.list())):
        with pytest.raises(StoreError, match=r"NoSuchBucket.*Create the bucket") as caught:
            ask()
        assert type(caught.value) is StoreError


@pytest.mark.parametrize("direct", ["rclone"], indirect=True)  # moto checks no signature
def test_wrong_credentials_are_not_told(direct: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2")
    with pytest.raises(StoreError, match="SignatureDoesNotMatch") as caught:
        open_store(direct).put_bytes("k", b"")
    assert "hunter2" not in str(caught.value) and SECRET_KEY not in str(caught.value)


@of_s3
@pytest.mark.in_turn(1)
def test_no_credentials_give_a_mend(direct: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreError, match=r"no credentials were found\. Give boto3 credentials") as caught:
        open_store(direct).probe()
    assert type(caught.value) is StoreError


@of_s3
@pytest.mark.in_turn(1)
def test_a_password_in_the_endpoint_is_hidden(direct: Store) -> None:
    store = open_store(direct.model_copy(update={"endpoint_url": "http://user:hunter2@127.0.0.1:9"}))
    with pytest.raises(StoreError) as caught:
        store.head("k")
    assert "hunter2" not in str(caught.value)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    "url", ["", "/tmp/x", "file://host/x", "file:///", "s3://", "http://x/y", "s3://b/p?q=1"]
)
def test_a_url_that_is_no_store_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match=r"store\.url = .*; (use|write|leave|a bucket name)"):
        open_store(Store(url=url))
