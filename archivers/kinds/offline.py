"""The offline archive, parts in a store: what it does, and what its manifests and receipts tell.

Only a commit's files tell which `_id`s it holds. So an `_id` is looked for in the commits of the days that it
may lie in; where these are not known, in all commits, if they are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bson.objectid import ObjectId
from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext, ArchiveReport
from bucketwise.archivers.expiring.held import held_by, known_longest, longest_held
from bucketwise.archivers.expiring.rule import ExpiryReport, RetentionRules
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import Manifest, Origin, encoded
from bucketwise.archivers.format.names import Commit
from bucketwise.archivers.kinds.evidence import (
    ArchivedRows,
    ArchivedState,
    ArchivedTotals,
    Copy,
    Event,
    ExpiresWith,
    Grid,
    HeldPart,
    Located,
    Searched,
    Span,
    Stored,
    StoredSpan,
    Tally,
    What,
    covering,
)
from bucketwise.archivers.records.heads import (
    check_all_present,
    check_heads,
    check_none_reappeared,
    last_checkpoint,
    link_of,
    read_heads,
)
from bucketwise.archivers.records.pins import CommitDays
from bucketwise.archivers.records.receipt_files import numbered_for
from bucketwise.archivers.records.receipts import Receipts, commit_of, live_of
from bucketwise.archivers.records.registry import Registry, check_own
from bucketwise.archivers.run import ArchiveRun
from bucketwise.archivers.versions.history import OfflineHistories, Version, one_of
from bucketwise.archivers.writes import may_cover, name_of, same_id
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.fields.selectors import Selector
from bucketwise.buckets.fields.times import DAY_MS, EVER, FIRST_MS, LAST_MS, TimeRange, as_date, as_ms
from bucketwise.buckets.models import model_of
from bucketwise.config.policies import Policy
from bucketwise.config.tables import Lake
from bucketwise.rollups.holds import Hold

if TYPE_CHECKING:
    from bucketwise.archivers.compact import CompactOptions, CompactReport
    from bucketwise.archivers.erasing.offline import OfflineSeries
    from bucketwise.archivers.kinds.drill import DrilledDay
    from bucketwise.archivers.lake.records import LakeDifference, LakeReport
    from bucketwise.archivers.moving.archive import ArchiveOptions
    from bucketwise.archivers.restoring.options import RestoreOptions
    from bucketwise.archivers.restoring.settle import RestoreReport
    from bucketwise.archivers.verifying.report import (
        HasTurn,
        IntactPiece,
        Piece,
        VerifiedRecords,
        VerifyReport,
    )

#: Commits that are read for an `_id` whose day is not known.
MOST_COMMITS = 32


def stored_by_records(receipts: Receipts, since_ms: int) -> Stored:
    """Returns what the records of commits say of an archive, which takes no store. `since_ms`: what reaches
    beyond it is told one by one."""
    gone = {"$divide": [{"$multiply": ["$documents_bytes", "$deleted"]}, {"$max": ["$buckets", 1]}]}
    sums = {"size": {"$sum": "$bytes"}, "removed": {"$sum": gone}}
    stages = [{"$match": receipts.is_current}, {"$group": {"_id": None, **sums}}]
    total = next(iter(receipts.collection.aggregate(stages)), {"size": 0, "removed": 0})
    recent = {**receipts.is_current, "last": {"$gte": as_date(since_ms)}}
    wanted = dict.fromkeys(("first", "last", "documents_bytes", "bytes"), 1)
    spans = [
        StoredSpan(as_ms(it["first"]), as_ms(it["last"]), it["documents_bytes"], it["bytes"])
        for it in receipts.collection.find(recent, wanted)
    ]
    return Stored(int(total["size"]), int(total["removed"]), spans)


class OfflineEvidence:
    """The `Evidence` of an offline archive."""

    state: ArchivedState = "archived"

    def __init__(self, context: ArchiveContext, archive: OfflineArchive) -> None:
        self._context, self._archive = context, archive
        self._policy, self._receipts = context.policy, context.receipts

    def may_cover(self, hold: Hold) -> bool:
        """Returns whether a hold may cover a bucket of any commit."""
        manifests = self._archive.manifests(hold.within.start_ms, hold.within.end_ms)
        return any(may_cover(hold, it, self._policy) for it in manifests)

    def totals(self) -> ArchivedTotals:
        """Returns the sums of what the records of commits say."""
        totals = {name: {"$sum": f"${name}"} for name in ("buckets", "readings", "documents_bytes")}
        stages = [{"$match": self._receipts.is_current}, {"$group": {"_id": None, **totals}}]
        for found in self._receipts.collection.aggregate(stages):
            return ArchivedTotals(found["buckets"], found["readings"], found["documents_bytes"])
        return ArchivedTotals(0, 0, 0)

    def still_live(self) -> int:
        """Returns how many buckets of open commits were not deleted yet, as records tell."""
        wanted = {**self._receipts.is_current, "state": "open"}
        found = self._receipts.collection.find(wanted, {"live": 1, "buckets": 1})
        return sum(int(live_of(it, it["buckets"]).sum()) for it in found)

    def stored(self, since_ms: int) -> Stored:
        """Returns the sums of what the records of commits say, and the recent ones of these."""
        return stored_by_records(self._receipts, since_ms)

    def samples(self) -> Iterator[Batch]:
        """Yields the first sections of the first and of the last commit."""
        commits = sorted(self._receipts.commits(), key=lambda it: it.sequence)
        for commit in {it.name: it for it in (*commits[:1], *commits[-1:])}.values():
            yield self._archive.load(self._archive.current(commit), 0)

    def find(self, identity: Any, at_ms: int | None) -> Located | Searched:
        """Returns the bucket as a commit of its days has it; then as any commit does, if they are few and no
        day was given. Else how many were read."""
        there, read = self._archive.within(FIRST_MS, LAST_MS + 1), set[str]()
        spans, name = list(_spans(identity, at_ms)), name_of(identity)
        if at_ms is None and len(there) <= MOST_COMMITS:
            spans.append((FIRST_MS, LAST_MS + 1))
        for manifest in (it for span in spans for it in self._archive.manifests(*span)):
            if manifest.commit in read:
                continue
            read.add(manifest.commit)
            for held in self._archive.sections(manifest):
                for i, raw_id in enumerate(held.batch.main.raw_ids):
                    if same_id(raw_id) == name:
                        return Located(manifest.archived_policy, one_of(held.batch, i))
        return Searched(len(read), len(there))

    def covering(self, at_ms: int, selector: Selector) -> Iterator[Located]:
        """Yields the buckets of commits that cover an instant, each by the policy of its commit."""
        reach = model_of(self._policy).reach_ms
        for manifest in self._archive.manifests(at_ms - reach, at_ms + reach + 1):
            which = manifest.sections_with(self._policy, [selector])
            batches = (held.batch for held in self._archive.sections(manifest, which))
            yield from covering(manifest.archived_policy, batches, at_ms, selector)

    def copies(self, buckets: Batch, policy: Policy, live: Iterable[bytes]) -> dict[bytes, list[Copy]]:
        """Returns the versions in commits and in the files beside them."""
        found = OfflineHistories(self._archive).of(buckets, policy, live)
        return {name: list(map(self._copy, history.versions)) for name, history in found.items()}

    def _copy(self, version: Version) -> Copy:
        manifest = _commit_of(version)
        receipt = self._receipts.get(manifest.commit)
        live = not version.is_superseded and live_of(receipt, manifest.buckets)[version.position]
        return Copy(version, bool(live), manifest.newest.created)

    def events(self, raw_id: bytes, copies: Sequence[Copy], span: Span) -> Iterator[Event]:
        """Yields, of each version, when it was copied, which commits its commit replaced, and when its
        original was deleted."""
        del raw_id, span  # commits tell by positions
        for copy in copies:
            yield from self._events(copy.version)

    def _events(self, version: Version) -> Iterator[Event]:
        manifest, position = _commit_of(version), version.position
        line = list(self._lineage(manifest, position))
        first, _ = line[-1]
        origin = _origin(manifest, position)
        name = None if first.replaces else first.commit
        detail = "superseded by a later version" if version.is_superseded else None
        yield Event(origin.created, "copied", name, fence=origin.fence, detail=detail)
        for one, _ in line:
            if one.replaces:
                what: What = "merged" if len(one.replaces) > 1 else "rewritten"
                yield Event(one.created, what, one.commit, fence=one.fence)
        if not version.is_superseded:
            yield from self._deleted(line)

    def _lineage(self, manifest: Manifest, position: int) -> Iterator[tuple[Manifest, int]]:
        """Yields the commits that have held a bucket, the last one first, and its position in each, as far
        back as each replaced all of the one before."""
        yield manifest, position
        before = [self._replaced(name) for name in manifest.replaces]
        whole = [it for it in before if it is not None]
        if len(whole) != len(before) or sum(it.buckets for it in whole) != manifest.buckets:
            return
        for older in whole:
            if position < older.buckets:
                yield from self._lineage(older, position)
                return
            position -= older.buckets

    def _replaced(self, name: str) -> Manifest | None:
        """Returns the manifest of a replaced commit, which stays as a link of the chain."""
        receipt = self._receipts.get(name) or {}
        commit = commit_of(receipt) if "seal" in receipt else None
        return None if commit is None else self._archive.chain.link(link_of(commit))

    def _deleted(self, line: Sequence[tuple[Manifest, int]]) -> Iterator[Event]:
        """Yields the deletes in receipts after the last one that the first of these commits names."""
        positions = {manifest.commit: position for manifest, position in line}
        known = min((it.receipt.sequence if it.receipt else 0 for it, _ in line), default=0)
        for it in numbered_for(self._receipts, self._context.receipt_files, known, list(positions)):
            commit = it["held_by"]["commit"]
            if any(first <= positions[commit] <= last for first, last in it["positions"]):
                yield Event(it["at"], "deleted", commit, int(it["sequence"]), it["fence"])

    def expires_with(self, copy: Copy, last_ms: int) -> ExpiresWith:
        """Returns the commit."""
        manifest = _commit_of(copy.version)
        rules = RetentionRules(self._policy, self._context.now)
        rule = longest_held(held_by(self._archive, manifest), rules)
        return ExpiresWith(as_ms(manifest.last), manifest.newest.created, manifest.commit, rule)

    def rows(self, grid: Grid, selector: Selector, session: ClientSession) -> ArchivedRows:
        """Returns the parts that touch the rows. Reads manifests alone."""
        archive = self._archive.at(Registry(self._receipts, session))
        manifests = archive.manifests(grid.start, grid.end)
        known = self._receipts.get_all([it.commit for it in manifests], session)
        parts = [
            part
            for it in manifests
            for part in self._parts(it, known.get(it.commit) or {}, it.may_hold(self._policy, selector))
            if part.part.touches(grid.start, grid.end)
        ]
        return ArchivedRows(parts, Tally(grid, self._policy, selector), grid.zeros(), {})

    def _parts(self, manifest: Manifest, receipt: dict[str, Any], may_hold: bool) -> Iterator[HeldPart]:
        live, drilled = int(live_of(receipt, manifest.buckets).sum()), receipt.get("drilled")
        rules = RetentionRules(self._policy, self._context.now)
        longest = known_longest(receipt, rules)
        rule = None if longest is None else rules.rules[longest]
        expires = rule.due(receipt.get("tombstone"), manifest.newest.created) if rule else None
        name = "" if longest is None else rules.series.text(longest)
        for number, section in enumerate(manifest.sections):
            for place, part in enumerate(manifest.parts_of(number)):
                beside = sum(it.bytes for it in manifest.files_of(number)[section.parts :])
                size = part.bytes + (0 if place else beside)
                yield HeldPart(manifest, part, size, live, drilled, may_hold, expires, name)


def _commit_of(version: Version) -> Manifest:
    assert version.commit is not None  # offline every version lies in a commit, or has
    return version.commit


def _origin(manifest: Manifest, position: int) -> Origin:
    """Returns where a bucket of a commit was archived first."""
    for origin in manifest.all_origins:
        if position < origin.buckets:
            return origin
        position -= origin.buckets
    raise AssertionError("unreachable")


def _spans(identity: Any, at_ms: int | None) -> Iterator[Span]:
    """Yields the days in which a bucket may lie: the day that was given; else that of its ObjectId, and those
    beside it."""
    if at_ms is not None:
        yield at_ms // DAY_MS * DAY_MS, (at_ms // DAY_MS + 1) * DAY_MS
    elif isinstance(identity, ObjectId):
        day = as_ms(identity.generation_time.astimezone(UTC)) // DAY_MS
        yield (day - 1) * DAY_MS, (day + 2) * DAY_MS


def sign_manifests(context: ArchiveContext, archive: OfflineArchive, keys: Keys) -> int:
    """Signs every manifest of the chain, and the last checkpoint, by the first of these keys. Returns how
    many manifests it has not signed before. Raises DamagedError where one can't be read."""
    heads, chain, count = read_heads(context.receipts), archive.chain, 0
    if heads is None:
        return 0
    for manifest in heads.walk(chain, context.receipts.all_registered().values()):
        context.check()
        if not isinstance(manifest, Manifest):  # older than the last checkpoint: `verify` has not read it
            raise manifest
        count += chain.sign(manifest, keys)
    if (checkpoint := last_checkpoint(context.receipts, archive, heads)) is not None:
        signature = keys.sign(checkpoint.sha256)
        chain.put(checkpoint.key, encoded(checkpoint.model_copy(update={"signature": signature})))
    return count


