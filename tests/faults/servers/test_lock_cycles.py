"""The life of an archive in Azure and in Google Cloud Storage whose files are locked, by the command line."""

from __future__ import annotations

import re
import signal
from datetime import timedelta
from typing import Any

import pytest

from bucketwise.config.tables import Store
from tests.clouds import Container, container_of
from tests.faults.meddling import hook
from tests.faults.s3_proxy import Fault, Refused, s3_proxy
from tests.faults.scene import NOW, START
from tests.faults.servers.test_cloud_cycles import ENCRYPTED, LIVE, MakeScene, contents, copy_in, scene
from tests.faults.servers.test_lock_faults import LocksIgnored, locks, reads_lock
from tests.faults.truth import files_of

__all__ = ["scene"]

pytestmark = pytest.mark.proof

DAY = timedelta(days=1)
DAYS = 30_000
LOCK = f'object_lock = {{mode = "compliance", days = {DAYS}}}\n'
UNTIL = NOW + DAYS * DAY
LOCKED = ("it/data/", "it/meta/buckets/", "it/meta/manifests/")


@pytest.fixture(params=["google", "azurite"])
def cloud(request: pytest.FixtureRequest) -> Store:
    """Settings of an empty store in a cloud that can lock."""
    settings: Store = request.getfixturevalue(f"{request.param}_locking_store")
    return settings


def check_locks(container: Container, until: Any = UNTIL) -> int:
    """All files of commits are locked, and nothing else. Returns how many there are."""
    found = {name: container.lock_of(name) for name in container.names()}
    for name, lock in found.items():
        if name.startswith(LOCKED):
            assert lock is not None and (lock[0].lower(), lock[1]) == ("locked", until), name
        else:
            assert lock is None, name
    return sum(lock is not None for lock in found.values())


@pytest.mark.parametrize("encryption", ["", ENCRYPTED], ids=["plain", "encrypted"])
def test_files_of_commits_are_locked_before_originals_go(
    cloud: Store, scene: MakeScene, encryption: str
) -> None:
    """What is merged and erased stays as locked versions, and the erasure tells how many, and until when."""
    it, there = scene(cloud, LOCK + encryption + LIVE), container_of(cloud)
    told = {(found["code"], found["severity"]) for found in it.run("check").json["findings"]}
    assert {("store", "ok"), ("object-lock", "ok")} <= told
    for minutes in (50, 110, 170, 210):
        it.well(now=START + timedelta(days=30, minutes=minutes))
    first = [name for name in there.names() if name.startswith(LOCKED)]
    assert len(first) > 8
    assert it.well("compact", now=NOW - 2 * DAY)["into"] == 2
    it.finish(now=NOW)
    merged = NOW + (DAYS - 2) * DAY
    ends = {lock[1] for name in there.names() if (lock := there.lock_of(name)) is not None}
    assert ends == {merged}
    it.audited(now=NOW)

    given = ["--series", "dev=0", "--reason", "asked for", "--confirm", "it"]
    body = it.well("erase", *given, code=3, now=NOW + DAY)
    (older,) = [it["why"] for it in body["remaining"] if "older versions" in it["why"]]
    assert f"older versions of files, and locks some of them until {merged:%Y-%m-%d}T" in older
    gone = next(name for name in first if name not in there.names())
    assert set(there.remove_versions(gone)) <= {403, 409}
    assert sorted(it.restored(now=NOW + DAY)) == sorted(
        unit[0] for number, unit in it.truth.units.items() if number % 2
    )
    it.well("verify", now=NOW + DAY)


def test_a_run_locks_each_file_once(cloud: Store, scene: MakeScene) -> None:
    it, there = scene(cloud, LOCK + LIVE), container_of(cloud)
    it.well()
    assert it.toll() == (48, 0, 0)
    count = check_locks(there)
    assert count > 3
    it.finish()
    assert check_locks(there) == count
    it.check_restores()


@pytest.mark.parametrize("encryption", ["", ENCRYPTED], ids=["plain", "encrypted"])
def test_files_are_locked_in_a_copy_there_as_well(
    cloud: Store, file_store: Store, scene: MakeScene, encryption: str
) -> None:
    """Also those that are put there later: by `copy` and by `repair`."""
    it, there = scene(file_store, encryption + copy_in(cloud, LOCK) + LIVE), container_of(cloud)
    it.well()
    count = check_locks(there)
    assert count > 3 and contents(there) == contents(files_of(file_store))
    lost = next(name for name in there.names() if "/data/" in name)
    there.remove(lost)
    assert it.well("repair", now=NOW + DAY)["repaired"] == 1
    found = there.lock_of(lost)
    assert found is not None and found[1] == UNTIL + DAY
    another = copy_in(cloud, LOCK).replace(cloud.url, f"{cloud.url}3").replace("second", "third")
    it.text = it.text.replace("[policies.it]", f"{another}[policies.it]", 1)
    it.write_config()
    it.well("copy", now=NOW + DAY)
    third = container_of(cloud.model_copy(update={"url": f"{cloud.url}3"}))
    assert check_locks(third, UNTIL + DAY) == count


@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_process_killed_before_it_has_read_a_lock_back(cloud: Store, scene: MakeScene, at: int) -> None:
    """There is no moment in which a file lies there without its lock: so the next run finds all locked."""
    it, there = scene(cloud, LOCK + LIVE), container_of(cloud)
    function = "bucketwise.archivers.stores.clouds.CloudStore._check_lock"
    ran = it.run(meddle=hook(signalling={"number": signal.SIGKILL, "function": function, "at": at}))
    assert ran.code == -signal.SIGKILL
    assert check_locks(there) == at
    it.finish()
    assert it.toll() == (48, 0, 0)
    check_locks(there)
    it.check_restores()


FAULTS: dict[str, tuple[Any, str]] = {
    # what goes wrong: and what is said
    "no right": (lambda: Refused(locks, None, 403, "AccessDenied"), "To lock files: .*(Retention|SuperUser)"),
    "no locks": (lambda: Refused(locks, None, 400, "InvalidArgument"), "If the (bucket|container) has no "),
    "ignored": (lambda: LocksIgnored(locks, None), "and is not locked"),
    "not seen": (lambda: Refused(reads_lock, None, 403, ""), "look at the lock of .*Grant"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_deleted_where_files_are_not_locked(cloud: Store, scene: MakeScene, fault: str) -> None:
    it = scene(cloud, LOCK + LIVE)
    make, words = FAULTS[fault]
    before = it.truth.raw("it")
    broken: Fault = make()
    with s3_proxy(str(cloud.endpoint_url)) as proxy:
        proxy.fault = broken
        it.write_config(endpoint_url=proxy.endpoint_url + urlpath(cloud))
        ran = it.run()
    assert broken.struck and ran.code == 1 and it.truth.raw("it") == before
    assert re.search(words, ran.err), ran
    it.write_config()
    it.finish()
    check_locks(container_of(cloud))


def urlpath(cloud: Store) -> str:
    return "/" + "/".join(str(cloud.endpoint_url).split("/")[3:])
