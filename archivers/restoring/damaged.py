"""What a damaged archive can't give: found before anything is restored, or left out where that is asked for.

What is missing is named by the receipts of the deletes of its buckets. Those of a merged commit name the
commits that it was made from.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import DamagedError, Manifest, origins_in
from bucketwise.archivers.records.heads import with_replaced
from bucketwise.archivers.records.receipt_files import numbered_for
from bucketwise.archivers.records.receipts import live_of
from bucketwise.archivers.restoring.put import RestoreFilter
from bucketwise.archivers.versions.superseded import Superseded
from bucketwise.config.errors import HaltedError

Document = dict[str, Any]
#: Files that are asked for at once.
_AT_ONCE = 8
#: Damages that an error names.
_MOST_NAMED = 3


class MissingBuckets(NamedTuple):
    """Buckets that the archive can't give. `live`: how many of them are still in the source. `receipts`: of
    the deletes of the others, and maybe of further buckets of the same commits."""

    commit: str
    place: str
    reason: str
    first: datetime | None
    last: datetime | None
    buckets: int
    live: int
    receipts: list[Document]


@dataclass
class DamageFound:
    """The damage that was met: an `OnDamage` that leaves it out."""

    met: dict[tuple[str, int | None, str], DamagedError] = field(default_factory=dict)

    def __call__(self, error: DamagedError, commit: str, section: int | None) -> None:
        """Notes damage once for each section of a commit, or file beside it."""
        self.met.setdefault((commit, section, error.place if section is None else ""), error)


def check_sound(archive: OfflineArchive, wanted: RestoreFilter) -> None:
    """Raises HaltedError where the archive can't give something that may be wanted: a manifest, a file of a
    commit, or one beside the commits is missing or changed. Reads what the store can't tell."""
    found = DamageFound()
    archive.on_damage, before = found, archive.on_damage
    try:
        _look(archive, wanted)
    finally:
        archive.on_damage = before
    if found.met:
        damage = [f"{it.place}: {it.what}" for it in found.met.values()]
        more = f"; and {len(damage) - _MOST_NAMED:,} more" if len(damage) > _MOST_NAMED else ""
        raise HaltedError(
            f"policy {archive.policy.name}: the archive can't give all that is asked for: "
            f"{'; '.join(damage[:_MOST_NAMED])}{more}. Nothing was restored. Put back what is damaged, or "
            "restore the rest with --skip-damaged"
        )


def _look(archive: OfflineArchive, wanted: RestoreFilter) -> None:
    def look(place: tuple[Manifest, int]) -> None:
        manifest, number = place
        try:
            archive.check_section(manifest, number)
        except DamagedError as error:
            archive.on_damage(error, manifest.commit, number)

    manifests = archive.manifests(wanted.start, wanted.end)
    places = ((it, n) for it in manifests for n, is_wanted in enumerate(wanted.sections_of(it)) if is_wanted)
    with ThreadPoolExecutor(_AT_ONCE, "bucketwise-looks") as pool:
        for _ in pool.map(look, places):
            pass
    superseded = Superseded(archive)
    for file, manifest in superseded.around(wanted.start, wanted.end):
        if wanted.may_hold(manifest):
            superseded.check(file)


def missing_buckets(
    context: ArchiveContext, archive: OfflineArchive, found: DamageFound
) -> list[MissingBuckets]:
    """Returns what was left out, in the order of commits."""
    return [
        _missing(context, archive, commit, section, error)
        for (commit, section, _), error in sorted(found.met.items(), key=lambda it: str(it[0]))
    ]


def _missing(
    context: ArchiveContext, archive: OfflineArchive, commit: str, section: int | None, error: DamagedError
) -> MissingBuckets:
    receipt, names, span = context.receipts.get(commit) or {}, [commit], slice(None)
    first, last = receipt.get("first"), receipt.get("last")
    if section is not None:
        manifest = archive.manifest(context.receipts.registered([commit])[commit])
        first, last = manifest.sections[section].first, manifest.sections[section].last
        span = slice(*manifest.edges[section : section + 2])
        with contextlib.suppress(DamagedError):  # one of those that it replaced: what is known has to do
            taken_over = with_replaced(context.receipts, archive, manifest)
            mine = origins_in(manifest, span.start, span.stop)
            names = [it.commit for it in taken_over if mine & origins_in(it, 0, it.buckets)]
    live = live_of(receipt, receipt.get("buckets", 0))[span]
    receipts = numbered_for(context.receipts, context.receipt_files, 0, names)
    return MissingBuckets(
        commit, error.place, error.what, first, last, len(live), int(live.sum()), list(map(_named, receipts))
    )


def _named(receipt: Document) -> Document:
    held_by = receipt["held_by"]["commit"]
    kept = ("sequence", "at", "buckets", "positions", "documents_sha256")
    return {**{key: receipt.get(key) for key in kept}, "commit": held_by}
