"""The versions of a bucket that an archive holds, in their order.

Who upserts under `_id`s of his own making writes a late reading into a new document, once the bucket is gone.
It is archived as well: a later version of the bucket.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from pymongo.database import Database

from archivers.format.archive import OfflineArchive
from archivers.format.manifest import Manifest, links, read_link
from archivers.records.receipts import MERGING, Receipts
from archivers.stores.base import NotFound
from archivers.versions.kept import KeptVersions
from archivers.writes.delete import same_id
from buckets.bson.raw import Batch
from buckets.bson.types import DOCUMENT, INT32, elements
from buckets.decoding.decode import Lot
from buckets.fields.times import DAY_MS, as_ms
from buckets.models.covered import told
from buckets.source import Source
from buckets.versions.merge import merge
from buckets.versions.overlay import Typed, document_of, number, text
from config.policies import Policy

Document = dict[str, Any]
Days = tuple[int, int]  # first and last, since 1970
#: Of so many versions each choice of some may have been merged once.
_MOST_TRIED = 6


class Version(NamedTuple):
    """A bucket as it was archived once."""

    bucket: Batch  # of one
    policy: Policy  # as it was then, as far as decoding needs it
    commit: Manifest | None = None  # of an offline archive: where it lies
    position: int = 0  # in its commit


class History(NamedTuple):
    """The versions of one bucket, the oldest first; and what the archive holds in their place."""

    versions: list[Version]
    merged: Batch | None = None

    @property
    def last(self) -> Version:
        return self.versions[-1]


class Histories(Protocol):
    """Finds them in one of the archives."""

    def of(self, buckets: Batch, standing: Iterable[bytes]) -> dict[bytes, History]:
        """Returns the histories of these buckets by `same_id`; `standing` are documents that may hold other
        versions of them."""

    def merged(self, buckets: Batch) -> list[int]:
        """Returns those of which the archive is known to hold several versions."""

    def parted(self, buckets: Batch) -> list[int]:
        """Returns those of which a part of the archive may not hold all versions."""


class OfflineHistories:
    """Commits lie in the order of time, and their age follows from the chain."""

    def __init__(self, archive: OfflineArchive) -> None:
        self._archive = archive
        self._commits = archive.commits()
        self._dropped: dict[str, Manifest] | None = None

    def of(self, buckets: Batch, standing: Iterable[bytes]) -> dict[bytes, History]:
        """All versions whose commits hold something of the days that these documents touch, or other versions
        of theirs."""
        found: dict[bytes, list[Version]] = {same_id(raw_id): [] for raw_id in buckets.main.raw_ids}
        days = self._days([*buckets.main, *standing])
        read: set[str] = set()
        while more := [it for it in self._around(days) if it.commit not in read]:
            for manifest in more:
                read.add(manifest.commit)
                for version in self._versions(manifest, found.keys()):
                    found[same_id(version.bucket.main.raw_id(0))].append(version)
                    days |= self._days(version.bucket.main)
        return {name: History(sorted(versions, key=self._age)) for name, versions in found.items()}

    def _versions(self, manifest: Manifest, wanted: Collection[bytes]) -> Iterator[Version]:
        batch = self._archive.load(manifest)
        for i, raw_id in enumerate(batch.main.raw_ids):
            if same_id(raw_id) in wanted:
                yield Version(one_of(batch, i), manifest.archived_policy, manifest, i)

    def merged(self, buckets: Batch) -> list[int]:
        del buckets  # nothing tells before they meet
        return []

    def parted(self, buckets: Batch) -> list[int]:
        found = self.of(buckets, [])
        names = [same_id(raw_id) for raw_id in buckets.main.raw_ids]
        return [i for i, name in enumerate(names) if len(found[name].versions) > 1]

    def _days(self, documents: Iterable[bytes]) -> set[Days]:
        """The first and the last UTC day of each."""
        spans = (told(self._archive.policy, it) for it in documents)
        return {(span[0] // DAY_MS, (span[1] - 1) // DAY_MS) for span in spans if span is not None}

    def _around(self, days: set[Days]) -> list[Manifest]:
        if not days:
            return []
        hull = min(first for first, _ in days) * DAY_MS, (max(last for _, last in days) + 1) * DAY_MS
        there = [
            (as_ms(it.first) // DAY_MS, as_ms(it.last) // DAY_MS, it)
            for it in self._archive.manifests(*hull, self._commits)
        ]
        return [it for low, high, it in there if any(low <= last and high >= first for first, last in days)]

    def _age(self, version: Version) -> tuple[int, int, int]:
        """When it was archived first: a commit that took over another's came later than these."""
        manifest = version.commit
        assert manifest is not None
        while manifest.replaces is not None:
            before = self._replaced(manifest.replaces)
            if before is None:
                break
            manifest = before
        return manifest.sequence, manifest.fence, version.position

    def _replaced(self, commit: str) -> Manifest | None:
        if self._dropped is None:
            store, policy = self._archive.store, self._archive.policy.name
            read = (read_link(store, policy, *link) for link in links(store, policy))
            self._dropped = {it.commit: it for it in read}
        if commit in self._dropped:
            return self._dropped[commit]
        try:
            return self._archive.manifest(commit)  # the exchange is yet to be finished
        except NotFound:
            return None


