"""`archive.storage_class`: parts are put with it, and nothing else is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.context import Connections, LocalExecutor
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.base import StoreError
from bucketwise.config.tables import Store
from bucketwise.jobs.check.services import check_store
from tests.archivers.builders import LATER, Case, slots
from tests.archivers.harness import Cycle, in_turn
from tests.archivers.moving.test_crash import few
from tests.conftest import s3_client

Document = dict[str, Any]


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


@pytest.mark.proof
def test_check_tries_the_classes_that_policies_name(moto_store: Store) -> None:
    store = open_store(moto_store)
    (fine,) = check_store(store, ["GLACIER_IR", "STANDARD_IA"])
    assert fine.severity == "ok"
    (refused,) = check_store(store, ["GLACIER_IR", "NO_SUCH"])
    assert (refused.code, refused.severity) == ("store", "error")
    assert "Set archive.storage_class to one that this store has" in refused.message
    assert list(store.list()) == []


def test_what_the_server_refuses_ends_the_run_before_anything_is_deleted(
    database: Database[Document], moto_store: Store
) -> None:
    cycle = Cycle(database, slots().with_archive(storage_class="NO_SUCH"), moto_store).load()
    live = cycle.live()
    with pytest.raises(StoreError, match=r"Set archive\.storage_class to one that this store has"):
        cycle.run()
    assert cycle.live() == live
