"""An S3 server that stumbles, refuses, loses replies and damages bytes, met by the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pymongo.database import Database

from bucketwise.config.tables import Store
from tests.faults import aftermath
from tests.faults.meddling import hook
from tests.faults.s3_proxy import (
    BitFlippedInDownload,
    BitFlippedInUpload,
    BodyCutShort,
    ConditionIgnored,
    Fault,
    Matches,
    Refused,
    RefusedThoughDone,
    ReplyLost,
    Request,
    RequestLost,
    RivalComesFirst,
    S3Proxy,
    Silent,
    UploadCutShort,
    s3_proxy,
)
from tests.faults.scene import START, Scene
from tests.faults.tally import Tally
from tests.jobs.command import CommandLine, Ran
from tests.tiers import tier

GROUPS = {"s3": "S3: ", "gs": "Google: ", "az": "Azure: "}
TRIES = 5  # of one request
RIVAL = b'{"commit": "a rival", "parts": []}'


def of(*, put: str | None = None, get: str | None = None) -> Matches:
    """Puts or gets whose key has this in it."""
    return lambda it: (
        (put is not None and it.is_put and put in it.key) or (get is not None and it.is_get and get in it.key)
    )


def listed(request: Request) -> bool:
    return request.is_list


def deleted(request: Request) -> bool:
    return request.is_delete


def anything(request: Request) -> bool:  # noqa: ARG001
    return True


PART, MANIFEST, GOT_PART = of(put="/data/"), of(put="/manifests/"), of(get="/data/")
FAULTS: dict[str, tuple[int, Callable[[], Fault], str]] = {
    # name: the exit code, the fault of an archive run, and what the message says
    "500 once": (0, lambda: Refused(PART, 1), ""),
    "500 all the time": (1, lambda: Refused(PART, None), "InternalError.*safe to run again"),
    "503 slow down, four times": (0, lambda: Refused(PART, 4, 503, "SlowDown"), ""),
    "503 slow down all the time": (1, lambda: Refused(anything, None, 503, "SlowDown"), "fewer requests"),
    "reset once": (0, lambda: RequestLost(PART, 1), ""),
    "reset all the time": (1, lambda: RequestLost(PART, None), "safe to run again"),
    "no answer once": (0, lambda: Silent(PART, 1), ""),
    "no answer at all": (1, lambda: Silent(MANIFEST, None), "may come. It is safe to run again"),
    "upload cut short once": (5, lambda: UploadCutShort(PART, 1), "Nothing was deleted|differs|checksum"),
    "download cut short once": (0, lambda: BodyCutShort(GOT_PART, 1), ""),
    "download cut short all the time": (1, lambda: BodyCutShort(GOT_PART, None), "safe to run again"),
    "a bit of an upload": (5, lambda: BitFlippedInUpload(PART, 1), "checksum|SHA-256"),
    "a bit of a manifest": (0, lambda: BitFlippedInUpload(MANIFEST, 1), ""),
    "a bit of a download": (0, lambda: BitFlippedInDownload(GOT_PART, 1), ""),
    "bits of all downloads": (5, lambda: BitFlippedInDownload(GOT_PART, None), "checksum|SHA-256"),
    "a part's reply lost": (0, lambda: ReplyLost(PART, 1), ""),
    "a manifest's reply lost": (0, lambda: ReplyLost(MANIFEST, 1), ""),
    "all replies to puts lost": (0, lambda: ReplyLost(lambda it: it.is_put, None), ""),
    "all replies lost": (1, lambda: ReplyLost(anything, None), "safe to run again"),
    "409 conflict": (1, lambda: Refused(MANIFEST, 1, 409, "ConditionalRequestConflict"), "Conditional"),
    "412 for what is our own": (0, lambda: RefusedThoughDone(MANIFEST, 1), ""),
    "412 for what is another's": (5, lambda: RivalComesFirst(MANIFEST, data=RIVAL), "remove that file"),
    "conditions ignored": (0, lambda: ConditionIgnored(lambda it: it.is_put, None), ""),
    "403 on put": (1, lambda: Refused(PART, None, 403, "AccessDenied"), "Grant these credentials"),
    "403 on get": (1, lambda: Refused(GOT_PART, None, 403, "AccessDenied"), "Grant these credentials"),
    "403 on list": (1, lambda: Refused(listed, None, 403, "AccessDenied"), "Grant these credentials"),
    "expired credentials": (1, lambda: Refused(MANIFEST, None, 400, "ExpiredToken"), "new credentials"),
    "no room": (1, lambda: Refused(PART, None, 507, "InsufficientStorage"), "InsufficientStorage"),
}


@dataclass
class Behind:
    """A scene whose command line sees the store through a proxy, while `faulty` runs."""

    scene: Scene
    proxy: S3Proxy
    waits: Path

    @property
    def group(self) -> str:
        """What its faults are counted as."""
        return GROUPS[urlsplit(self.scene.store.url).scheme]

    def faulty(self, verb: str, fault: Fault) -> Ran:
        """The client's waits are noted, and not waited."""
        self.proxy.fault = fault
        self.proxy.requests.clear()
        path = urlsplit(str(self.scene.store.endpoint_url)).path
        self.scene.write_config(endpoint_url=self.proxy.endpoint_url + path)
        meddle = hook(waits_noted={"file": str(self.waits)}, store_timeout={"seconds": fault.patience})
        ran = self.scene.run(verb, meddle=meddle)
        self.scene.write_config()
        assert fault.struck, "the fault never struck"
        self.check_tries()
        return ran

    def check_tries(self) -> None:
        """No request is tried more than five times in a row, and each wait is at most twice the last one's
        bound: 1 s, 2 s, 4 s, 8 s."""
        waits = [float(line) for line in self.waits.read_text().split()] if self.waits.exists() else []
        assert all(0 <= wait <= 2 ** (TRIES - 2) for wait in waits), waits
        run, last = 0, ("", "")
        for request in self.proxy.requests:
            this = (request.method, request.target)
            run = run + 1 if this == last else 1
            assert run <= 2 * TRIES, this  # a put, and in the end a look at whether it is there
            last = this


