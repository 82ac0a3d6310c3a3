"""The versions of a bucket that an archive holds, in their order.

An upsert of a late reading, under an `_id` that the application makes, creates a new document once the bucket
is gone. It is archived as well: a later version of the bucket."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pymongo.database import Database

from bucketwise.archivers.format.archive import OfflineArchive, SectionBuckets
from bucketwise.archivers.format.manifest import First, Manifest, origin_at
from bucketwise.archivers.format.series import selector_of
from bucketwise.archivers.records.receipts import MERGING, Receipts
from bucketwise.archivers.versions.kept import KeptVersion, KeptVersions, counting
from bucketwise.archivers.versions.superseded import RemovedBuckets, Superseded, SupersededFile
from bucketwise.archivers.writes import archived_source, id_names, same_id
from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS, as_ms
from bucketwise.buckets.models import model_of
from bucketwise.buckets.versions.merge import merge
from bucketwise.buckets.versions.readings import Held, lacks, readings_by_document
from bucketwise.config.policies import Policy

Document = dict[str, Any]
DaySpan = tuple[int, int]  # first and last, since 1970
Test = Callable[[Manifest], list[bool]]  # of each section of a commit
#: Steps, and merges, after which the search for what some versions give ends.
_MOST_STEPS, _MOST_MERGED = 4096, 64


class Version(NamedTuple):
    """A bucket as it was archived once."""

    bucket: Batch  # of one
    policy: Policy  # the policy then, as far as decoding needs it
    commit: Manifest | None = None  # in an offline archive: the commit that holds it
    position: int = 0  # in its commit
    is_superseded: bool = False  # it no longer counts


class History(NamedTuple):
    """The versions of one bucket, the oldest first. `merged`: what an online archive holds in their place."""

    versions: list[Version]
    merged: Batch | None = None

    @property
    def last(self) -> Version:
        """Returns the newest version."""
        return self.versions[-1]

    @property
    def counting(self) -> History:
        """Returns the history without superseded versions, or unchanged where all are superseded."""
        some = [it for it in self.versions if not it.is_superseded]
        return self._replace(versions=some or self.versions)


class Histories(Protocol):
    """Finds histories of buckets in one of the archives."""

    def of(self, buckets: Batch, policy: Policy, existing: Iterable[bytes]) -> dict[bytes, History]:
        """Returns the histories of these buckets by `same_id`. `policy`: the one under which they were
        archived; `existing`: documents that may hold other versions of them."""

    def merged(self, buckets: Batch, policy: Policy) -> list[int]:
        """Returns the indices of buckets of which the archive is known to hold several versions."""

    def split(self, buckets: Batch, policy: Policy) -> list[int]:
        """Returns the indices of buckets of which a part of the archive may not hold all versions."""


class _Versions(NamedTuple):
    """A place of versions: a commit, or a file of versions that have left one."""

    name: str
    manifest: Manifest
    load: Callable[[list[bool]], Iterable[RemovedBuckets | SectionBuckets]]  # of sections; a file: where any
    is_superseded: bool = False

    def touches(self, days: set[DaySpan]) -> bool:
        low, high = as_ms(self.manifest.first) // DAY_MS, as_ms(self.manifest.last) // DAY_MS
        return any(low <= last and high >= first for first, last in days)


def _whole_span(days: set[DaySpan]) -> tuple[int, int]:
    """Returns the span from the start of the first of these days to the end of the last, in milliseconds."""
    return min(first for first, _ in days) * DAY_MS, (max(last for _, last in days) + 1) * DAY_MS


def _is_contained(version: Version, place: int, among: Sequence[Version]) -> bool:
    """Returns whether a superseded version holds nothing beyond a later version, or one that counts."""
    return version.is_superseded and any(
        not lacks(other.policy, version.bucket, other.bucket)[0]
        for i, other in enumerate(among)
        if i > place or not other.is_superseded
    )


def _all(manifest: Manifest) -> list[bool]:
    return [True] * len(manifest.sections)


def _may_merge_with(buckets: Batch, policy: Policy) -> Test:
    """Returns a test for sections that may hold versions to merge with these buckets: of the same series."""
    decoded = BucketSet(buckets, policy).decoded
    if policy.sample_series or decoded.quarantined:
        return _all
    selectors = [selector_of(one, policy.series_names) for one in decoded.columns.series]
    return lambda manifest: manifest.sections_with(policy, selectors)


class OfflineHistories:
    """Finds histories in an offline archive, among the commits of the days that a bucket touches. The chain
    says which of two commits is older."""

    def __init__(self, archive: OfflineArchive) -> None:
        self._archive = archive
        self._superseded = Superseded(archive)
        self._names: dict[str, NDArray[np.int64]] = {}  # of superseded versions by file: 8 bytes each

    def of(self, buckets: Batch, policy: Policy, existing: Iterable[bytes]) -> dict[bytes, History]:
        """Returns all versions in commits of the days that these documents or their versions touch."""
        return self._of(buckets, policy, existing, _all)

    def _of(
        self, buckets: Batch, policy: Policy, existing: Iterable[bytes], may_hold: Test
    ) -> dict[bytes, History]:
        found: dict[bytes, list[Version]] = {same_id(raw_id): [] for raw_id in buckets.main.raw_ids}
        given = [*buckets.main, *existing]
        days = self._days(self._archive.policy, given) | self._days(policy, given)
        read: set[str] = set()
        while more := [it for it in self._around(days) if it.name not in read]:
            read |= {it.name for it in more}
            for place in more:
                for version in self._versions(place, may_hold(place.manifest), found.keys()):
                    found[same_id(version.bucket.main.raw_id(0))].append(version)
                    days |= self._days(version.policy, version.bucket.main)
        return {name: self._history(versions) for name, versions in found.items()}

    def _history(self, versions: list[Version]) -> History:
        """Returns versions in order, superseded ones once each, and none that a later or counting one
        contains."""
        known = {it.bucket.unit(0) for it in versions if not it.is_superseded}
        some = {it.bucket.unit(0): it for it in versions if it.is_superseded}
        others = [it for unit, it in some.items() if unit not in known]
        found = sorted([it for it in versions if not it.is_superseded] + others, key=self._age)
        return History([it for i, it in enumerate(found) if not _is_contained(it, i, found)])

    def _versions(self, place: _Versions, which: list[bool], wanted: Collection[bytes]) -> Iterator[Version]:
        policy = place.manifest.archived_policy
        for held in place.load(which):
            for i, raw_id in enumerate(held.batch.main.raw_ids):
                if same_id(raw_id) in wanted:
                    at, bucket = int(held.positions[i]), one_of(held.batch, i)
                    yield Version(bucket, policy, place.manifest, at, place.is_superseded)

    def merged(self, buckets: Batch, policy: Policy) -> list[int]:
        """Returns the indices of buckets with superseded versions. Others are found when two of these
        meet."""
        mine = id_names(buckets)
        found = [self._named(it) for it in self._superseded_around(self._days(policy, buckets.main))]
        some = np.flatnonzero(np.isin(mine, np.concatenate([mine[:0], *found]))).tolist()
        if not some:
            return []
        return [some[i] for i in self.split(buckets.take(some), policy)]

    def split(self, buckets: Batch, policy: Policy) -> list[int]:
        """Returns the indices of the buckets of which there are several versions."""
        found = self._of(buckets, policy, [], _may_merge_with(buckets, policy))
        names = [same_id(raw_id) for raw_id in buckets.main.raw_ids]
        return [i for i, name in enumerate(names) if len(found[name].versions) > 1]

    def _days(self, policy: Policy, documents: Iterable[bytes]) -> set[DaySpan]:
        """Returns the first and the last UTC day of each, as the policy reads it."""
        spans = map(model_of(policy).covered_span, documents)
        return {(span[0] // DAY_MS, (span[1] - 1) // DAY_MS) for span in spans if span is not None}

    def _around(self, days: set[DaySpan]) -> list[_Versions]:
        manifests = self._archive.manifests(*_whole_span(days)) if days else []
        there = [_Versions(it.commit, it, partial(self._archive.sections, it)) for it in manifests]
        return [it for it in there if it.touches(days)] + self._superseded_around(days)

    def superseded(self, batch: Batch, policy: Policy) -> list[int]:
        """Returns the indices of superseded buckets that are versions of their own."""
        found = self.of(batch, policy, [])
        units = {
            name: {it.bucket.unit(0) for it in history.versions if it.is_superseded}
            for name, history in found.items()
        }
        return [i for i, raw_id in enumerate(batch.main.raw_ids) if batch.unit(i) in units[same_id(raw_id)]]

    def _named(self, place: _Versions) -> NDArray[np.int64]:
        """Returns the hashes of the `_id`s in a file of superseded versions, which is read once for them."""
        if place.name not in self._names:
            self._names[place.name] = np.concatenate([id_names(it.batch) for it in place.load([True])])
        return self._names[place.name]

    @cached_property
    def _removed(self) -> list[_Versions]:
        """Returns the files of superseded versions, listed once."""
        found = self._superseded.around(FIRST_MS, LAST_MS)
        return [_Versions(file.key, it, partial(self._read, file), is_superseded=True) for file, it in found]

    def _read(self, file: SupersededFile, which: list[bool]) -> list[RemovedBuckets]:
        return [self._superseded.read(file)] if any(which) else []

    def _superseded_around(self, days: set[DaySpan]) -> list[_Versions]:
        return [it for it in self._removed if it.touches(days)] if days else []

    def _age(self, version: Version) -> tuple[First, int]:
        assert version.commit is not None
        return origin_at(version.commit, version.position), version.position


class OnlineHistories:
    """Finds histories in an online archive, which holds buckets merged, and their versions apart."""

    def __init__(self, database: Database[Document], policy: Policy) -> None:
        self._policy, self._archived = policy, archived_source(database, policy)
        self._kept = KeptVersions(database, policy)
        self._receipts = Receipts(database, policy.identity)

    def of(self, buckets: Batch, policy: Policy, existing: Iterable[bytes]) -> dict[bytes, History]:
        """Returns the histories of buckets, by `_id`."""
        del policy, existing  # all is found by `_id`
        ids = buckets.main.ids
        versions = self._versions(ids)
        return {
            name: self._history(versions.get(name, []), merged)
            for found in self._archived.by_ids(ids)
            for i in range(len(found))
            for name, merged in [(same_id(found.main.raw_id(i)), one_of(found, i))]
        }

    def _history(self, versions: list[Version], merged: Batch) -> History:
        is_alone = all(it.is_superseded for it in versions)
        return History([*versions, Version(merged, self._policy)] if is_alone else versions, merged)

    def _versions(self, ids: list[Any]) -> dict[bytes, list[Version]]:
        """Returns versions by `_id`, without those that are copied and not merged yet."""
        waiting = {same_id(raw): name for raw, (name, _) in self._receipts.open(ids, MERGING).items()}
        found = self._kept.of(ids).items()
        settled = {name: [it for it in some if it.by != waiting.get(name)] for name, some in found}
        return {name: self._in_order(some) for name, some in settled.items() if some}

    def _in_order(self, found: list[KeptVersion]) -> list[Version]:
        old = len(found) - len(counting(found))
        return [Version(it.bucket, self._policy, is_superseded=i < old) for i, it in enumerate(found)]

    def split(self, buckets: Batch, policy: Policy) -> list[int]:
        """Returns none: the archive holds versions merged."""
        del buckets, policy  # it holds them merged
        return []

    def merged(self, buckets: Batch, policy: Policy) -> list[int]:
        """Returns the indices of the buckets that are merged from several versions."""
        versions = self._versions(buckets.main.ids)
        return [i for i, raw in enumerate(buckets.main.raw_ids) if versions.get(same_id(raw))]


def one_of(batch: Batch, index: int) -> Batch:
    """Returns one bucket, as a batch that does not share memory with the others."""
    return batch.take([index])


class Fold(NamedTuple):
    """One bucket's versions, merged one after the other."""

    stages: list[Batch]  # of the first version, of the first two, and so on
    fault: str | None  # why there are no more


