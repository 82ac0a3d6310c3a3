"""Keeps summaries equal to a recomputation from live and archived readings."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from bucketwise.archivers.context import ArchiveContext, Connections, LocalExecutor, offline_archive
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.format.states import CellState, has_states
from bucketwise.archivers.format.writing import ColdCommit, UnerasedCommit
from bucketwise.archivers.reading.archived import ArchivedReader, ColdSection, archived_reader
from bucketwise.archivers.records.heads import commit_of_link, read_heads
from bucketwise.archivers.records.receipts import COLLECTION as RECEIPTS
from bucketwise.archivers.records.receipts import UNSUMMARISABLE, Receipts
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.fields.times import EVER, FIRST_MS, LAST_MS, TimeRange, as_date, as_ms
from bucketwise.buckets.layouts.groups import Unions
from bucketwise.buckets.source import Source
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.due import Spans, widened
from bucketwise.rollups.calendar.levels import Span, levels_of
from bucketwise.rollups.changes.late import ChangeWatch
from bucketwise.rollups.context import dry_run_guard, no_progress, run_now
from bucketwise.rollups.progress import load
from bucketwise.rollups.rolling.plan import CATCH_UP, Archived, RollupOptions, RollupReport
from bucketwise.rollups.rolling.rollup import roll_up
from bucketwise.rollups.rolling.slices import ArchivedHalf, SliceReader, SliceRequest, SliceStates, read


class ColdReader:
    """Reads the archived half of one slice: buckets where they can be read, and the states of others."""

    def __init__(
        self, archived: ArchivedReader, source: Source, policy: Policy, request: SliceRequest
    ) -> None:
        self.found: list[CellState] = []  # of the sections that were met
        self._archived, self._source, self._policy, self._edges = archived, source, policy, request.edges

    def batches(self, start_ms: int, end_ms: int) -> Iterator[Batch]:
        """Yields the buckets that may hold a reading in [start, end), are not live, and can be read. Raises
        ColdCommit where others have to be thawed."""

        @cache
        def live() -> set[bytes]:
            found = self._source.batches(start_ms, end_ms)
            return {it for batch in found for it in batch.main.raw_ids}

        return self._archived.batches(start_ms, end_ms, partial(self._take, live))

    def _take(self, live: Callable[[], set[bytes]], cold: ColdSection) -> None:
        """Takes the states of a section. They count all its buckets: one that came back as it was would count
        twice. Where they are damaged, which `verify` tells, its parts have to be read as well. `live`: gives
        the `_id`s of the live buckets of the slice."""
        try:
            states = cold.states if has_states(self._policy) else None
            if states is None or (ids := cold.ids) is None or not live().isdisjoint(ids):
                raise cold.error
            self.found += states.cells(self._policy, self._edges)
        except (DamagedError, ValueError) as error:
            raise cold.error from error


def slice_reader(context: ArchiveContext, archived: ArchivedReader) -> SliceReader:
    """Returns the reader of slices for one roll-up, during which the archive does not change."""
    executor, connections, policy = context.executor, context.connections, context.policy
    if isinstance(executor, LocalExecutor):
        source, unions = Source(connections.database, policy), Unions()
        return SliceReader(
            lambda request: run_now(_read, source, archived, policy, request, unions), memory=executor.memory
        )
    run, seen = uuid.uuid4().hex, SourceIdentity.of(connections, policy)

    def read_elsewhere(request: SliceRequest) -> Future[SliceStates]:
        return executor.submit(read_slice, policy, run, seen, request)

    return SliceReader(read_elsewhere, executor.workers, executor.memory)


def read_slice(
    connections: Connections, policy: Policy, run: str, expected: SourceIdentity, request: SliceRequest
) -> SliceStates:
    """Reads a slice, as a task. A worker reads the archive's manifests once for each `run`."""
    if getattr(_KEPT, "run", None) != run:
        expected.check(connections, policy)
        _KEPT.archived = archived_reader(connections, policy)
        _KEPT.run, _KEPT.unions = run, Unions()
    return _read(Source(connections.database, policy), _KEPT.archived, policy, request, _KEPT.unions)


