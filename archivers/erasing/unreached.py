"""Places that no erasure reaches, and what can't be known of them."""

from __future__ import annotations

from collections.abc import Iterator

from archivers.context import ArchiveContext
from archivers.erasing.erasure import Erasure
from archivers.erasing.report import Remaining
from archivers.stores.base import ObjectStore, StoreError
from buckets.fields.times import as_text

_DIGESTS = (
    "manifests and receipts keep digests of what was erased, and filters that tell which series a commit "
    "held: whoever knows nearly all of a document can find the rest by trial"
)
_NUMBERS = (
    "numbers, true, false, and texts of one or two characters are looked for as values of the series, and "
    "not inside texts"
)
_OPLOG = "it contains what was deleted until that is overwritten"
_OTHERS = "backups, exports, logs, and collections into which buckets were restored are not searched"


def unreached(context: ArchiveContext, erasure: Erasure) -> Iterator[Remaining]:
    """Yields the places that an erasure does not reach. Only older versions of files count as found."""
    if context.store is not None and context.to == "offline":
        yield from _older_versions(context.store, erasure.policy.name)
        yield Remaining(f"{context.store.url}/{erasure.policy.name}/meta", _DIGESTS, False)
    if not erasure.matcher.is_whole and not erasure.within.is_bounded:
        yield Remaining("collections and files", _NUMBERS, False)
    yield Remaining("the oplog of MongoDB", _OPLOG, False)
    yield Remaining("elsewhere", _OTHERS, False)


def _older_versions(store: ObjectStore, policy: str) -> Iterator[Remaining]:
    place = f"{store.url}/{policy}/"
    try:
        older = store.older_versions(f"{policy}/")
    except StoreError as error:
        yield Remaining(place, f"cannot find out whether older versions of files are kept: {error}", False)
        return
    if older.count:
        until = older.locked_until
        lock = "" if until is None else f", and locks some of them until {as_text(until)}"
        why = (
            f"the store keeps {older.count:,} older versions of files{lock}. Delete them by their version ids"
        )
        yield Remaining(place, why, True)
