"""Several runs at once: of two policies on one collection, and of a run whose upload lands too late."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.config.load import load
from bucketwise.config.tables import Store
from tests.faults.crashes.jobs import filled, in_small_commits
from tests.faults.s3_proxy import HeldBack, Matches, Request, s3_proxy
from tests.faults.scene import OFFLINE, ROLLUP, SLOTS, Scene
from tests.faults.stopping import expire_the_lease, stopped
from tests.faults.tally import Tally
from tests.faults.truth import Truth
from tests.jobs.command import CommandLine, Meddle

Db = Database[dict[str, Any]]
OTHER: Meddle = ("tests.faults.other_host", {"host": "other"})
SECOND = (SLOTS + ROLLUP).replace("policies.it", "policies.second").replace("it_", "second_")
GROUP = "runs at once"


@pytest.mark.proof
def test_two_policies_on_one_collection_at_once(
    tmp_path: Path,
    database: Db,
    mongodb_uri: str,
    file_store: Store,
    bucketwise: CommandLine,
    elsewhere: CommandLine,
    tally: Tally,
) -> None:
    """One archives, one rolls up only. Nothing goes before both have rolled it up, and both end up right."""
    text = SLOTS + ROLLUP + OFFLINE + SECOND
    it = Scene(tmp_path, database, mongodb_uri, file_store, bucketwise, text).fill(buckets=12, readings=4)
    with stopped(it, "before summaries", "--policy", "it") as run:
        assert it.run("run", "--policy", "it", by=elsewhere, meddle=OTHER).code == 11
        second = it.run("run", "--policy", "second", by=elsewhere, meddle=OTHER)
        assert second.code == 0, second
    assert run.code == 0, run
    tally(GROUP, "two policies on one collection", runs=3, **it.toll()._asdict())
    assert it.toll()[1:] == (0, 0)
    for _ in range(2):
        assert it.run().code == 0
    it.truth.check_finished()
    it.truth.check_summaries()
    policy = load(it.config, environ={}).policies["second"]
    Truth(database, policy, it.truth.files, it.truth.units).check_summaries()


def manifest(request: Request) -> bool:
    return request.is_put and "/manifests/" in request.target


def part(request: Request) -> bool:
    return request.is_put and "/data/" in request.target


def buckets(request: Request) -> bool:
    return request.is_put and "/buckets/" in request.target


@pytest.mark.proof
@pytest.mark.parametrize(
    "held",
    [manifest, pytest.param(part, marks=pytest.mark.proof), pytest.param(buckets, marks=pytest.mark.proof)],
)
@pytest.mark.parametrize("kind", ["moto", pytest.param("rclone", marks=pytest.mark.soak)])
@pytest.mark.parametrize("prepare", [filled, pytest.param(in_small_commits, marks=pytest.mark.proof)])
def test_clearing_races_a_slow_upload(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: Db,
    mongodb_uri: str,
    bucketwise: CommandLine,
    elsewhere: CommandLine,
    tally: Tally,
    kind: str,
    held: Matches,
    prepare: Callable[[Scene], None],
) -> None:
    """A host stands still while its upload is on its way. Another takes the lease, clears, and does the work;
    then the upload lands, and the first goes on. The work is to archive, or to merge small commits."""
    store: Store = request.getfixturevalue(f"{kind}_store")
    it = Scene(tmp_path, database, mongodb_uri, store, bucketwise, SLOTS + ROLLUP + OFFLINE)
    prepare(it)
    with s3_proxy(str(store.endpoint_url)) as proxy:
        fault = proxy.fault = HeldBack(held)
        it.write_config(endpoint_url=proxy.endpoint_url)
        with stopped(it, lambda: fault.struck > 0):
            expire_the_lease(database)
            it.write_config()
            it.well(by=elsewhere, meddle=OTHER)
            finished = it.everything()
            fault.release.set()
            assert fault.landed.acquire(timeout=300)
        assert it.toll()[1:] == (0, 0)
    tally(
        GROUP,
        f"a slow upload of a {held.__name__}, {kind}, {prepare.__name__}",
        runs=2,
        **it.toll()._asdict(),
    )
    assert {name for name, data in it.everything().items() if finished.get(name) != data} <= {
        name for name in it.truth.files.names() if name.startswith("it/")
    }
    it.finish()
    it.check_restores()