def _read(
    source: Source, archived: ArchivedReader, policy: Policy, request: SliceRequest, unions: Unions
) -> SliceStates:
    """Also returns which commits were read. Of what is damaged in the archive, the slice says so where it
    may."""
    cold = ColdReader(archived, source, policy, request)
    try:
        found = read(source, ArchivedHalf(cold.batches, archived.restored), policy, request, unions)
    except (ColdCommit, UnerasedCommit) as error:
        if not request.leaves_unreadable:
            raise
        archived.take_read()
        return SliceStates({}, unreadable=str(error))
    except DamagedError as error:
        if not request.leaves_unreadable or policy.duplicates == "keep":
            raise
        archived.take_read()
        return SliceStates({}, unreadable=f"{error.place}: {error.what}")
    for it in cold.found:
        found.take(it.local, [it[1:]])
    found.commits = archived.take_read()
    return found


#: One for each thread: a worker of a cluster may have several.
_KEPT = threading.local()


@dataclass(frozen=True)
class SourceIdentity:
    """Tells the collections and the archive of a policy from others of the same name. A URI such as
    mongodb://localhost, or a file:// store, is another place on another machine: a worker that found nothing
    there would return what looks like an empty slice."""

    collections: frozenset[tuple[str, str]]  # name, uuid
    has_heads: bool  # the store has the last commits that the database knows of

    @classmethod
    def of(cls, connections: Connections, policy: Policy) -> SourceIdentity:
        """Returns the identity of what these connections reach."""
        names = [*policy.sources, f"system.buckets.{policy.collection}"]
        names += [policy.archive.collection] if policy.archive and policy.archive.collection else []
        found = connections.database.list_collections(filter={"name": {"$in": names}})
        archive = offline_archive(connections, policy)
        heads = read_heads(Receipts(connections.database, policy.identity))
        links = heads.links if archive is not None and heads is not None else ()
        return cls(
            frozenset((it["name"], str(it["info"].get("uuid"))) for it in found),
            all(archive is not None and archive.is_there(commit_of_link(it)) for it in links),
        )

    def check(self, connections: Connections, policy: Policy) -> None:
        """Raises BucketwiseError where this process sees other collections, or another archive."""
        found = SourceIdentity.of(connections, policy)
        if found == self:
            return
        what, place = "other collections", connections.database.name
        if found.collections == self.collections and connections.store is not None:
            what, place = "another archive", connections.store.url
        raise BucketwiseError(
            f"policy {policy.name}: a worker sees {what} in {place} than this run does. Name MongoDB and "
            "the store so that they are the same from every machine that works (no localhost, no folder that "
            "is not shared). Nothing was written from what it read; it is safe to run again"
        )


def roll_up_all(context: ArchiveContext, options: RollupOptions = CATCH_UP) -> RollupReport:
    """Rolls up what is due, from live and archived buckets. Summaries count as gone only where no other
    policy may have their readings in its archive."""
    archived = archived_reader(context.connections, context.policy)
    reader = slice_reader(context, archived)
    found = archived.returning_spans, archived.earliest, archived.restored
    known = Archived(reader, RECEIPTS, archived.span(), *found)
    report = roll_up(context, options, known)
    if report.gone and context.policy_records.archives_besides(context.policy):
        report.gone = 0
    return report


