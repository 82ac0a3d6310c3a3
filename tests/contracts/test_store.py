"""What holds for every store: a directory, two S3 servers that nobody wrote together, Azure's, Google's."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.base import (
    AlreadyExists,
    Corrupt,
    Missing,
    NotFound,
    ObjectStore,
    StoreError,
)
from bucketwise.archivers.stores.file import FileStore
from bucketwise.config.checks.locations import S3
from bucketwise.config.tables import Store
from tests.clouds import container_of
from tests.conftest import s3_client
from tests.examples import examples


@pytest.fixture
def store(store_settings: Store) -> ObjectStore:
    return open_store(store_settings)


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [item.key for item in store.list(prefix)]


@pytest.mark.parametrize(
    "key", ["a", "ticks/data/dt=2018-06-30/a.parquet", "a b/c+d&e=%20~#?.json", "x/.y/...z"]
)
@pytest.mark.parametrize("data", [b"", b"\x00", b"\r\n\xff" * 1000], ids=["empty", "nul", "binary"])
def test_bytes_come_back(store: ObjectStore, key: str, data: bytes) -> None:
    store.put_bytes(key, data)
    assert store.get_bytes(key) == data
    assert keys(store) == [key]


@pytest.mark.parametrize("size", [(1 << 20) + 1, 20_000_000])
def test_much_comes_back(store: ObjectStore, size: int) -> None:
    data = os.urandom(size)
    store.put_bytes("dt=2018-06-30/a.parquet", data)
    assert store.get_bytes("dt=2018-06-30/a.parquet") == data
    found = store.head("dt=2018-06-30/a.parquet")
    assert found is not None and found.size == size


@settings(max_examples=examples(15))
@given(contents=st.lists(st.binary(max_size=300), min_size=1, max_size=3))
def test_the_last_write_stands(store: ObjectStore, contents: list[bytes]) -> None:
    for data in contents:
        store.put_bytes("k", data)
        assert store.get_bytes("k") == data
        found = store.head("k")
        assert found is not None and found.size == len(data)


def test_what_has_another_size_is_not_read(store: ObjectStore) -> None:
    store.put_bytes("k", b"four")
    assert store.get_bytes("k", 4) == b"four"
    for size in (3, 5):
        with pytest.raises(Corrupt, match=f"has 4 bytes, and {size} were put there"):
            store.get_bytes("k", size)


def test_an_object_is_checked_to_be_what_was_put_there(store: ObjectStore, store_settings: Store) -> None:
    def check() -> None:
        store.check("a/k", 4, hashlib.sha256(b"four").hexdigest())

    store.put_bytes("a/k", b"four")
    check()
    keeps_sha256 = store_settings.url.startswith("s3://")
    assert store.requests.take()[0].get("get", 0) == (not keeps_sha256)
    for damaged, reason in ((b"fouR", "SHA-256"), (b"for", "has 3 bytes, and 4 were put there")):
        by_another(store_settings, "a/k", damaged)
        with pytest.raises(Corrupt, match=reason):
            check()
    by_another(store_settings, "a/k", b"four")  # put back, without the checksum that was kept of it
    check()
    store.delete(["a/k"])
    with pytest.raises(NotFound, match="/a/k: no such"):
        check()


def by_another(settings: Store, key: str, data: bytes) -> None:
    """Somebody else puts an object in its place."""
    if settings.endpoint_url is None:
        Path(settings.url.removeprefix("file://"), key).write_bytes(data)
    elif not settings.url.startswith("s3://"):
        container_of(settings).write(key, data)
    else:
        bucket, _, prefix = settings.url.removeprefix("s3://").partition("/")
        s3_client(settings.endpoint_url).put_object(Bucket=bucket, Key=f"{prefix}/{key}", Body=data)


def test_a_conditional_put_writes_once(store: ObjectStore) -> None:
    store.put_bytes("m/a.json", b"first", if_absent=True)
    for data in (b"second", b"first"):
        with pytest.raises(AlreadyExists, match="already"):
            store.put_bytes("m/a.json", data, if_absent=True)
    assert store.get_bytes("m/a.json") == b"first"


def test_of_conditional_puts_at_once_one_wins_where_the_probe_says_so(
    store: ObjectStore, request: pytest.FixtureRequest
) -> None:
    conditional = store.probe()
    assert conditional == (request.node.callspec.params["store_settings"] != "rclone")
    if not conditional:
        return  # nothing is promised, and nothing is asked

    def put(writer: int) -> int | None:
        try:
            store.put_bytes("lock", b"%d" % writer, if_absent=True)
        except AlreadyExists:
            return None
        return writer

    with ThreadPoolExecutor(8) as pool:
        winners = [writer for writer in pool.map(put, range(8)) if writer is not None]
    assert [store.get_bytes("lock")] == [b"%d" % writer for writer in winners]


@pytest.mark.parametrize("named", [None, "STANDARD_IA", "GLACIER_IR"])
def test_a_storage_class_changes_no_byte(
    store: ObjectStore, store_settings: Store, named: str | None
) -> None:
    store.put_bytes("k", b"1", storage_class=named)
    store.put_bytes("m", b"2", if_absent=True, storage_class=named)
    assert [store.get_bytes(key) for key in ("k", "m")] == [b"1", b"2"]
    with pytest.raises(AlreadyExists):
        store.put_bytes("m", b"3", if_absent=True, storage_class=named)
    if store_settings.region is not None:
        assert {class_of(store_settings, key) for key in ("k", "m")} <= {named, None}


@pytest.mark.parametrize("named", S3.classes)
def test_each_class_that_a_policy_may_name_is_one_of_s3(moto_store: Store, named: str) -> None:
    open_store(moto_store).put_bytes("k", b"1", storage_class=named)
    assert class_of(moto_store, "k") == (None if named == "STANDARD" else named)


def test_a_storage_class_that_the_server_refuses_is_told(moto_store: Store) -> None:
    store = open_store(moto_store)
    with pytest.raises(
        StoreError, match=r"put s3://.*InvalidStorageClass.*Set archive\.storage_class to one"
    ):
        store.put_bytes("k", b"1", storage_class="NO_SUCH")
    assert keys(store) == []


def class_of(settings: Store, key: str) -> str | None:
    """As S3 tells it; None: STANDARD."""
    assert settings.endpoint_url is not None
    bucket, _, prefix = settings.url.removeprefix("s3://").partition("/")
    found = s3_client(settings.endpoint_url).head_object(Bucket=bucket, Key=f"{prefix}/{key}")
    named: str | None = found.get("StorageClass")
    return named


def test_a_listing_is_in_order_and_goes_by_prefix(store: ObjectStore) -> None:
    names = ["a/b/c", "a/b-c", "a/b=1/x", "a/b=1/y", "a/b=10/x", "ab", "b/a", "a/B", "a/b.c"]
    for number, name in enumerate(names):
        store.put_bytes(name, b"x" * number)
    assert keys(store) == sorted(names)
    for prefix in ("a", "a/", "a/b", "a/b=1", "a/b=1/", "a/b=1/x", "b/a", "c", "a/c/", "a/b/c/d"):
        assert keys(store, prefix) == sorted(name for name in names if name.startswith(prefix)), prefix
    assert {item.key: item.size for item in store.list()} == {name: n for n, name in enumerate(names)}


def test_a_listing_leaves_out_what_comes_before_a_key(store: ObjectStore) -> None:
    names = ["m/000001.a", "m/000001.b", "m/000002.a", "m/000002/x", "m/1", "m/a b~#", "m/~", "n"]
    for name in names:
        store.put_bytes(name, b"")
    for after in (
        "",
        "l",
        "m/",
        "m/.",
        "m/000001",
        "m/000001.a",
        "m/000002",
        "m/1",
        "m/a b",
        "m/~",
        "n",
        "o",
    ):
        for prefix in ("", "m/", "m/0000", "m/000001.", "m/000002", "n", "m/~"):
            expected = sorted(it for it in names if it.startswith(prefix) and it > after)
            assert [it.key for it in store.list(prefix, after)] == expected, (prefix, after)


@pytest.mark.in_turn(1)
def test_a_listing_goes_on_after_a_thousand(store: ObjectStore) -> None:
    names = [f"data/dt=2018-06-{n % 30 + 1:02}/{n:04}" for n in range(1005)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put_bytes(name, b"x"), names))
    assert keys(store, "data/") == sorted(names)
    store.delete(names)
    assert keys(store) == []


def test_times_are_aware_and_of_now(store: ObjectStore) -> None:
    store.put_bytes("k", b"")
    (listed,) = store.list()
    head = store.head("k")
    assert head is not None
    for modified in (listed.modified, head.modified):
        assert abs(modified - datetime.now(UTC)) < timedelta(minutes=5)


def test_delete_is_idempotent(store: ObjectStore) -> None:
    for name in ("a/b/c", "a/d", "e"):
        store.put_bytes(name, b"1")
    store.delete(["a/b/c", "never/was", "e", "a/b/c"])
    store.delete(["a/b/c"])
    store.delete([])
    assert keys(store) == ["a/d"]
    store.put_bytes("a/b/c", b"2")
    assert store.get_bytes("a/b/c") == b"2"


def test_what_is_not_there(store: ObjectStore) -> None:
    assert store.head("a/b") is None
    assert keys(store, "a/") == []
    with pytest.raises(NotFound, match=r"get .*/a/b: no such"):
        store.get_bytes("a/b")
    assert keys(store) == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\x00b", "a\nb"])
def test_unsafe_keys_are_refused(store: ObjectStore, key: str) -> None:
    for ask in (
        lambda: store.put_bytes(key, b""),
        lambda: store.get_bytes(key),
        lambda: store.head(key),
        lambda: store.check(key, 0, "00" * 32),
        lambda: store.delete([key]),
    ):
        with pytest.raises(StoreError, match="not a safe key"):
            ask()
    assert keys(store) == []


def test_a_probe_leaves_nothing(store: ObjectStore) -> None:
    store.put_bytes("k", b"")
    store.probe()
    assert keys(store) == ["k"]


def test_nothing_is_seen_of_another_prefix(store_settings: Store, tmp_path: Path) -> None:
    for name in ("inner", "inner2"):
        (tmp_path / "store" / name).mkdir(parents=True, exist_ok=True)  # on S3 a prefix need not be made
    inner = open_store(store_settings.model_copy(update={"url": store_settings.url + "/inner"}))
    beside = open_store(store_settings.model_copy(update={"url": store_settings.url + "/inner2"}))
    inner.put_bytes("k", b"1")
    beside.put_bytes("k", b"2")
    assert (keys(inner), inner.get_bytes("k")) == (["k"], b"1")
    assert keys(open_store(store_settings)) == ["inner/k", "inner2/k"]
    inner.delete(["k"])
    assert keys(beside) == ["k"]


def test_cleaning_spares_what_is_finished(store: ObjectStore) -> None:
    store.put_bytes("k", b"1")
    assert store.clean_temporaries(datetime.now(UTC) + timedelta(days=1)) == 0
    assert store.get_bytes("k") == b"1"


def test_cleaning_removes_what_was_never_finished(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.put_bytes("k", b"1")
    (tmp_path / ".tmp" / "left").write_bytes(b"half")
    assert store.clean_temporaries(datetime.now(UTC) - timedelta(days=1)) == 0
    assert store.clean_temporaries(datetime.now(UTC) + timedelta(days=1)) == 1
    assert store.clean_temporaries(datetime.now(UTC) + timedelta(days=1)) == 0
    assert store.get_bytes("k") == b"1"


def test_what_is_asked_is_counted(store: ObjectStore) -> None:
    store.put_bytes("a", b"1")
    store.put_bytes("b", b"1")
    assert store.get_bytes("a") == b"1"
    assert store.head("nowhere") is None
    assert keys(store) == ["a", "b"]
    store.delete(["a", "b"])
    sent, retries = store.requests.take()
    deletes = sent.pop("delete")  # of each file, or of all objects in one request
    assert (sent, retries) == ({"put": 2, "get": 1, "head": 1, "list": 1}, 0)
    assert deletes in (1, 2)


def test_a_directory_is_never_created(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "a" / "store")
    for act in (store.check_there, store.probe, lambda: store.put_bytes("a/k", b"1")):
        with pytest.raises(Missing, match=r"directory\. Create it \(mkdir -p /.*/a/store\), mount it"):
            act()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a" / "store").mkdir(parents=True)
    store.check_there()
    store.probe()
    assert list((tmp_path / "a" / "store").iterdir()) == []


def test_unfinished_writes_are_told_and_removed_by_folder(tmp_path: Path) -> None:
    """However new they are: those of one folder, whose owner has the lease."""
    store = FileStore(tmp_path)
    left = {name: tmp_path / ".tmp" / name for name in ("it.1f", "it.b.2f", "other.3f", "4f")}
    store.put_bytes("it/k", b"1")
    for path in left.values():
        path.write_bytes(b"half")
    assert store.unfinished("it") == sorted(left[it].as_uri() for it in ("4f", "it.1f"))
    assert store.clean_temporaries(None, "it") == 1
    assert store.unfinished("it") == [left["4f"].as_uri()]  # which may be another's
    assert {it.name for it in (tmp_path / ".tmp").iterdir()} == left.keys() - {"it.1f"}
