"""What a store does when the network, the server or the disk does wrong."""

from __future__ import annotations

import errno
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.base import AlreadyExists, Denied, ObjectStore, OutcomeUnknown, StoreError
from bucketwise.archivers.stores.file import FileStore
from bucketwise.archivers.stores.s3 import RetryLimits, S3Store
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
    Refused,
    ReplyLost,
    Request,
    RequestLost,
    RivalComesFirst,
    S3Proxy,
    s3_proxy,
)

pytestmark = pytest.mark.process

ATTEMPTS = 3
DATA = bytes(range(256)) * 40


@pytest.fixture(params=["moto", "rclone"])
def direct(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Settings of an S3 server with no proxy before it. Its clients don't wait between their tries."""
    settings: Store = request.getfixturevalue(f"{request.param}_store")
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
    return settings


@pytest.fixture
def proxy(direct: Store) -> Iterator[S3Proxy]:
    with s3_proxy(str(direct.endpoint_url)) as running:
        yield running


@pytest.fixture
def store(direct: Store, proxy: S3Proxy) -> S3Store:
    return through(direct, proxy.endpoint_url)


@pytest.fixture
def truth(direct: Store) -> ObjectStore:
    """The same objects, seen past the proxy."""
    return open_store(direct)


def through(settings: Store, endpoint_url: str, timeout: float = 30.0) -> S3Store:
    url = urlsplit(settings.url)
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
    proxy: S3Proxy, store: S3Store, truth: ObjectStore, times: int | None
) -> None:
    proxy.fault = ReplyLost(is_put, times)
    store.put_bytes("k", DATA)
    assert truth.get_bytes("k") == DATA
    assert proxy.count(is_put) == (ATTEMPTS if times is None else times + 1)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("times", [1, None])
def test_a_conditional_put_whose_reply_is_lost_is_done(
    proxy: S3Proxy, store: S3Store, truth: ObjectStore, times: int | None
) -> None:
    proxy.fault = ReplyLost(is_put, times)
    store.put_bytes("k", DATA, if_absent=True)
    assert truth.get_bytes("k") == DATA


@pytest.mark.parametrize("direct", ["moto"], indirect=True)  # rclone ignores conditions
def test_a_rival_that_came_first_is_not_taken_for_our_own_lost_put(
    proxy: S3Proxy, store: S3Store, truth: ObjectStore
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
    proxy: S3Proxy, store: S3Store, truth: ObjectStore, fault: RequestLost | Refused
) -> None:
    proxy.fault = fault
    with pytest.raises(StoreError, match="safe to run again") as caught:
        store.put_bytes("k", DATA)
    assert type(caught.value) is StoreError
    assert keys(truth) == []


@pytest.mark.in_turn(1)
def test_an_overwrite_that_never_arrives_leaves_what_was_there(
    proxy: S3Proxy, store: S3Store, truth: ObjectStore
) -> None:
    truth.put_bytes("k", b"old")
    proxy.fault = RequestLost(is_put, None)
    with pytest.raises(StoreError):
        store.put_bytes("k", DATA)
    assert truth.get_bytes("k") == b"old"