def recompute(context: ArchiveContext, archived: ArchivedReader, unread: Sequence[Span]) -> RollupReport:
    """Returns what a roll-up of all due windows would write. Writes nothing. In the spans `unread`
    (milliseconds), and where commits are cold or wait for an erasure, nothing is read, and summaries are
    taken to be right."""
    reader, receipts = slice_reader(context, archived), context.receipts
    query = {**receipts.is_current, **UNSUMMARISABLE}
    found = receipts.collection.find(query, {"first": 1, "last": 1})
    spans = [(as_ms(it["first"]), as_ms(it["last"]) + 1) for it in found]
    unread = [*unread, *_to_windows(context.policy, spans)]
    return roll_up(
        replace(context, guard=dry_run_guard),
        RollupOptions(whole=True, trusted_spans=unread, dry_run=True),
        Archived(reader, RECEIPTS, archived.span(), earliest=archived.earliest, restored=archived.restored),
    )


def _to_windows(policy: Policy, spans: Sequence[Span]) -> Sequence[Span]:
    """Returns the spans, widened to the days that they touch."""
    levels = [level for level in levels_of(policy) if not level.is_long]
    return widened(levels, spans).spans if levels and spans else spans


class Upkeep:
    """A `RolledUp` that rolls windows up before their buckets go, since late readings may have come after the
    roll-up."""

    def __init__(
        self,
        context: ArchiveContext,
        readers: Sequence[Policy],
        *,
        is_deleted_early: bool,
        dry_run: bool = False,
    ) -> None:
        """`readers`: other policies that roll up the same collection."""
        here = LocalExecutor(context.connections, memory=context.executor.memory)
        self._context = replace(context, progress=no_progress, executor=here)
        self._is_cleared = is_deleted_early
        self._dry_run = dry_run
        self._reading_policies = readers
        self._watch: ChangeWatch | None = None
        self.written = 0
        #: Where windows can't be brought up to date: buckets that touch them are not selected.
        self.left = Spans(it for one in (context.policy, *readers) for it in load(context.database, one).left)
        self._gone: dict[TimeRange, int] = {}  # a range is looked at again before its buckets are deleted

    @cached_property
    def _readers(self) -> list[ChangeWatch]:
        """Returns the watch on the other policies. It is created with the first commit, so that a run without
        any does not need it."""
        database = self._context.database
        return [ChangeWatch(database, it, RECEIPTS, dry_run=self._dry_run) for it in self._reading_policies]

    def __call__(
        self, start_ms: int, end_ms: int, /, *, force: bool = False, leaving: Sequence[Span] = ()
    ) -> bool:
        """Rolls up the windows that the range touches, if they have changed. Returns whether every summary of
        the range is up to date. Those of other policies are written by their own runs; until then, the
        buckets stay. `force`: even where nothing shows a change, and whether others wait or not; see
        `RolledUp`."""
        check = self._context.check
        others_wait = any(it.has_changed(start_ms, end_ms, check, if_unknown=False) for it in self._readers)
        if (others_wait and not force) or self._dry_run:
            return not others_wait
        watch = self._watch = self._watch or ChangeWatch(
            self._context.database, self._context.policy, RECEIPTS
        )
        if force or watch.has_changed(start_ms, end_ms, check):
            # All changes, where they are known: a bucket may have moved here from another time.
            tells_all = watch.has_bookmark and not force
            days = self._days(start_ms, end_ms)
            within = EVER if tells_all else days
            options = RollupOptions(
                within, is_deleted_early=self._is_cleared, leaving=leaving, leaves_unreadable=True
            )
            report = roll_up_all(self._context, options)
            self.written += report.written
            others_wait |= any(any(self.left.gaps(*it.slice)) for it in report.left)
            self._gone[days] = max(report.gone, self._gone.get(days, 0))
            self._watch = None  # the next one begins where this roll-up has read to
        return not others_wait

    @property
    def gone(self) -> int:
        """Returns how many summaries stay although somebody took their readings out."""
        return sum(self._gone.values())

    def _days(self, start_ms: int, end_ms: int) -> TimeRange:
        """Returns the range, widened to the days that it touches: these are then made of their hours, one of
        which may be the last that tells of its readings."""
        (start, end), *_ = _to_windows(self._context.policy, [(start_ms, end_ms)])
        return TimeRange(as_date(max(start, FIRST_MS)), as_date(min(end, LAST_MS)))