class OnlineHistories:
    """The archive holds a bucket's versions merged, and each beside."""

    def __init__(self, database: Database[Document], policy: Policy, archived: Source) -> None:
        self._policy, self._archived = policy, archived
        self._kept = KeptVersions(database, policy)
        self._receipts = Receipts(database, policy.name)

    def of(self, buckets: Batch, standing: Iterable[bytes]) -> dict[bytes, History]:
        del standing  # all is found by `_id`
        ids = buckets.main.ids
        versions = self._versions(ids)
        return {
            name: History(versions.get(name) or [Version(merged, self._policy)], merged)
            for found in self._archived.by_ids(ids)
            for i in range(len(found))
            for name, merged in [(same_id(found.main.raw_id(i)), one_of(found, i))]
        }

    def _versions(self, ids: list[Any]) -> dict[bytes, list[Version]]:
        """Without those that are copied, and not merged yet."""
        waiting = {same_id(raw): name for raw, (name, _) in self._receipts.open(ids, MERGING).items()}
        return {
            name: [Version(it.bucket, self._policy) for it in found if it.by != waiting.get(name)]
            for name, found in self._kept.of(ids).items()
        }

    def parted(self, buckets: Batch) -> list[int]:
        del buckets  # it holds them merged
        return []

    def merged(self, buckets: Batch) -> list[int]:
        versions = self._versions(buckets.main.ids)
        return [i for i, raw in enumerate(buckets.main.raw_ids) if len(versions.get(same_id(raw), ())) > 1]


def one_of(batch: Batch, index: int) -> Batch:
    """Returns one bucket, apart from the others' memory."""
    return batch.take(np.array([index], dtype=np.int64))


class Fold(NamedTuple):
    """One bucket's versions, laid one over the other."""

    stages: list[Batch]  # of the first version, of the first two, and so on
    fault: str | None  # why there are no more


def folds(histories: Sequence[History]) -> list[Fold]:
    """Returns each of these bucket's versions as one."""
    versions = [history.versions for history in histories]
    stages = [[found[0].bucket] for found in versions]
    faults: dict[int, str] = {}
    for level in range(1, max(map(len, versions), default=0)):
        going = [i for i, found in enumerate(versions) if len(found) > level and i not in faults]
        for policy in dict.fromkeys(versions[i][-1].policy for i in going):
            mine = [i for i in going if versions[i][-1].policy == policy]
            newer = Batch.concat([versions[i][level].bucket for i in mine])
            merged = merge(policy, Batch.concat([stages[i][-1] for i in mine]), newer)
            for place, i in enumerate(mine):
                if place in merged.faults:
                    faults[i] = merged.faults[place]
                else:
                    stages[i].append(one_of(merged.batch, place))
    return [Fold(found, faults.get(i)) for i, found in enumerate(stages)]


def some_merged(history: History) -> Iterator[Batch]:
    """Returns what some of a bucket's versions give: one that knew no others may have been restored."""
    versions = history.versions
    for count in range(2, len(versions) if len(versions) <= _MOST_TRIED else 0):
        chosen = [History(list(some)) for some in itertools.combinations(versions, count)]
        yield from (fold.stages[-1] for fold in folds(chosen) if fold.fault is None)


def lots_of(versions: Sequence[Version]) -> Iterator[tuple[list[int], Lot]]:
    """Returns those of each policy, and where they are among all."""
    for policy in dict.fromkeys(version.policy for version in versions):
        mine = [i for i, version in enumerate(versions) if version.policy == policy]
        yield mine, Lot(Batch.concat([versions[i].bucket for i in mine]), policy)


def readings_of(versions: Sequence[Version]) -> int:
    """Returns how many readings they hold."""
    return sum(lot.readings for _, lot in lots_of(versions))


def sha256_of(bucket: Batch) -> str:
    """Returns the SHA-256 of a bucket's bytes, with those of its overflow behind it."""
    return hashlib.sha256(bucket.unit(0)).hexdigest()


def set_aside(bucket: Batch, version: int) -> list[bytes]:
    """Returns the documents of an older version under `_id`s of their own: all else in them is as it was."""
    identity = bucket.main.raw_id(0)
    facts = {"version": number(INT32, float(version)), "sha256": text(sha256_of(bucket))}
    main = _renamed(bucket.main[0], {"_id": identity, **facts})
    extra = [
        _renamed(it, {"_id": bucket.extra.raw_id(i), "of": identity, **facts})
        for i, it in enumerate(bucket.extra)
    ]
    return [main, *extra]


def _renamed(document: bytes, identity: dict[str, Typed]) -> bytes:
    """The document with another `_id`, and not another bit changed."""
    for start, value, end in elements(document):
        if document[start + 1 : value] == b"_id\0":
            named = b"%c_id\0" % DOCUMENT + document_of(identity)
            body = document[4:start] + named + document[end:]
            return (len(body) + 4).to_bytes(4, "little") + body
    raise AssertionError("every archived document has an _id")
