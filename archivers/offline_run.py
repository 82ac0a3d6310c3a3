"""The offline archive at work: what is copied, what may go, what a crash left.

Each commit gets its receipt right after its manifest. A manifest without one is of a run that was cut off
there, or of one that had lost its lease: nothing was deleted on its account, and the next run adopts it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession

from archivers.chain import Place
from archivers.copies import Copies
from archivers.delete import Outcome, chunks, compare_all, guarded_delete, units
from archivers.deletions import last_receipt, latest, ranges
from archivers.heads import Heads, advance, check_all_there, check_heads, read_heads, write_heads
from archivers.manifest import Commit, Manifest
from archivers.offline import OfflineArchive, Origin, Ready
from archivers.stores.base import ObjectStore
from archivers.work import NOT_ROLLED_UP, Work
from buckets import timeseries
from buckets.columns import Series
from buckets.decode import Lot, decode
from buckets.raw import Batch
from buckets.times import as_ms
from rollups.guarded import transaction

Indices = NDArray[np.int64]
_HELD = "copied by an earlier run, and deleted by the next"


class _Waiting(NamedTuple):
    """Buckets that this run copies and does not delete."""

    first: int  # what they cover, milliseconds
    last: int
    names: Indices  # sorted: of each `_id` 8 bytes


class OfflineRun:
    """Satisfies `Archiver`."""

    def __init__(self, work: Work, store: ObjectStore) -> None:
        self._work = work
        self._receipts = work.receipts
        self._archive = OfflineArchive(work.policy, store, self._receipts.seal, work.keys)
        made_with = None
        if work.policy.model == "timeseries":
            made_with = timeseries.made_with(work.database, work.policy.collection)
        self._origin = Origin(work.database.name, work.fence, work.now, made_with)
        self._before: dict[str, Commit] | None = None  # what was archived before this run reads anything
        self._waiting: list[_Waiting] = []
        self._copies = Copies(self._archive, self._origin, work.units, work.check)

    def recover(self) -> None:
        heads = check_heads(self._receipts, self._archive)
        self._receipts.prepare()
        self._archive.claim(self._receipts.owner(), self._work.database.name)
        listed = [commit.name for commit in self._archive.commits()]
        for receipt in list(self._receipts.in_state("replaced", "offline")):
            self._drop(receipt["_id"]["name"], listed)
        for forgotten in check_all_there(self._receipts, self._archive):
            self._receipts.bury(forgotten)
        self._archive.clear(
            self._work.fence, lambda names: set(self._receipts.seals(names)), self._receipts.parts
        )
        self._adopt_unknown(listed, heads)

    def _drop(self, name: str, listed: list[str]) -> None:
        """Finish the exchange of a commit for the one that took it over."""
        if name in listed:
            self._archive.drop(self._archive.manifest(name))
            listed.remove(name)
        self._receipts.bury(name)

    def _adopt_unknown(self, listed: list[str], last: list[Manifest]) -> None:
        """Register the commits that have no receipt, each after those that came before it; `last` are those
        of the heads. Where the archive tells of receipts that are not there, a new one says so."""
        unknown = set(listed) - set(self._receipts.seals(listed))
        manifests = [self._archive.manifest(name) for name in unknown]
        chain, heads = self._archive.chain, read_heads(self._receipts)
        if heads is None and listed:  # all receipts are lost
            last = chain.leaves(manifests)
            sequence = max(it.sequence for it in last)
            links = [it.link for it in last]
            self._transaction(partial(write_heads, self._receipts, sequence, links))
            heads = Heads(sequence, tuple(links), frozenset())
        told = latest([*last, *manifests])
        lost = told if told is not None and self._work.deletions.lacks(told) else None
        floor = min((it.sequence for it in manifests), default=0)
        before = chain.walk(heads.links, lost=heads.lost, floor=floor) if heads and manifests else []
        covered = {it.link for it in before if isinstance(it, Manifest)}
        for manifest in sorted(manifests, key=lambda it: (it.sequence, it.fence, it.commit)):
            self._work.check()
            if manifest.replaces in listed or not self._archive.has_files(manifest):
                # the exchange wasn't finished; or it came from a run that had lost its lease, when the files
                # had been cleared already
                self._archive.drop(manifest)
            else:
                is_forgotten = lost is not None or self._is_forgotten(manifest)
                self._adopt(manifest, manifest.link in covered, is_forgotten)
        if lost is not None:
            self._transaction(partial(self._work.deletions.bridge, lost))

    def _is_forgotten(self, manifest: Manifest) -> bool:
        """Whether this database was put back to before a commit. The count of its leases was, too, so that
        fences come again."""
        run = manifest.fence, manifest.created
        return manifest.fence >= self._work.fence or not self._work.knows_run(*run)

    def _adopt(self, manifest: Manifest, is_covered: bool, is_forgotten: bool) -> None:
        """Learn what of a commit is live, and take out what later runs have archived in other commits. What
        differs from a commit that was forgotten is older than it, or another bucket: no newer version."""
        copied = self._archive.load(manifest)
        live = np.ones(len(copied), dtype=np.bool_)
        if not self._measured:
            found = compare_all(self._work.database, self._work.policy, copied)
            live[[*found.gone, *found.changed] if is_forgotten else found.gone] = False
        self._register(manifest, live, is_new=not is_covered, deleted=int((~live).sum()))
        if elsewhere := self._elsewhere(manifest, copied):
            self._amend(manifest, elsewhere)

    def _elsewhere(self, manifest: Manifest, copied: Batch) -> list[int]:
        """Buckets of a commit that another one holds as they are, or, from a later run, in a newer version:
        none was deleted on account of this commit, so that it changed while it was live."""
        others = self._archive.manifests(as_ms(manifest.first), as_ms(manifest.last) + 1)
        known = self._receipts.seals(other.commit for other in others)
        equal: set[bytes] = set()
        newer: set[bytes] = set()
        for other in others:
            if other.commit != manifest.commit:
                batch = self._archive.load(other)
                equal.update(units(self._work.policy, batch))
                if other.commit in known and other.fence > manifest.fence and not self._measured:
                    newer.update(batch.main.raw_id(i) for i in range(len(batch)))
        mine = units(self._work.policy, copied)
        return [i for i, it in enumerate(mine) if it in equal or copied.main.raw_id(i) in newer]

    def settle(self, start_ms: int, end_ms: int) -> None:
        if self._work.kept:
            return
        for receipt in list(self._receipts.in_state("open", "offline")):
            manifest = self._archive.manifest(receipt["_id"]["name"])
            outside = as_ms(manifest.last) < start_ms or as_ms(manifest.first) >= end_ms
            if outside or self._work.in_grace(manifest.created):
                continue
            decoded = decode(self._archive.load(manifest), manifest.archived_policy)
            due = np.zeros(manifest.buckets, dtype=np.bool_)
            due[decoded.units] = (decoded.last >= start_ms) & (decoded.last < end_ms)
            indices = np.flatnonzero(due & self._receipts.live(manifest.commit, manifest.buckets))
            indices = indices[self._work.without_pinned(self._archive.load(manifest).take(indices))]
            if not len(indices) or not self._is_rolled_up(manifest):
                continue
            if changed := self._delete(manifest, indices):
                self._amend(manifest, changed)  # and this run finds the newer ones as it goes on

    def misfit(self, series: Series) -> tuple[str, object] | None:
        return self._archive.misfit(series)

    def fresh(self, batch: Batch, first_ms: int, last_ms: int) -> Indices:
        """Buckets that are copied already stay out; where one has changed since, its old copy goes."""
        if self._before is None:  # looked up once: what is committed from now on holds what was just read
            self._before = {commit.name: commit for commit in self._archive.commits()}
        others = self._archive.manifests(first_ms, last_ms + 1, self._before.values())
        found = self._not_held(batch, others) if others else np.arange(len(batch))
        return found[~self._met_before(batch, first_ms, last_ms)[found]] if self._waiting else found

    def _met_before(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.bool_]:
        """Buckets that have grown since this run copied them, so that it meets them again: with another copy
        beside the first, what both hold would be double. The next run takes the first one out."""
        mine, met = _names(batch), np.zeros(len(batch), dtype=np.bool_)
        for waiting in self._waiting:
            if waiting.first <= last_ms and waiting.last >= first_ms:
                at = np.searchsorted(waiting.names, mine)
                met |= waiting.names[np.minimum(at, len(waiting.names) - 1)] == mine
        count = int(met.sum())
        self._work.report.leave(-count, self._work.kept or self._grace)  # each is told once
        self._work.report.change(count)
        return met

    def _not_held(self, batch: Batch, others: list[Manifest]) -> Indices:
        held: set[bytes] = set()
        live_units = units(self._work.policy, batch)
        as_live, identities = set(live_units), {batch.main.raw_id(i) for i in range(len(batch))}
        for manifest in others:
            copied = self._archive.load(manifest)
            live = self._receipts.live(manifest.commit, len(copied))
            same, outdated = [], []
            for i, unit in enumerate(units(self._work.policy, copied)):
                if unit in as_live:
                    same.append(i)
                    held.add(unit)
                elif live[i] and not self._measured and copied.main.raw_id(i) in identities:
                    outdated.append(i)
            self._settle_held(manifest, same, outdated, live)
        return np.array([i for i, unit in enumerate(live_units) if unit not in held], dtype=np.int64)

    def _settle_held(
        self, manifest: Manifest, same: list[int], outdated: list[int], live: NDArray[np.bool_]
    ) -> None:
        """Of a commit: live buckets that equal its copies, and live ones that are newer than its copies."""
        work = self._work
        waits = work.kept or (work.in_grace(manifest.created) and self._grace)
        if waits or work.dry_run:
            work.report.leave(len(same), waits or _HELD)
        if work.dry_run:
            return
        if not live[same].all():  # they were deleted, and came back as they were
            live[same] = True
            self._register(manifest, live, is_new=False)
        if same and not waits:
            if self._is_rolled_up(manifest):
                changed = self._delete(manifest, np.array(same, dtype=np.int64))
                work.report.change(len(changed))
                outdated = sorted({*outdated, *changed})
            else:
                work.report.leave(len(same), NOT_ROLLED_UP)
        if outdated:
            self._amend(manifest, outdated)

    def move(self, lot: Lot) -> None:
        """The copy is written and verified while the next buckets are read, and those before are deleted."""
        if (self._work.kept or self._work.in_grace(self._work.now)) and not self._measured:
            times, last = lot.decoded.columns.time, lot.decoded.last
            first = int(times.min(initial=last.min()))
            self._waiting.append(_Waiting(first, int(last.max()), np.sort(_names(lot.batch))))
        self._copies.begin(lot)
        self._settle_copies(self._copies.ahead)

    def finish(self) -> None:
        self._settle_copies(0)

    def close(self) -> None:
        self._copies.close()

    def _settle_copies(self, ahead: int) -> None:
        """Commit what is copied, but for the last `ahead` copies, and delete what may go."""
        for copied in self._copies.done(ahead):
            manifest = self._archive.commit(copied, self._place(), self._work.check)
            self._register(manifest, np.ones(manifest.buckets, dtype=np.bool_), is_new=True)
            report = self._work.report
            report.parts += len(manifest.parts)
            report.bytes += manifest.size
            if self._work.kept:
                report.leave(manifest.buckets, self._work.kept)
            elif self._work.in_grace(manifest.created):
                report.leave(manifest.buckets, self._grace)
            elif not self._is_rolled_up(manifest):  # windows may have been, while the copy was made
                report.leave(manifest.buckets, NOT_ROLLED_UP)
            elif changed := self._delete(manifest, np.arange(manifest.buckets)):
                report.change(len(changed))
                self._amend(manifest, changed)

    def _delete(self, manifest: Manifest, due: Indices) -> list[int]:
        """Delete these buckets of a commit, as read back from the store; returns those that had changed."""
        changed: list[int] = []
        gone: list[int] = []
        at = 0
        copies = self._archive.load(manifest)
        due = due[copies.take(due).main.id_order()]  # what lies together in the source goes together
        for piece in chunks(copies.take(due)):
            here = due[at : at + len(piece)]
            at += len(piece)
            self._work.check()
            self._archive.see(manifest)
            outcome = guarded_delete(
                self._work.database,
                self._work.policy,
                piece,
                self._work.guard,
                partial(self._record, manifest, here, piece),
            )
            changed += here[outcome.changed].tolist()
            gone += here[outcome.gone].tolist()
            self._work.report.deleted += len(outcome.deleted)
        if gone:
            self._keep(manifest, gone)
        return changed

    def _keep(self, manifest: Manifest, gone: list[int]) -> None:
        """Copies whose buckets somebody else has deleted count from now on. Where they lie nothing may tell:
        a bucket may have moved before. Until that is rolled up, the next run finds them again."""
        if not self._is_rolled_up(manifest, anew=True):
            return

        def step(session: ClientSession) -> None:
            live = self._receipts.live(manifest.commit, manifest.buckets, session)
            live[gone] = False
            self._receipts.set_live(manifest.commit, live, self._facts(manifest), session)

        self._transaction(step)

    def _record(
        self, manifest: Manifest, here: Indices, piece: Batch, session: ClientSession, outcome: Outcome
    ) -> None:
        live = self._receipts.live(manifest.commit, manifest.buckets, session)
        live[here[outcome.deleted]] = False
        facts = self._facts(manifest)
        self._receipts.set_live(manifest.commit, live, facts, session, len(outcome.deleted))
        files = [{"key": file.key, "sha256": file.sha256} for file in manifest.files]
        positions = sorted(zip(here[outcome.deleted].tolist(), outcome.deleted, strict=True))
        self._work.deletions.record(
            session,
            [piece.unit(i) for _, i in positions],
            {"positions": ranges([position for position, _ in positions])},
            {"commit": manifest.commit, "manifest_sha256": manifest.sha256, "files": files},
        )

    def _is_rolled_up(self, manifest: Manifest, *, anew: bool = False) -> bool:
        """A live bucket may equal its copy, and have been another when its windows were rolled up last."""
        return self._work.rolled_up(as_ms(manifest.first), as_ms(manifest.last) + 1, anew=anew)

    def _register(
        self, manifest: Manifest, live: NDArray[np.bool_], *, is_new: bool, deleted: int = 0
    ) -> None:
        facts = self._facts(manifest)

        def step(session: ClientSession) -> None:
            self._receipts.set_live(manifest.commit, live, facts, session, deleted)
            if is_new:
                advance(self._receipts, manifest, session)

        self._transaction(step)

    def _transaction(self, step: Callable[[ClientSession], None]) -> None:
        transaction(self._work.database, self._work.guard, step)

    def _place(self) -> Place:
        heads = read_heads(self._receipts) or Heads(0, (), frozenset())
        return Place(heads.sequence + 1, heads.links, last_receipt(self._receipts))

    def _facts(self, manifest: Manifest) -> dict[str, object]:
        return {
            "collection": manifest.collection,
            "parts": [part.key for part in manifest.parts],
            "documents_sha256": manifest.documents_sha256,
            "seal": manifest.sha256,
            "at": self._work.now,
        }

    def _amend(self, manifest: Manifest, leaving: Sequence[int]) -> None:
        """Take buckets out of a commit: one without them takes it over.

        The exchange is done when the receipts say so, in a transaction that fails for a run that has lost
        its lease. Until then, and until the old commit is dropped, who reads manifests skips the one that
        is replaced; `recover` goes on, or back, after a crash.
        """
        held = self._archive.load(manifest)
        staying = np.setdiff1d(np.arange(len(held)), leaving)
        self._archive.set_aside(manifest.commit, held.take(np.array(leaving, dtype=np.int64)))
        successor, place = None, np.zeros(0, dtype=np.int64)
        if len(staying):
            remaining = held.take(staying)
            ready = Ready.of(Lot(remaining, manifest.archived_policy))  # as what they were archived
            copy = self._archive.copy(
                ready, manifest.series_types, self._origin, self._work.check, manifest.commit
            )
            successor = self._archive.commit(copy, self._place(), self._work.check)
            index = {remaining.unit(i): staying[i] for i in range(len(remaining))}
            copied = self._archive.load(successor)
            place = np.array([index[copied.unit(i)] for i in range(len(copied))], dtype=np.int64)

        def exchange(session: ClientSession) -> None:
            live = self._receipts.live(manifest.commit, len(held), session)
            old = self._receipts.get(manifest.commit, session) or {}
            if successor is not None:
                facts, deleted = self._facts(successor), old.get("deleted", 0)
                self._receipts.set_live(successor.commit, live[place], facts, session, deleted)
                advance(self._receipts, successor, session)
            self._receipts.update(manifest.commit, {"$set": {"state": "replaced"}}, session)

        self._transaction(exchange)
        if self._before is not None and manifest.commit in self._before:
            del self._before[manifest.commit]
            if successor is not None:
                self._before[successor.commit] = successor.name
        self._archive.drop(manifest)
        self._receipts.bury(manifest.commit)

    @property
    def _grace(self) -> str:
        return f"copied, and waits for the grace of {self._work.archive.grace}"

    @property
    def _measured(self) -> bool:
        """Measurements of a native time-series collection don't change, and may share an `_id`."""
        return self._work.policy.model == "timeseries"


def _names(batch: Batch) -> Indices:
    return np.fromiter(map(hash, batch.main.raw_ids), np.int64, len(batch))
