"""Verify: every part is read again from where it lies and held against its manifest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pymongo.database import Database

from archivers.manifest import DamagedError, manifest_key, parse_commit
from archivers.offline import OfflineArchive
from archivers.receipts import Receipts
from archivers.stores.base import ObjectStore
from buckets.times import FIRST_MS, LAST_MS, as_ms
from config.policies import Policy


@dataclass(frozen=True)
class Bad:
    """A commit that is not what it was."""

    code: str  # "part-missing" or "part-differs"
    place: str  # the url of the file, or of the manifest
    message: str


@dataclass
class VerifyReport:
    parts: int = 0
    readings: int = 0
    bad: list[Bad] = field(default_factory=list)


def verify(
    database: Database[dict[str, Any]],
    policy: Policy,
    store: ObjectStore,
    *,
    since: datetime | None,
    until: datetime | None,
    check: Callable[[], None],
    progress: Callable[[str, int], None],
) -> VerifyReport:
    """Read every file of every commit that touches [since, until): size, SHA-256, page checksums, and that
    the documents rebuilt from them are those that were archived."""
    report = VerifyReport()
    archive = OfflineArchive(policy, store)
    start = FIRST_MS if since is None else as_ms(since)
    end = LAST_MS + 1 if until is None else as_ms(until)
    listed = {commit.name for commit in archive.commits()}
    for name in Receipts(database, policy.name).commits():
        commit = parse_commit(name)
        if name not in listed and (commit is None or commit.may_hold(start, end)):
            place = f"{store.url}/{manifest_key(policy.name, name)}"
            report.bad.append(Bad("part-missing", place, f"{place}: missing, though a receipt names it"))
    for commit in archive.commits(start, end):
        check()
        try:
            manifest = archive.manifest(commit.name)
            archive.load(manifest)
        except DamagedError as error:
            report.bad.append(Bad(error.code, error.place, str(error)))
            continue
        report.parts += len(manifest.parts)
        report.readings += manifest.readings
        progress("verified parts", len(manifest.parts))
    return report