@pytest.mark.in_turn(1)
def test_where_all_replies_are_lost_the_outcome_is_unknown(
    proxy: S3Proxy, store: S3Store, truth: ObjectStore
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


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("times", [ATTEMPTS - 1, None])
def test_a_refusal_that_names_the_checksum_of_the_object_is_a_refusal(
    proxy: S3Proxy, store: S3Store, times: int | None
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
    with pytest.raises(StoreError, match=r"Could not connect.*store\.endpoint_url"):
        away.get_bytes("k")
    with pytest.raises(OutcomeUnknown, match="Could not connect"):
        away.put_bytes("k", DATA)
    assert proxy.requests == []


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("status", "code"), [(500, "InternalError"), (503, "SlowDown"), (503, "ServiceUnavailable")]
)
def test_a_server_that_stumbles_is_asked_again(
    proxy: S3Proxy, store: S3Store, status: int, code: str
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
@pytest.mark.parametrize("fault", [BodyCutShort, BitFlippedInDownload, ReplyLost])
def test_a_download_that_is_damaged_once_is_fetched_again(
    proxy: S3Proxy, store: S3Store, fault: type[BodyCutShort]
) -> None:
    store.put_bytes("k", DATA)
    proxy.fault = fault(is_get)
    assert store.get_bytes("k") == DATA
    assert proxy.fault.struck == 1


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("fault", [BodyCutShort, BitFlippedInDownload, ReplyLost])
def test_a_download_that_stays_damaged_is_an_error(
    proxy: S3Proxy, store: S3Store, fault: type[BodyCutShort]
) -> None:
    store.put_bytes("k", DATA)
    proxy.fault = fault(is_get, None)
    with pytest.raises(StoreError, match="safe to run again"):
        store.get_bytes("k")
    assert proxy.fault.struck >= ATTEMPTS


@pytest.mark.in_turn(1)
def test_an_upload_that_is_damaged_never_reads_back_as_good(proxy: S3Proxy, store: S3Store) -> None:
    # Neither server compares the bytes with the checksum sent along; both keep it, and tell on the way back.
    proxy.fault = BitFlippedInUpload(is_put, None)
    store.put_bytes("k", DATA)
    with pytest.raises(StoreError, match="checksum"):
        store.get_bytes("k")


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("fault", [BodyCutShort, ReplyLost])
def test_a_listing_that_breaks_off_is_asked_again(
    proxy: S3Proxy, store: S3Store, fault: type[BodyCutShort]
) -> None:
    for name in "abc":
        store.put_bytes(name, b"")
    proxy.fault = fault(lambda request: request.is_list)
    assert keys(store) == ["a", "b", "c"]
    assert proxy.fault.struck == 1


@pytest.mark.in_turn(1)
def test_a_delete_whose_reply_is_lost_is_done(proxy: S3Proxy, store: S3Store, truth: ObjectStore) -> None:
    store.put_bytes("k", b"")
    proxy.fault = ReplyLost(lambda request: request.is_delete)
    store.delete(["k"])
    assert keys(truth) == []
    assert proxy.fault.struck == 1


# What a server can't or won't


@pytest.mark.parametrize("direct", ["moto"], indirect=True)  # rclone ignores them by itself: see the contract
def test_a_server_that_ignores_conditions_is_found_out(
    proxy: S3Proxy, store: S3Store, truth: ObjectStore
) -> None:
    proxy.fault = ConditionIgnored(is_put, None)
    assert store.probe() is False
    store.put_bytes("k", b"first", if_absent=True)
    with pytest.raises(AlreadyExists):
        store.put_bytes("k", b"second", if_absent=True)
    assert truth.get_bytes("k") == b"first"
    assert keys(truth) == ["k"]


@pytest.mark.in_turn(1)
def test_a_server_that_knows_no_conditions_is_asked_without(
    proxy: S3Proxy, store: S3Store, truth: ObjectStore
) -> None:
    proxy.fault = Refused(lambda r: r.header("if-none-match") is not None, None, 501, code="NotImplemented")
    assert store.probe() is False
    store.put_bytes("k", b"first", if_absent=True)
    with pytest.raises(AlreadyExists):
        store.put_bytes("k", b"second", if_absent=True)
    assert truth.get_bytes("k") == b"first"


@pytest.mark.in_turn(1)
def test_a_server_that_knows_no_storage_classes_says_so(
    proxy: S3Proxy, store: S3Store, truth: ObjectStore
) -> None:
    asks: Matches = lambda r: r.header("x-amz-storage-class") is not None  # noqa: E731
    proxy.fault = Refused(asks, None, 501, code="NotImplemented")
    with pytest.raises(StoreError, match=r"can't do that\. If archive\.storage_class is set, leave it out"):
        store.put_bytes("k", b"1", storage_class="STANDARD_IA")
    assert keys(truth) == []
    store.put_bytes("k", b"1")
    assert keys(truth) == ["k"]


RIGHTS: dict[str, Matches] = {
    "s3:PutObject": is_put,
    "s3:GetObject": is_get,
    "s3:ListBucket": lambda request: request.is_list,
    "s3:DeleteObject": lambda request: request.is_delete,
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("right", RIGHTS)
def test_a_probe_names_the_right_that_is_missing(proxy: S3Proxy, store: S3Store, right: str) -> None:
    proxy.fault = Refused(RIGHTS[right], None, status=403, code="AccessDenied")
    with pytest.raises(Denied) as caught:
        store.probe()
    assert [name for name in RIGHTS if name in str(caught.value)] == [right]


@pytest.mark.in_turn(1)
def test_a_probe_names_all_rights_that_are_missing(proxy: S3Proxy, store: S3Store) -> None:
    proxy.fault = Refused(is_any, None, status=403, code="AccessDenied")
    with pytest.raises(Denied, match=r"missing: s3:PutObject, s3:ListBucket, s3:DeleteObject\. Grant"):
        store.probe()


@pytest.mark.in_turn(1)
def test_a_delete_that_is_denied_says_so(proxy: S3Proxy, store: S3Store, truth: ObjectStore) -> None:
    store.put_bytes("a/k", b"")
    proxy.fault = Refused(lambda request: request.is_delete, None, status=403, code="AccessDenied")
    with pytest.raises(Denied, match=r"delete s3://.*/a/k: AccessDenied.*Grant"):
        store.delete(["a/k"])
    assert keys(truth) == ["a/k"]
    assert proxy.count(lambda request: request.is_delete) == 1


# Settings that are wrong


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


@pytest.mark.in_turn(1)
def test_no_credentials_give_a_mend(direct: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreError, match=r"no credentials were found\. Give boto3 credentials") as caught:
        open_store(direct).probe()
    assert type(caught.value) is StoreError


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


# The directory


def test_a_write_that_fails_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    store = FileStore(tmp_path / "store")
    store.put_bytes("a/k", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # a disk that is full, near enough
    try:
        with pytest.raises(StoreError, match=r"put file://.*/a/k: .*File too large"):
            store.put_bytes("a/k", b"new" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.get_bytes("a/k") == b"old"
    assert list((tmp_path / "store" / ".tmp").iterdir()) == []


def test_a_link_whose_reply_is_lost_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system behind a network: it is there, and the call has failed."""
    link = Path.hardlink_to

    def losing(self: Path, target: Path) -> None:
        link(self, target)
        raise OSError(errno.EIO, "Input/output error", str(self))

    monkeypatch.setattr(Path, "hardlink_to", losing)
    store = FileStore(tmp_path)
    store.put_bytes("a", b"ours", if_absent=True)
    assert store.get_bytes("a") == b"ours"
    with pytest.raises(AlreadyExists):
        store.put_bytes("a", b"ours", if_absent=True)


def test_a_process_killed_in_a_write_leaves_nothing_to_see(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    code = (
        "import os, sys; from pathlib import Path; from bucketwise.archivers.stores import file; "
        "file._place = lambda *_: os.kill(os.getpid(), 9); "
        "file.FileStore(Path(sys.argv[1])).put_bytes('data/dt=2018-06-30/a.parquet', bytes(3 << 20))"
    )
    writer = subprocess.run([sys.executable, "-c", code, str(root)], cwd=Path(__file__).parents[3])
    assert writer.returncode == -signal.SIGKILL
    (left,) = (root / ".tmp").iterdir()
    assert left.stat().st_size == 3 << 20
    store = FileStore(root)
    assert keys(store) == []
    assert store.clean_temporaries(datetime.now(UTC) - timedelta(days=1)) == 0
    assert store.clean_temporaries(datetime.now(UTC) + timedelta(days=1)) == 1
    assert [path for path in root.rglob("*") if path.is_file()] == []


def test_deleting_removes_folders_that_hold_nothing(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    store = FileStore(root)
    store.put_bytes("p/data/dt=1/a", b"")
    store.put_bytes("p/data/dt=2/b", b"")
    store.delete(["p/data/dt=1/a"])
    assert not (root / "p/data/dt=1").exists()
    store.delete(["p/data/dt=2/b"])
    assert root.is_dir() and not (root / "p").exists()


def test_a_folder_is_no_object(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.put_bytes("a/b", b"1")
    assert store.head("a") is None
    with pytest.raises(StoreError):
        store.get_bytes("a")
    with pytest.raises(StoreError):
        store.put_bytes("a", b"2")
    with pytest.raises(StoreError):
        store.put_bytes("a/b/c", b"3")
    store.delete(["a/b/c"])
    with pytest.raises(StoreError, match=r"\.tmp is kept"):
        store.put_bytes(".tmp/a", b"")
    assert keys(store) == ["a/b"]