def folds(histories: Sequence[History]) -> list[Fold]:
    """Merges the versions of each of these buckets."""
    versions = [history.versions for history in histories]
    stages = [[found[0].bucket] for found in versions]
    faults: dict[int, str] = {}
    for level in range(1, max(map(len, versions), default=0)):
        pending = [i for i, found in enumerate(versions) if len(found) > level and i not in faults]
        for policy in dict.fromkeys(versions[i][-1].policy for i in pending):
            mine = [i for i in pending if versions[i][-1].policy == policy]
            newer = Batch.concat([versions[i][level].bucket for i in mine])
            merged = merge(policy, Batch.concat([stages[i][-1] for i in mine]), newer)
            for place, i in enumerate(mine):
                if place in merged.faults:
                    faults[i] = merged.faults[place]
                else:
                    stages[i].append(one_of(merged.batch, place))
    return [Fold(found, faults.get(i)) for i, found in enumerate(stages)]


def some_merged(history: History, existing: bytes) -> Iterator[Batch]:
    """Yields merges of some versions that hold what a document holds: a restore may have put one there."""
    policy = history.last.policy
    there = Docs.of([existing, *(it.bucket.main[0] for it in history.versions)])
    whole, *parts = readings_by_document(policy, there)
    for chosen in itertools.islice(_choices(parts, whole), _MOST_MERGED):
        (fold,) = folds([History([history.versions[i] for i in chosen])])
        if fold.fault is None:
            yield fold.stages[-1]


