"""An archive run whose store loses requests, replies, bits and rights: it succeeds, or harms nothing."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from pymongo.database import Database

from bucketwise.archivers.format.names import manifest_key
from bucketwise.archivers.stores.base import RetryLimits
from bucketwise.archivers.stores.s3 import S3Store
from bucketwise.config.errors import BucketwiseError, HaltedError
from bucketwise.config.tables import Store
from tests.archivers.builders import raw_documents, slots
from tests.archivers.harness import Cycle, whole
from tests.archivers.moving.test_crash import few
from tests.faults.s3_proxy import (
    BitFlippedInDownload,
    BitFlippedInUpload,
    BodyCutShort,
    ConditionIgnored,
    Fault,
    Refused,
    ReplyLost,
    Request,
    RequestLost,
    RivalComesFirst,
    s3_proxy,
)
from tests.tiers import tier

Document = dict[str, Any]


def manifest(request: Request) -> bool:
    return request.is_put and "/manifests/" in request.target


def part(request: Request) -> bool:
    return request.is_put and "/data/" in request.target


def put(request: Request) -> bool:
    return request.is_put


def fetched(request: Request) -> bool:
    return request.is_get


def listed(request: Request) -> bool:
    return request.is_list


FAULTS: dict[str, Callable[[], Fault]] = {
    "a manifest's reply lost": lambda: ReplyLost(manifest),
    "all manifests' replies lost": lambda: ReplyLost(manifest, times=None),
    "a manifest lost": lambda: RequestLost(manifest),
    "a rival manifest": lambda: RivalComesFirst(manifest),
    "no manifest arrives": lambda: RequestLost(manifest, times=None),
    "a bit of a part": lambda: BitFlippedInUpload(part, times=None),
    "a bit of the manifest once": lambda: BitFlippedInUpload(manifest),
    "a bit of the manifest": lambda: BitFlippedInUpload(manifest, times=None),
    "bits on the way back": lambda: BitFlippedInDownload(fetched, times=None),
    "replies cut short": lambda: BodyCutShort(fetched, times=None),
    "replies cut short once": lambda: BodyCutShort(fetched),
    "conditions ignored": lambda: ConditionIgnored(put, times=None),
    "no room": lambda: Refused(part, times=None, status=507, code="InsufficientStorage"),
    "no right to read": lambda: Refused(fetched, times=None, status=403, code="AccessDenied"),
    "no right to list": lambda: Refused(listed, times=None, status=403, code="AccessDenied"),
    "all replies lost": lambda: ReplyLost(put, times=None),
}
HARMLESS = {
    "a manifest's reply lost", "all manifests' replies lost", "a manifest lost", "a bit of the manifest once",
    "replies cut short once", "conditions ignored", "all replies lost",
}  # fmt: skip
#: One of each end: it goes on, it fails, and it is damage to all appearance.
FIRST = {"a manifest's reply lost", "no room", "a rival manifest", "a bit of a part", "conditions ignored"}
#: What rclone answers otherwise; all else is the same there.
ON_RCLONE = {"a rival manifest", "a manifest lost"}
MOTO_ONLY = {"bits on the way back", "replies cut short", "no room", "no right to list"}


def _tries() -> list[Any]:
    return [
        pytest.param(
            kind,
            name,
            id=f"{kind}: {name}",
            marks=tier(
                is_first=kind == "moto" and name in FIRST, is_proof=kind == "moto" or name in ON_RCLONE
            ),
        )
        for name in FAULTS
        for kind in (("moto",) if name in MOTO_ONLY else ("moto", "rclone"))
    ]


@pytest.mark.proof
@pytest.mark.parametrize(("kind", "fault"), _tries())
def test_a_run_through_a_bad_network(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    database: Database[Document],
    kind: str,
    fault: str,
) -> None:
    settings: Store = request.getfixturevalue(f"{kind}_store")
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
    cycle = Cycle(database, few(slots("minute")), settings).load()
    url = urlsplit(settings.url)
    with s3_proxy(str(settings.endpoint_url)) as proxy:
        store = S3Store(
            url.netloc,
            url.path.strip("/"),
            endpoint_url=proxy.endpoint_url,
            region=settings.region,
            limits=RetryLimits(2, 20),
        )
        proxy.fault = FAULTS[fault]()
        try:
            cycle.run(store=store)
        except BucketwiseError as error:
            assert cycle.live() == sorted(cycle.case.documents)
            assert error.exit_code == (5 if "bit" in fault or "rival" in fault else 1)
        else:
            assert fault in HARMLESS or (kind, fault) == ("rclone", "a rival manifest")
            assert cycle.live() == []
        assert proxy.fault.struck
    archive = cycle.as_stored()
    if not cycle.live():
        held = [whole(archive, archive.manifest(commit)) for commit in archive.commits()]
        assert sorted(document for batch in held for document in batch.main) == sorted(cycle.case.documents)
    if cycle.live() and fault in ("a rival manifest", "a bit of the manifest"):
        # damage, to all appearance: nothing goes on until a person has removed it
        with pytest.raises(HaltedError):
            cycle.run()
        (commit,) = archive.commits()
        cycle.store.delete([manifest_key(cycle.policy.name, commit.sequence, commit.name)])
    cycle.run()
    cycle.run()
    assert cycle.live() == []
    assert list(cycle.as_stored().unlisted()) == []
    before = cycle.listing()
    cycle.run()
    assert cycle.listing() == before
    cycle.restore("back")
    assert raw_documents(database, "back") == sorted(cycle.case.documents)