@pytest.fixture
def behind(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: Database[Any],
    mongodb_uri: str,
    bucketwise: CommandLine,
) -> Iterator[Behind]:
    store: Store = request.getfixturevalue(f"{request.param}_store")
    scene, _ = aftermath.prepared("offline", tmp_path, database, mongodb_uri, store, bucketwise)
    with s3_proxy(str(store.endpoint_url)) as proxy:
        yield Behind(scene, proxy, tmp_path / "waits")


on_moto = pytest.mark.parametrize("behind", ["moto"], indirect=True)


#: Each is tried on the store and on an archive run besides; of these, one that is over, one that is not, and
#: one that a person has to look into, in `make test`.
OF_AZURE = {
    "503 slow down, four times",
    "no answer once",
    "a manifest's reply lost",
    "all replies lost",
    "no room",
}
FIRST = {"503 slow down, four times", "all replies lost", "412 for what is another's"}


def _cases() -> list[Any]:
    """rclone's server only in the runs of hours; it knows no conditions. Azure's signatures keep most faults
    from being made there, and what its store does is what Google's does."""
    found = []
    for name in FAULTS:
        marks = tier(is_first=name in FIRST, is_proof=True)
        found.append(pytest.param("moto", name, id=f"moto: {name}", marks=marks))
        if "condition" not in name and "412" not in name:
            found.append(pytest.param("rclone", name, id=f"rclone: {name}", marks=pytest.mark.soak))
        if name != "conditions ignored":
            found.append(pytest.param("google", name, id=f"google: {name}", marks=pytest.mark.proof))
        if name in OF_AZURE:
            found.append(pytest.param("azurite", name, id=f"azurite: {name}", marks=pytest.mark.proof))
    return found