def _choices(parts: Sequence[Held], whole: Held) -> Iterator[tuple[int, ...]]:
    """Yields the sets of parts that, each merged over those before it, give the whole; the largest first."""
    reach = list(itertools.accumulate((part.keys() for part in parts), lambda some, more: some | more))
    waiting: list[tuple[int, frozenset[Any], tuple[int, ...]]] = [(len(parts) - 1, frozenset(), ())]
    for _ in range(_MOST_STEPS):
        if not waiting:
            return
        at, seen, chosen = waiting.pop()
        if at < 0 and seen == whole.keys() and chosen:
            yield chosen
        elif at >= 0 and whole.keys() <= seen | reach[at]:
            fresh = parts[at].keys() - seen
            waiting.append((at - 1, seen, chosen))
            if all(whole.get(it) == parts[at][it] for it in fresh):
                waiting.append((at - 1, seen | fresh, (at, *chosen)))


def bucket_sets_of(versions: Sequence[Version]) -> Iterator[tuple[list[int], BucketSet]]:
    """Yields the versions of each policy as a bucket set, with their indices."""
    for policy in dict.fromkeys(version.policy for version in versions):
        mine = [i for i, version in enumerate(versions) if version.policy == policy]
        yield mine, BucketSet(Batch.concat([versions[i].bucket for i in mine]), policy)


def readings_of(versions: Sequence[Version]) -> int:
    """Returns how many readings they hold."""
    return sum(buckets.readings for _, buckets in bucket_sets_of(versions))
