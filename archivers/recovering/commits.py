"""Records commits of the offline archive in receipts and heads, and replaces commits by others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession

from bucketwise.archivers import decisions
from bucketwise.archivers.decisions import Outcome
from bucketwise.archivers.format.archive import Copied, OfflineArchive, Positions
from bucketwise.archivers.format.chain import ChainPosition
from bucketwise.archivers.format.manifest import DamagedError, Manifest, Origin
from bucketwise.archivers.format.writing import Maker, Replaced
from bucketwise.archivers.records.deletions import last_of, ranges
from bucketwise.archivers.records.heads import (
    HEADS,
    Heads,
    heads_of,
    heads_update,
    link_of,
    note_damaged,
    read_heads,
    types_update,
    with_replaced,
)
from bucketwise.archivers.records.receipt_files import LAST
from bucketwise.archivers.records.receipts import (
    EMPTIED,
    HELD,
    REPLACED,
    UNERASED,
    Document,
    commit_of,
    facts_of,
    live_of,
    record_fault,
)
from bucketwise.archivers.records.registry import begin, end_update
from bucketwise.archivers.run import ArchiveRun
from bucketwise.archivers.versions.superseded import Superseded, check_replaced, still_live
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.source import Source
from bucketwise.config.errors import HaltedError
from bucketwise.rollups.context import transaction


def _as_they_are(buckets: Batch) -> Batch:
    return buckets


class CommitRegistry:
    """The commit registry of one run. It writes in transactions that fail once the run has lost its lease."""

    def __init__(self, work: ArchiveRun, archive: OfflineArchive, maker: Maker) -> None:
        self.receipts = work.receipts
        self._work = work
        self._archive = archive
        self._maker = maker

    def transaction(self, step: Callable[[ClientSession], None]) -> None:
        """Runs a step in a transaction, which fails for a run that has lost its lease."""
        transaction(self._work.database, self._work.guard, step)

    def commit(self, copied: Copied) -> Manifest:
        """Makes a copy part of the archive, and all its buckets live."""
        manifest = self._archive.commit(copied, self._place(), self._begin)
        self.register(manifest, np.ones(manifest.buckets, dtype=np.bool_), is_new=True)
        return manifest

    def register(
        self,
        manifest: Manifest,
        live: NDArray[np.bool_],
        *,
        is_new: bool,
        deleted: int = 0,
        replaced: Sequence[str] = (),
    ) -> None:
        """Records a commit. `live`: which of its buckets are. `is_new`: it is the last of the chain from now
        on. `replaced`: the commits that it was merged from."""

        def step(session: ClientSession) -> None:
            merged = self.receipts.get_all(replaced, session) if replaced else {}
            facts = {**self._facts(manifest), **_inherited(merged.values())}
            heads = (heads_update if is_new else types_update)(self.receipts, manifest)
            also = [heads, end_update(self.receipts, manifest)]
            self.receipts.set_live(manifest.commit, live, facts, session, deleted, also)

        self.transaction(step)

    def note_gone(self, manifest: Manifest, gone: Sequence[int]) -> None:
        """Records that buckets of a commit are no longer live, whoever deleted them. One whose `_id` is there
        again was replaced: summaries that were made meanwhile count what is there, and not its copy."""
        copies = [] if self._work.measured else list(self._archive.buckets_at(manifest, np.sort(gone)))

        def step(session: ClientSession) -> None:
            live = self.receipts.live(manifest.commit, manifest.buckets, session)
            if self._work.measured:
                live[gone] = False
            source = Source(self._work.database, self._work.policy, session=session)
            for held in copies:
                live[np.delete(held.positions, still_live(source, held.batch))] = False
            self.receipts.set_live(manifest.commit, live, self._facts(manifest), session)

        self.transaction(step)

    def check_stored(self, manifest: Manifest, due: Positions) -> None:
        """Raises DamagedError where the store no longer has what gives these buckets, and notes it: later
        runs say so, whatever they read."""
        try:
            self._archive.check_stored(manifest, due)
        except DamagedError:
            note_damaged(self.receipts, manifest.commit)
            raise

    def record(
        self,
        manifest: Manifest,
        here: NDArray[np.int64],
        piece: Batch,
        session: ClientSession,
        outcome: Outcome,
    ) -> None:
        """Records, in the transaction of a delete, which of these buckets went. `here`: their positions in
        the commit."""
        self._work.check_limit(len(outcome.deleted))
        live = self.receipts.live(manifest.commit, manifest.buckets, session)
        live[here[outcome.deleted]] = False
        facts = self._facts(manifest)
        self.receipts.set_live(manifest.commit, live, facts, session, len(outcome.deleted))
        deleted = np.array(outcome.deleted, dtype=np.int64)
        deleted = deleted[np.argsort(here[deleted])]
        self._work.deletions.record(
            session,
            piece.take(deleted),
            {"positions": ranges(here[deleted].tolist())},
            {"commit": manifest.commit, "manifest_sha256": manifest.sha256},
        )

    def amend(self, manifest: Manifest, leaving: Sequence[int], kept: Sequence[int] = ()) -> Manifest | None:
        """Takes buckets out of a commit: a new commit without them replaces it, if any are left. `kept`:
        those of them that stay restorable, as versions that no longer count.

        The exchange is done when the receipts say so. Until then, and until the old commit is dropped,
        readers of manifests skip the one that is replaced; recovery goes on, or back, after a crash. Only its
        manifest tells them to skip what it had taken over itself, so that this goes first."""
        archive, aside = self._archive, Superseded(self._archive)
        self._drop_what_it_replaced(manifest)
        versions: list[str] = []
        for number, held in enumerate(archive.buckets_at(manifest, np.sort(leaving))):
            archive.set_aside(manifest.commit, number, held.batch)
            staying = np.flatnonzero(np.isin(held.positions, kept))
            if len(staying):
                places = held.positions[staying].tolist()
                taken = held.batch.take(staying)
                versions.append(aside.put(manifest.commit, taken, places, self._work.fence))
        return self._rewrite(manifest, leaving, _as_they_are, lambda _session: None, tuple(versions))

    def erase(
        self,
        manifest: Manifest,
        leaving: Sequence[int],
        rest: Callable[[Batch], Batch],
        record: Callable[[ClientSession], None],
    ) -> Manifest | None:
        """Takes buckets out of a commit as `amend` does, and keeps nothing of them: the files of the old
        commit and of those that it had taken over go at once. `rest` makes of the others what they are to
        be. `record` is part of the transaction."""
        self._drop_what_it_replaced(manifest)
        return self._rewrite(manifest, leaving, rest, record)

    def _rewrite(
        self,
        manifest: Manifest,
        leaving: Sequence[int],
        rest: Callable[[Batch], Batch],
        record: Callable[[ClientSession], None],
        versions: tuple[str, ...] = (),
    ) -> Manifest | None:
        staying, successor = np.setdiff1d(np.arange(manifest.buckets), leaving), None
        if len(staying):
            policy, archive, origins = manifest.archived_policy, self._archive, origins_of(manifest, staying)
            replaced = Replaced((manifest.commit,), tuple(origins))
            if len(manifest.sections) > 1:
                replaced = Replaced.by_sections([manifest], origins)
            replaced = replaced._replace(versions=versions)
            read = archive.buckets_at(manifest, staying)
            bucket_sets = (BucketSet(rest(it.batch), policy) for it in read)  # as they were archived
            copy = archive.copy(bucket_sets, manifest.series_types, self._maker, self._work.check, replaced)
            successor = self._succeed(copy, len(staying))

        def exchange(session: ClientSession) -> None:
            self._exchange([(manifest, staying)], successor, session)
            if successor is None:
                emptied = {"commit": manifest.commit, "manifest_sha256": manifest.sha256}
                facts = {**emptied, "versions": list(versions)}
                self._work.deletions.record_event(EMPTIED, facts, session)
            record(session)

        self.transaction(exchange)
        if successor is not None:
            self._archive.check_stored(successor)
        self._archive.drop(manifest)
        self.receipts.mark_dropped(manifest.commit)
        return successor

    def _drop_what_it_replaced(self, manifest: Manifest) -> None:
        mine, names = [], {manifest.commit}
        for receipt in sorted(self.receipts.replaced(), key=lambda it: it["sequence"], reverse=True):
            if receipt["replaced_by"] in names:  # by this commit, or by one that it replaced
                mine.append(receipt)
                names.add(receipt["_id"]["name"])
        if mine:  # what this commit has lost may lie in these alone
            self._archive.check_present(manifest)
            self._archive.check_stored(manifest)
        for receipt in reversed(mine):
            self._work.check()
            self.drop_replaced(receipt)

    def check_standing(self, receipt: Document, replaced: Mapping[str, Document]) -> None:
        """Raises DamagedError where nothing sealed says that a commit was replaced, or one on the way to that
        which stands in its place by now; and where that one is registered, and its manifest or a file is
        gone, or damaged. `replaced`: the receipts of all that are not dropped yet, by name."""
        name = receipt["_id"]["name"]
        *before, standing = decisions.successors(
            name, {it: found["replaced_by"] for it, found in replaced.items()}
        )
        if standing in (name, *before):
            raise record_fault(name, "it says that a commit replaced it which it has replaced")
        for it in filter(None, before):
            check_replaced(self.receipts, self._archive, replaced[it], self._work.keys)
        for commit in self.receipts.registered([standing] if standing else []).values():
            manifest = self._archive.current(commit)
            self._archive.check_present(manifest)
            self._archive.check_stored(manifest)

    def to_drop(self, receipt: Document) -> Manifest | None:
        """Returns the manifest of a replaced commit, from a copy where the store has lost it; None where it
        was dropped before, or is given up. Raises DamagedError where it is lost, so that nothing tells which
        files it has."""
        if (commit := commit_of(receipt)) is None:
            return None
        try:
            manifest = self._archive.chain.link(link_of(commit))
        except DamagedError:
            if (heads := read_heads(self.receipts)) is not None and commit.seal in heads.lost:
                return None
            raise
        was_dropped = not self._archive.is_there(commit) and self._archive.chain.was_dropped(manifest)
        return None if was_dropped else manifest

    def drop_replaced(self, receipt: Document) -> None:
        """Drops a replaced commit, or finishes that after a crash. Raises DamagedError where nothing sealed
        says that it was replaced."""
        check_replaced(self.receipts, self._archive, receipt, self._work.keys)
        commit = commit_of(receipt)
        if "replaced_at" in receipt:
            self.receipts.update(receipt["_id"]["name"], {"$unset": {"replaced_at": ""}})
        if (manifest := self.to_drop(receipt)) is not None:
            self._archive.drop(manifest)
        if commit is not None and "ended" in receipt:
            self._clear_kept_versions(self._archive.chain.link(link_of(commit)), receipt["ended"])
        self.receipts.mark_dropped(receipt["_id"]["name"])

    def _clear_kept_versions(self, manifest: Manifest, end: datetime) -> None:
        """Removes the kept versions of a commit that has ended, and of those that it replaced, unless they
        may hold readings from `end` on."""
        aside = Superseded(self._archive)
        for it in with_replaced(self.receipts, self._archive, manifest):
            if it.last < end:
                aside.clear(it.commit)

    def end(self, manifests: Sequence[Manifest], end: datetime, session: ClientSession) -> None:
        """Records, in a transaction, that a commit is dropped next, or what is left of one that was, with all
        that it took over, though queries may still read it; see `Recovery` for what a crash leaves of that.
        `manifests`: see `with_replaced`. `end`: the instant before which the archive has ended."""
        mine, *theirs = (it.commit for it in manifests)
        self.receipts.collection.update_many(
            {
                "_id": {"$in": [self.receipts.identity(it) for it in theirs]},
                "state": {"$in": [REPLACED, HELD]},
            },
            {"$set": {"state": REPLACED}, "$unset": {"replaced_at": ""}},
            session=session,
        )
        ended = {"kind": "offline", "state": REPLACED, "replaced_by": None, "ended": end}
        self.receipts.update(mine, {"$set": ended}, session)

    def drop_ended(self, manifests: Sequence[Manifest]) -> None:
        """Drops an ended commit, once that is recorded; before it, those that it took over."""
        names = {it.commit for it in manifests}
        mine = [it for it in self.receipts.in_state(REPLACED, "offline") if it["_id"]["name"] in names]
        for receipt in sorted(mine, key=lambda it: it["sequence"]):
            self._work.check()
            self.drop_replaced(receipt)

    def merge(self, manifests: Sequence[Manifest], copied: Copied) -> Manifest:
        """Replaces some commits by one copy of all their buckets, in this order. The replaced ones stay in
        the store for a while: see `Recovery`."""
        successor = self._succeed(copied, sum(it.buckets for it in manifests))

        def exchange(session: ClientSession) -> None:
            whole = [(it, np.arange(it.buckets)) for it in manifests]
            self._exchange(whole, successor, session, stays=True)

        self.transaction(exchange)
        return successor

    def _succeed(self, copied: Copied, buckets: int) -> Manifest:
        """Commits a copy that takes the place of others. Raises HaltedError where it has not as many buckets
        as have to be in it."""
        if copied.draft.buckets != buckets:
            raise HaltedError(
                f"policy {self._archive.policy.name}: commit {copied.draft.commit} has "
                f"{copied.draft.buckets} buckets, and takes the place of {buckets}. Nothing was replaced or "
                "deleted. Report this as a bug"
            )
        return self._archive.commit(copied, self._place(), self._begin)

    def _begin(self, manifest: Manifest) -> None:
        """Records, right before it is written, that a manifest is this run's. Raises where the run must
        stop."""
        self._work.check()
        begin(self.receipts, manifest)
        self._work.check()

    def _exchange(
        self,
        replaced: Sequence[tuple[Manifest, NDArray[np.int64]]],
        successor: Manifest | None,
        session: ClientSession,
        *,
        stays: bool = False,
    ) -> None:
        """Records that these buckets of each replaced commit are in the successor, in this order. `stays`:
        its files do, for a while."""
        receipts = self.receipts.get_all([it.commit for it, _ in replaced], session)
        if successor is not None:
            parts = [(receipts.get(it.commit), it, staying) for it, staying in replaced]
            live = np.concatenate([live_of(old, it.buckets)[staying] for old, it, staying in parts])
            deleted = sum((old or {}).get("deleted", 0) for old, _, _ in parts)
            also = [heads_update(self.receipts, successor), end_update(self.receipts, successor)]
            facts = {**self._facts(successor), **_inherited(receipts.values())}
            self.receipts.set_live(successor.commit, live, facts, session, deleted, also)
        state: Document = {"state": REPLACED, "replaced_by": successor.commit if successor else None}
        if stays:
            state["replaced_at"] = self._work.now
        for manifest, _ in replaced:
            self.receipts.update(manifest.commit, {"$set": state}, session)

    def _place(self) -> ChainPosition:
        found = self.receipts.get_all([HEADS, LAST])
        heads = heads_of(found.get(HEADS)) or Heads(0, (), frozenset())
        return ChainPosition(heads.sequence + 1, heads.links, last_of(found.get(LAST)))

    def _facts(self, manifest: Manifest) -> dict[str, object]:
        """Returns the facts of a receipt. Where the store keeps object versions, they include those of the
        files of a commit that was just made, which stay in the receipt when the commit is dropped.
        `next_move`: no later than that, its parts may have to move to another storage class."""
        known = self._archive.versions.get(manifest.commit, {})
        versions = [{"key": key, "version": version} for key, version in known.items()]
        at = {"at": self._work.now, "next_move": manifest.last}
        return {**facts_of(manifest), **at, **({"versions": versions} if versions else {})}


def _inherited(replaced: Collection[Document]) -> Document:
    """Returns what a commit inherits from the receipts of those that it replaces: of lifted tombstones the
    one that stays lifted longest, and all erasures that could not read them."""
    tombstones = [it["tombstone"] for it in replaced if "until" in it.get("tombstone", {})]
    erasures = [one for it in replaced for one in it.get(UNERASED, ())]
    lifted = {"tombstone": max(tombstones, key=lambda it: it["until"])} if tombstones else {}
    return {**lifted, **({UNERASED: erasures} if erasures else {})}


def origins_of(manifest: Manifest, staying: NDArray[np.int64]) -> Iterator[Origin]:
    """Yields where those buckets of a commit were archived first that stay, in their order."""
    ends = np.cumsum([it.buckets for it in manifest.all_origins])
    counts = np.bincount(np.searchsorted(ends, staying, side="right"), minlength=len(ends))
    for origin, count in zip(manifest.all_origins, counts.tolist(), strict=True):
        if count:
            yield origin.model_copy(update={"buckets": count})