@pytest.mark.proof
@pytest.mark.parametrize(("behind", "fault"), _cases(), indirect=["behind"])
def test_an_archive_run(behind: Behind, tally: Tally, fault: str) -> None:
    """It succeeds, or says why not; tries are bounded; nothing is cleaned up on a guess."""
    code, make, words = FAULTS[fault]
    ran = behind.faulty("archive", make())
    assert behind.proxy.count(deleted) == 0, "nothing was there that could be known to be of no use"
    if fault in ("500 all the time", "503 slow down all the time"):
        assert behind.waits.exists(), "it does not back off"
    if fault == "412 for what is another's":
        left = [name for name in behind.scene.truth.files.names() if "/manifests/" in name]
        assert [behind.scene.truth.files.read(name) for name in left] == [RIVAL]
        assert behind.scene.toll()[1:] == (0, 0)
        for name in left:
            behind.scene.truth.files.remove(name)  # as the message tells a person to
    message = aftermath.check(tally, behind.group + "archive", fault, behind.scene, ran, codes=[code])
    assert re.search(words, message), message


@pytest.mark.proof
@on_moto
def test_credentials_expire_in_the_middle_of_a_commit(behind: Behind, tally: Tally) -> None:
    """From its second file on nothing is allowed."""
    expired: list[str] = []

    def second_file_and_later(request: Request) -> bool:
        expired.extend(["now"] * (request.is_put and "/meta/buckets/" in request.key))
        return bool(expired)

    ran = behind.faulty("archive", Refused(second_file_and_later, None, 400, "ExpiredToken"))
    names = behind.scene.truth.files.names()
    assert [name for name in names if "/data/" in name]
    assert [name for name in names if "/meta/buckets/" in name] == []
    message = aftermath.check(
        tally, behind.group + "archive", "expired amid a commit", behind.scene, ran, codes=[1]
    )
    assert "new credentials" in message


@pytest.mark.proof
@on_moto
def test_what_a_crash_left_may_not_be_deleted(behind: Behind, tally: Tally) -> None:
    """403 on delete: it stays, the run says so, and goes no further."""
    scene = behind.scene
    behind.faulty("archive", Refused(MANIFEST, None))
    left = [name for name in scene.truth.files.names() if "/data/" in name]
    assert left
    ran = behind.faulty("archive", Refused(deleted, None, 403, "AccessDenied"))
    assert [name for name in scene.truth.files.names() if "/data/" in name] == left
    message = aftermath.check(tally, behind.group + "archive", "403 on delete", scene, ran, codes=[1])
    assert "Grant these credentials that right" in message


ROLL_UP_FAULTS: dict[str, tuple[int, Callable[[], Fault], str]] = {
    "bits of all downloads": (5, lambda: BitFlippedInDownload(GOT_PART, None), "checksum|SHA-256"),
    "500 once": (0, lambda: Refused(anything, 1), ""),
    "503 slow down all the time": (1, lambda: Refused(GOT_PART, None, 503, "SlowDown"), "fewer requests"),
    "reset all the time": (1, lambda: RequestLost(GOT_PART, None), "safe to run again"),
    "no answer once": (0, lambda: Silent(GOT_PART, 1), ""),
    "download cut short all the time": (1, lambda: BodyCutShort(GOT_PART, None), "safe to run again"),
    "403 on get": (1, lambda: Refused(GOT_PART, None, 403, "AccessDenied"), "Grant these credentials"),
    "403 on list": (1, lambda: Refused(listed, None, 403, "AccessDenied"), "Grant these credentials"),
    "expired credentials": (1, lambda: Refused(GOT_PART, None, 400, "ExpiredToken"), "new credentials"),
}


@pytest.mark.proof
@pytest.mark.parametrize("behind", ["moto", "google"], indirect=True)
@pytest.mark.parametrize("fault", ROLL_UP_FAULTS)
def test_a_roll_up_that_reads_what_is_archived(behind: Behind, tally: Tally, fault: str) -> None:
    """A late reading in an archived window: its summary is not written from half of the readings."""
    scene = behind.scene
    scene.well()
    scene.insert(100, START + timedelta(minutes=30), 3)
    hourly = sorted(scene.truth.raw("it_hourly"))
    code, make, words = ROLL_UP_FAULTS[fault]
    ran = behind.faulty("rollup", make())
    assert (sorted(scene.truth.raw("it_hourly")) == hourly) == (code != 0)
    message = aftermath.check(tally, behind.group + "roll-up", fault, scene, ran, codes=[code])
    assert re.search(words, message), message
