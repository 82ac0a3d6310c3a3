"""`archive.storage_class`: parts are put with it, and nothing else is."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.classes import ThawOptions, placed, thaw
from bucketwise.archivers.context import Connections, LocalExecutor
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.base import Cold, Corrupt, StoreError
from bucketwise.buckets.fields.times import EVER, FIRST_MS, LAST_MS
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Retain, StorageClass
from bucketwise.config.tables import Store, StoreCopy
from bucketwise.jobs.check.classes import billed_longer
from bucketwise.jobs.check.services import check_stores
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.thaws import thaw_and_wait
from bucketwise.jobs.core.turn import Finding
from tests.archivers.builders import LATER, Case, slots
from tests.archivers.harness import Cycle, in_turn
from tests.archivers.moving.test_crash import few
from tests.conftest import s3_client
from tests.jobs.cold.chilled import thaws_after

Document = dict[str, Any]
MOVES = (
    StorageClass.model_validate({"after": "10d", "class": "STANDARD_IA"}),
    StorageClass.model_validate({"after": "45d", "class": "GLACIER"}),
)


def classes(settings: Store) -> dict[str, set[str]]:
    """What S3 tells, by folder: of `data/`, and of each below `meta/`."""
    assert settings.endpoint_url is not None
    bucket, _, prefix = settings.url.removeprefix("s3://").partition("/")
    found: dict[str, set[str]] = {}
    for it in open_store(settings).list():
        head = s3_client(settings.endpoint_url).head_object(Bucket=bucket, Key=f"{prefix}/{it.key}")
        folder = "/".join(it.key.split("/")[1 : 2 if "/data/" in it.key else 3])
        found.setdefault(folder, set()).add(head.get("StorageClass", "STANDARD"))
    return found


@pytest.mark.proof
@pytest.mark.parametrize(("named", "workers"), in_turn(["STANDARD_IA", "GLACIER_IR", None], [1, 2]))
def test_parts_have_it_and_nothing_else(
    database: Database[Document], moto_store: Store, named: str | None, workers: int
) -> None:
    """Copied by the run itself or by a worker, and again when a bucket leaves its commit."""
    base: Case = few(slots()).with_archive(storage_class=named, grace=timedelta(days=1))
    cycle = Cycle(database, base, moto_store).load()
    executor = LocalExecutor(Connections(database, cycle.store), workers=workers)
    cycle.run(executor=executor)
    parts = {named or "STANDARD"}
    first = {"", "meta/owner.json", "meta/lineage", "meta/manifests", "meta/buckets"}
    assert classes(moto_store) == {"data": parts, **{key: {"STANDARD"} for key in first}}
    database[base.policy.collection].update_one({}, {"$set": {"note": "changed"}})
    live = cycle.live()
    done = cycle.run(LATER + timedelta(days=3), executor=executor)
    assert done.deleted > 0
    cycle.run(LATER + timedelta(days=6), executor=executor)
    later = {*first, "meta/superseded", "meta/versions"}
    found = classes(moto_store)
    assert found.pop("data") == parts
    assert set(found) <= later and "meta/superseded" in found
    assert all(it == {"STANDARD"} for it in found.values())
    assert cycle.archived() == live
    assert cycle.verify().bad == []


def checked(settings: Store, *classes: str) -> list[Finding]:
    """What a check says of the store, for policies with these classes."""
    policies = [slots().with_archive(storage_class=it).policy for it in classes]
    return list(check_stores(open_store(settings), policies))


def told(found: list[Finding]) -> list[tuple[str, str]]:
    return [(it.code, it.severity) for it in found]


@pytest.mark.proof
def test_check_tries_the_classes_that_policies_name(moto_store: Store) -> None:
    assert told(checked(moto_store, "GLACIER_IR", "STANDARD_IA")) == [("store", "ok")]
    (refused,) = checked(moto_store, "GLACIER_IR", "NO_SUCH")
    assert (refused.code, refused.severity) == ("store", "error")
    assert "Set archive.storage_class to one that this store has" in refused.message
    assert list(open_store(moto_store).list()) == []


@pytest.mark.proof
def test_check_moves_an_object_to_the_classes_that_parts_move_to(
    moto_store: Store, rclone_store: Store
) -> None:
    _, moved = checked(moto_store, "STANDARD_IA", "GLACIER")
    assert (moved.code, moved.severity) == ("storage-class", "ok")
    assert "moved to GLACIER; the right to thaw, s3:RestoreObject, is not tried" in moved.message
    assert list(open_store(moto_store).list()) == []
    (refused,) = checked(rclone_store, "GLACIER")
    assert (refused.code, refused.severity) == ("store", "error")
    assert "move s3://" in refused.message
    assert list(open_store(rclone_store).list()) == []


def test_check_looks_at_copies_with_their_own_classes(moto_store: Store, file_store: Store) -> None:
    where = {name: getattr(moto_store, name) for name in ("url", "endpoint_url", "region")}
    there = StoreCopy(name="b", storage_class="GLACIER", **where)
    absent = StoreCopy(name="c", required=False, **where | {"url": "s3://no-such-bucket"})
    settings = file_store.model_copy(update={"copies": (there, absent)})
    found = checked(settings, "STANDARD")
    assert told(found) == [("store", "ok"), ("store", "ok"), ("storage-class", "ok"), ("store", "warning")]
    assert [it.place for it in found] == [file_store.url, *[moto_store.url] * 2, "s3://no-such-bucket"]
    assert found[1].message.startswith("copy b: write, read") and "copy c: " in found[3].message


@pytest.mark.parametrize(
    ("prefix", "action", "expected"),
    [
        ("", {"Expiration": {"Days": 365}}, ["error"]),
        ("archive/slots/data/dt=2018", {"Expiration": {"Days": 365}}, ["error"]),
        ("archive/other/", {"Expiration": {"Days": 365}}, []),
        ("arc", {"Transitions": [{"Days": 30, "StorageClass": "GLACIER"}]}, ["error"]),
        ("archive/slots/data/", {"Transitions": [{"Days": 30, "StorageClass": "DEEP_ARCHIVE"}]}, ["warning"]),
        ("", {"Transitions": [{"Days": 30, "StorageClass": "STANDARD_IA"}]}, []),
        ("", {"NoncurrentVersionExpiration": {"NoncurrentDays": 30}}, []),
    ],
)
def test_check_tells_lifecycle_rules_that_touch_archives(
    moto_store: Store, prefix: str, action: dict[str, Any], expected: list[str]
) -> None:
    rule = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": prefix}, **action}
    bucket = moto_store.url.removeprefix("s3://").partition("/")[0]
    client = s3_client(str(moto_store.endpoint_url))
    for status in ("Disabled", "Enabled"):
        rules = {"Rules": [{**rule, "Status": status}]}
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=rules)
        found = told(checked(moto_store, "STANDARD"))
        assert found == [("store", "ok"), *(("lifecycle", it) for it in expected if status == "Enabled")]


@pytest.mark.parametrize(
    ("keys", "kept", "expected"),
    [
        ({"storage_class": "STANDARD_IA"}, 45, ["STANDARD_IA for 22d"]),
        ({"storage_class": "STANDARD_IA"}, 60, []),
        ({"storage_class": "STANDARD_IA"}, None, []),
        ({"storage_classes": MOVES}, 60, ["STANDARD_IA for 15d", "GLACIER for 22d"]),
        ({"storage_class": "GLACIER"}, 113, []),
    ],
)
def test_check_tells_what_is_billed_for_longer_than_it_stays(
    moto_store: Store, keys: dict[str, Any], kept: int | None, expected: list[str]
) -> None:
    """Archived after 30 days; a tombstone stands for 7 days."""
    policy = slots().with_archive(after=timedelta(days=30), **keys).policy
    retain = Retain(archive=None if kept is None else timedelta(days=kept))
    policy = policy.model_copy(update={"retain": retain})
    found = list(billed_longer(policy, placed(open_store(moto_store), policy.archive)))
    assert [it.message.partition(", and")[0].removeprefix("parts stay in ") for it in found] == expected
    assert {(it.code, it.severity) for it in found} <= {("storage-class", "warning")}


@pytest.mark.proof
def test_what_the_server_refuses_ends_the_run_before_anything_is_deleted(
    database: Database[Document], moto_store: Store
) -> None:
    cycle = Cycle(database, slots().with_archive(storage_class="NO_SUCH"), moto_store).load()
    live = cycle.live()
    with pytest.raises(StoreError, match=r"Set archive\.storage_class to one that this store has"):
        cycle.run()
    assert cycle.live() == live


def test_what_lies_in_an_archive_tier_is_thawed_for_good(moto_store: Store) -> None:
    """This server has no such tiers: they are what S3 tells beside the class."""
    store: Any = open_store(moto_store).inner
    store.put_bytes("part", b"part", storage_class="INTELLIGENT_TIERING")
    assert store.standing("part") == ("INTELLIGENT_TIERING", True, False)
    told, asked = {"ArchiveStatus": "ARCHIVE_ACCESS"}, []
    events = store._client.meta.events
    events.register("after-call.s3.HeadObject", lambda parsed, **_: parsed.update(told))
    assert store.standing("part") == ("ARCHIVE_ACCESS", False, False)
    with pytest.raises(Cold, match="ARCHIVE_ACCESS"):
        store.move("part", 4, hashlib.sha256(b"part").hexdigest(), "GLACIER")
    events.register("before-call.s3.RestoreObject", lambda params, **_: asked.append(params["body"]))
    with pytest.raises(StoreError):  # to the server it is not cold
        store.thaw("part", None, "bulk")
    assert b"<Tier>Bulk</Tier>" in asked[0] and b"Days" not in asked[0]
    told["Restore"] = 'ongoing-request="true"'
    assert store.standing("part") == ("ARCHIVE_ACCESS", False, True)


@pytest.mark.proof
def test_verify_goes_on_past_cold_parts_of_which_the_server_tells_no_checksum(
    database: Database[Document], moto_store: Store
) -> None:
    cycle = Cycle(database, few(slots(), 20), moto_store).load()
    cycle.run()
    (manifest,) = cycle.as_stored().manifests(FIRST_MS, LAST_MS)
    store: Any = open_store(moto_store).inner
    for part in manifest.parts:
        store.move(part.key, part.bytes, part.sha256, "GLACIER")
    without_checksums(cycle.store.inner)  # type: ignore[attr-defined]
    found = cycle.verify()
    assert (found.bad, [it.parts for it in found.cold]) == ([], [len(manifest.parts)])
    store.delete([it.buckets_file.key for it in manifest.sections])
    assert [it.code for it in cycle.verify().bad] == ["part-missing"] * len(manifest.sections)


def without_checksums(store: Any) -> None:
    """The server tells this client no SHA-256."""
    store._client.meta.events.register(
        "after-call.s3.HeadObject", lambda parsed, **_: parsed.pop("ChecksumSHA256", None)
    )


def test_what_a_killed_run_has_moved_is_found_there_without_a_checksum(moto_store: Store) -> None:
    store: Any = open_store(moto_store).inner
    without_checksums(store)
    store.put_bytes("part", b"part")
    told = 4, hashlib.sha256(b"part").hexdigest(), "GLACIER"
    assert store.move("part", *told)
    assert not store.move("part", *told)
    with pytest.raises(Corrupt):
        store.move("part", 5, *told[1:])


def test_a_thaw_asks_for_all_parts_or_none_and_counts_what_it_asked_for_once(
    database: Database[Document], moto_store: Store
) -> None:
    """One of the classes does not know the tier; a run replaces a commit between the looks of one thaw."""
    cycle = Cycle(database, slots(), moto_store).load()
    cycle.run()
    (manifest,) = cycle.as_stored().manifests(FIRST_MS, LAST_MS)
    store: Any = open_store(moto_store).inner
    first, *others = manifest.parts
    data = {others[-1].key: store.get_bytes(others[-1].key)}
    for part in manifest.parts:
        store.move(part.key, part.bytes, part.sha256, "GLACIER" if part == first else "DEEP_ARCHIVE")
    with pytest.raises(UsageError, match="--tier expedited: class DEEP_ARCHIVE"):
        thaw(cycle.context(), ThawOptions(EVER, 3, "expedited"))
    assert not any(store.standing(it.key).is_readable for it in manifest.parts)
    steps = count(1)

    def check() -> None:
        step = next(steps)
        if step == 2 * len(manifest.parts):  # as it is about to ask for the last one
            store.delete(data)
        elif step == 2 * len(manifest.parts) + 1:  # it looks again
            store.put_bytes(*data.popitem())

    thaws_after(moto_store, 1)
    try:
        found = thaw(cycle.context(check=check), ThawOptions(EVER, 3))
    finally:
        thaws_after(moto_store, 0)
    assert (found.asked, found.waiting, found.ready) == (len(others), 0, 1)


@pytest.mark.proof
def test_what_waits_for_a_thaw_is_told(database: Database[Document], moto_store: Store) -> None:
    cycle = Cycle(database, few(slots(), 20), moto_store).load()
    cycle.run()
    manifests = cycle.as_stored().manifests(FIRST_MS, LAST_MS)
    parts = [part for it in manifests for part in it.parts]
    store: Any = open_store(moto_store).inner
    for part in parts:
        store.move(part.key, part.bytes, part.sha256, "DEEP_ARCHIVE")
    told = list[str | None]()
    thaws_after(moto_store, 1)
    try:
        options = ThawOptions(EVER, 3)
        found = thaw_and_wait(cycle.context(), options, timedelta(hours=1), told.append)
    finally:
        thaws_after(moto_store, 0)
    assert (found.is_ready, found.asked, found.parts) == (True, len(parts), len(parts))
    begin = f"0 of {len(parts)} parts can be read, all by {clock.iso(LATER + timedelta(hours=12))}"
    assert told == [begin, begin, None]
    assert cycle.archived() == sorted(few(slots(), 20).documents)
    store.delete([parts[0].key])
    with pytest.raises(DamagedError, match="missing"):
        thaw(cycle.context(), options)
    assert thaw(cycle.context(), replace(options, skip_damaged=True)).parts == len(parts) - 1


def test_a_thaw_looks_again_where_a_run_has_replaced_a_commit_meanwhile(
    database: Database[Document], file_store: Store
) -> None:
    """It takes no lease. What it was about to look at is gone, and something else has taken its place."""
    cycle = Cycle(database, few(slots(), 20), file_store).load()
    cycle.run()
    (before,) = cycle.as_stored().manifests(FIRST_MS, LAST_MS)
    runs = iter([lambda: cycle.erase({"meta.symbol": "ORCL"})])

    def check() -> None:
        next(runs, list)()

    found = thaw(cycle.context(check=check), ThawOptions(EVER, 3))
    after = cycle.as_stored().manifests(FIRST_MS, LAST_MS)
    assert before.commit not in {it.commit for it in after}
    assert (found.commits, found.parts, found.is_ready) == (1, sum(len(it.parts) for it in after), True)