@dataclass(frozen=True)
class Offline:
    """The `Archive` of parts in a store."""

    context: ArchiveContext
    held: OfflineArchive

    def recover(self) -> None:
        """Adopts, finishes or removes what earlier runs have begun, once a run."""
        from bucketwise.archivers.moving.archive import recover
        from bucketwise.archivers.moving.offline import OfflineRun

        recover(self.context, OfflineRun)

    @cached_property
    def _readable(self) -> OfflineArchive:
        """Returns the archive for whoever only reads: without a key in the file, by seals alone."""
        return self.context.offline()

    def heads(self) -> list[Manifest]:
        """Verifies that the store holds the last manifests, and what was found damaged. Returns them."""
        return check_heads(self.context.receipts, self.held, goes_on=True).manifests

    def check_complete(self) -> None:
        """Raises HaltedError where a commit is missing, or one that was dropped has come back: lists them."""
        check_none_reappeared(self.context.receipts, self.held)
        check_all_present(self.context.receipts, self.held, adopts=False)

    def check_own(self) -> None:
        """Raises HaltedError where a commit or its files come from elsewhere: lists them."""
        check_own(self.context.receipts, self.held, self.context.known_fences)

    def needs_adoption(self) -> bool:
        """Returns whether commits go on from what the database knows, or name receipts that it lacks."""
        from bucketwise.archivers.verifying.offline import is_forgotten

        return is_forgotten(self.context, self.held)

    def check_adoptable(self) -> None:
        """Reads all commits that lie in the store, and looks for those that do not."""
        from bucketwise.archivers.moving.offline import OfflineRun
        from bucketwise.archivers.verifying.offline import check_adoptable

        check_adoptable(self.context, self.held)
        with closing(OfflineRun(ArchiveRun.of(replace(self.context, adopts=True)))) as run:
            run.check_adoptable()

    def sign(self, keys: Keys) -> int:
        """Signs manifests and the last checkpoint."""
        return sign_manifests(self.context, self.held, keys)

    def adopt(self) -> list[str]:
        """Registers commits whose chain goes on from what the database knows. A receipt records which
        receipts are lost."""
        from bucketwise.archivers.moving.archive import recover
        from bucketwise.archivers.moving.offline import OfflineRun
        from bucketwise.archivers.verifying.offline import verify_forgotten

        names = verify_forgotten(self.context, self.held)
        recover(replace(self.context, adopts=True), OfflineRun)
        return names

    def run(self, options: ArchiveOptions) -> ArchiveReport:
        """Archives the expired buckets as commits."""
        from bucketwise.archivers.moving.archive import archive
        from bucketwise.archivers.moving.offline import OfflineRun

        return archive(self.context, options, OfflineRun)

    def plan(self, options: ArchiveOptions) -> ArchiveReport:
        """Returns what `run` would do."""
        from bucketwise.archivers.moving.archive import plan_archive
        from bucketwise.archivers.moving.offline import OfflineDryRun

        return plan_archive(self.context, options, OfflineDryRun)

    def compact(self, options: CompactOptions) -> CompactReport:
        """Merges small commits."""
        from bucketwise.archivers.compact import compact

        return compact(self.context, self.held, options)

    def plan_compaction(self, options: CompactOptions) -> CompactReport:
        """Returns what `compact` would do."""
        from bucketwise.archivers.compact import plan_compaction

        return plan_compaction(self.context, self.held, options)

    def expire(self) -> ExpiryReport:
        """Expires commits."""
        expires = any(RetentionRules(self.context.policy, self.context.now).rules)
        if expires and not self.context.state.is_recovered:
            self.recover()
        return self._expiry(writes=True)

    def plan_expiry(self) -> ExpiryReport:
        """Returns what `expire` would do."""
        return self._expiry(writes=False)

    def _expiry(self, *, writes: bool) -> ExpiryReport:
        from bucketwise.archivers.expiring.offline import expire_offline

        return expire_offline(self.context, self.held, writes=writes)

    def verify(self, within: TimeRange = EVER) -> VerifyReport:
        """Reads the files of commits."""
        from bucketwise.archivers.verifying.offline import verify

        return verify(self.context, self.held, within)

    def verify_records(self, has_turn: HasTurn | None = None) -> VerifiedRecords:
        """Verifies the chain, receipts, and that all files are there."""
        from bucketwise.archivers.verifying.offline import verify_records

        return verify_records(self.context, self.held, has_turn)

    def verify_pieces(self, pieces: Sequence[Piece]) -> tuple[VerifyReport, list[IntactPiece]]:
        """Reads the files of these commits."""
        from bucketwise.archivers.verifying.offline import verify_commits

        commits = [it for it in pieces if isinstance(it, Commit)]
        return verify_commits(self.context, self.held, commits)

    def drilled(self, not_since: datetime) -> dict[int, datetime | None]:
        """Returns the days of commits that were made before then, and not drilled since."""
        return CommitDays(self.context.receipts).drilled(not_since)

    @property
    def place(self) -> str:
        """Returns the URL of the archive."""
        return f"{self.held.store.url}/{self.context.policy.identity}"

    def drill(self, days: int, seed: int) -> list[DrilledDay]:
        """Restores the commits that begin on some days."""
        from bucketwise.archivers.kinds.drill import drill

        return drill(self.context, self.held, days, seed)

    @property
    def evidence(self) -> OfflineEvidence:
        """Returns what manifests, receipts and commits tell."""
        return OfflineEvidence(self.context, self._readable)

    @property
    def series(self) -> OfflineSeries:
        """Returns what rewrites commits without a series."""
        from bucketwise.archivers.erasing.offline import OfflineSeries

        return OfflineSeries(self.held)

    def lake_differences(self, lake: Lake) -> list[LakeDifference]:
        """Compares the table's files with parts. Raises ImportError without pyiceberg."""
        from bucketwise.archivers.lake.sync import differences

        return list(differences(self.context, self._readable, lake))

    def sync_lake(self, lake: Lake, *, whole: bool) -> LakeReport:
        """Registers parts. Raises ImportError without pyiceberg, LakeError where the catalog forbids it."""
        from bucketwise.archivers.lake.sync import sync

        return sync(self.context, self.held, lake, whole=whole)

    def restore(self, options: RestoreOptions) -> RestoreReport:
        """Brings back what commits hold."""
        from bucketwise.archivers.restoring.restore import OfflineCopies, restore

        return restore(self.context, options, OfflineCopies(self.context, self._readable))
