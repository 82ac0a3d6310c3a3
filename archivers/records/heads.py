"""The heads of the chain of manifests, recorded in MongoDB. The store has to hold these.

A commit takes the place of the heads that it names, in the transaction that writes its receipt. There is one
head, and more for a while after a run that had lost its lease: the next commit joins them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pymongo import UpdateOne
from pymongo.client_session import ClientSession

from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.chain import Chain, Checkpoint, CheckpointRecord, read_checkpoint
from bucketwise.archivers.format.manifest import DamagedError, Link, Manifest
from bucketwise.archivers.format.names import Commit, commit_at
from bucketwise.archivers.records.receipts import Receipts, commit_of, reading
from bucketwise.config.errors import HaltedError

Document = dict[str, Any]
#: The document among the receipts that names the heads.
HEADS = "heads"


class Heads(NamedTuple):
    """The heads of a chain. `sequence` is the largest of theirs. `lost` are seals that a person has given up.
    `checkpoint` is the last one that was made. `damaged` are commits that a run found damaged when their
    originals were due."""

    sequence: int
    links: tuple[Link, ...]
    lost: frozenset[str]
    checkpoint: CheckpointRecord | None = None
    damaged: tuple[str, ...] = ()

    def walk(
        self, chain: Chain, registered: Iterable[Commit], vouched: Collection[Link] = ()
    ) -> Iterator[Manifest | DamagedError]:
        """Yields all manifests of the chain, as `Chain.walk` does: from the heads on and, where manifests are
        lost, from the commits with receipts (`registered`), since what came before a lost manifest is reached
        only from them."""
        others = [link_of(it) for it in registered] if self.lost else []
        return chain.walk([*self.links, *others], lost=self.lost, vouched=vouched)


def link_of(commit: Commit) -> Link:
    """Returns the link to a registered commit's manifest."""
    assert commit.seal is not None
    with reading(commit.name):
        return Link(sequence=commit.sequence, commit=commit.name, sha256=commit.seal)


def commit_of_link(link: Link) -> Commit:
    """Returns the commit whose manifest a link leads to."""
    commit = commit_at(link.commit, link.sequence, link.sha256)
    assert commit is not None  # the model checks the name
    return commit


def read_heads(receipts: Receipts) -> Heads | None:
    """Returns the recorded heads; None where no commit was ever registered, or all receipts were lost."""
    return heads_of(receipts.get(HEADS))


def heads_of(found: Document | None) -> Heads | None:
    """Returns the heads, as the document `HEADS` of the receipts tells them; None without one."""
    if found is None:
        return None
    with reading(HEADS):
        links = tuple(Link(**link) for link in found["commits"])
        made = found.get("checkpoint")
        checkpoint = CheckpointRecord(**made) if made else None
        lost, damaged = frozenset(found.get("lost", ())), tuple(found.get("damaged", ()))
        return Heads(found["sequence"], links, lost, checkpoint, damaged)


def heads_update(receipts: Receipts, manifest: Manifest) -> UpdateOne:
    """Returns the update that makes a commit a head, in place of the heads that it names. The server computes
    it, so nothing has to be read first."""
    previous = [link.sha256 for link in manifest.previous]  # documents differ where only their order does
    commits = {"$ifNull": ["$commits", []]}
    others = {"$filter": {"input": commits, "cond": {"$not": {"$in": ["$$this.sha256", previous]}}}}
    now = {
        "kind": "heads",
        "sequence": {"$max": ["$sequence", manifest.sequence]},
        "commits": {"$concatArrays": [others, {"$literal": [manifest.link.model_dump()]}]},
        **_known_types(manifest),
    }
    return receipts.update_of(HEADS, [{"$set": now}])


def types_update(receipts: Receipts, manifest: Manifest) -> UpdateOne:
    """Returns the update for a registered commit that is no head: the types of its series columns."""
    return receipts.update_of(HEADS, [{"$set": _known_types(manifest)}])


def _known_types(manifest: Manifest) -> Document:
    """Returns the types of a commit's series columns. One archive is one table: with the same series fields,
    all commits have the same types."""
    pairs = [list(it) for it in sorted(manifest.series_types.items())]
    return {"types": {"$setUnion": [{"$ifNull": ["$types", []]}, [{"$literal": pairs}]]}}


def types_of(found: Document | None, fields: Sequence[str]) -> dict[str, str] | None:
    """Returns the types of the series columns, as the document `HEADS` tells them; None where it knows of no
    commit with these fields."""
    with reading(HEADS):
        for pairs in found.get("types", ()) if found else ():
            types = {str(name): str(kind) for name, kind in pairs}
            if types.keys() == set(fields):
                return {name: types[name] for name in fields}
    return None


def write_heads(receipts: Receipts, sequence: int, links: Iterable[Link], session: ClientSession) -> None:
    """Records the heads of the chain, and the number of the last one, in a transaction."""
    commits = [link.model_dump() for link in links]
    receipts.update(HEADS, {"$set": {"kind": "heads", "sequence": sequence, "commits": commits}}, session)


def write_checkpoint_record(receipts: Receipts, record: CheckpointRecord, session: ClientSession) -> None:
    """Records the newest checkpoint, in a transaction."""
    receipts.update(HEADS, {"$set": {"checkpoint": record._asdict()}}, session)


def note_damaged(receipts: Receipts, commit: str) -> None:
    """Records that a commit was found damaged."""
    receipts.update(HEADS, {"$addToSet": {"damaged": commit}})


def note_repaired(receipts: Receipts, commits: Sequence[str]) -> None:
    """Records that these commits no longer are."""
    if commits:
        receipts.update(HEADS, {"$pullAll": {"damaged": list(commits)}})


def with_replaced(receipts: Receipts, archive: OfflineArchive, manifest: Manifest) -> list[Manifest]:
    """Returns a manifest and those of all commits that it took over, and that these took over before. Raises
    DamagedError where one of them is gone."""
    found = {manifest.link: manifest}
    waiting = [manifest]
    while waiting:
        names = [name for it in waiting for name in it.replaces]
        known = [commit_of(it) for it in receipts.get_all(names).values() if "seal" in it] if names else []
        waiting = [archive.chain.link(link_of(it)) for it in known if it is not None]
        waiting = [it for it in waiting if it.link not in found]
        found |= {it.link: it for it in waiting}
    return list(found.values())


class CheckedHeads(NamedTuple):
    """The heads, and their manifests. `registered`: those of them that have receipts, by name. `repaired`:
    commits that were found damaged, and no longer are."""

    heads: Heads | None
    manifests: list[Manifest]
    registered: Mapping[str, Commit]
    repaired: tuple[str, ...] = ()


def check_heads(receipts: Receipts, archive: OfflineArchive, *, goes_on: bool = False) -> CheckedHeads:
    """Returns what the store has of the heads. Raises HaltedError where it does not hold them, since it is
    another store, or an older state of this one; `goes_on`: also where a commit that was found damaged still
    is, since nothing is to follow it until then."""
    heads = read_heads(receipts)
    if heads is None and receipts.all_registered():
        heads = read_heads(receipts)  # a run may have made the first commit in between
        if heads is None:
            raise HaltedError(
                f"policy {receipts.policy}: its commits have receipts, and the record of the chain's heads "
                "is gone from bucketwise_receipts. Nothing was changed. Restore it from a backup, or "
                "remove all receipts of the policy: `bucketwise adopt` then finds the heads in the store"
            )
    if heads is None:
        return CheckedHeads(None, [], {})
    links = [link for link in heads.links if link.sha256 not in heads.lost]
    known = receipts.registered(link.commit for link in links)
    found = [_head(archive, link, known.get(link.commit)) for link in links]
    if goes_on and heads.damaged:
        _check_repaired(receipts, archive, heads.damaged)
    return CheckedHeads(heads, found, known, heads.damaged if goes_on else ())


def _check_repaired(receipts: Receipts, archive: OfflineArchive, damaged: Sequence[str]) -> None:
    known = receipts.registered(damaged)
    for name in sorted(receipts.current(list(known))):
        if not archive.is_there(known[name]):
            archive.raise_missing(known[name])
        archive.check_stored(archive.manifest(known[name]))


def check_none_reappeared(receipts: Receipts, archive: OfflineArchive) -> None:
    """Raises DamagedError where the store holds a commit that was dropped, since it is then an older state of
    itself."""
    dropped = receipts.dropped()  # before the listing: a concurrent run drops first
    for commit in archive.commits() if dropped else ():
        if commit.name in dropped and archive.manifest(commit).sha256 == dropped[commit.name]:
            raise _rolled_back(archive, commit, "it was dropped, and has come back")


def check_all_present(
    receipts: Receipts, archive: OfflineArchive, *, adopts: bool, merged: Collection[str] = ()
) -> list[Commit]:
    """Raises DamagedError where a commit with a receipt has no manifest: the store is another one, or
    incomplete. `adopts`: returns the commits that were dropped, which this database has forgotten. `merged`:
    names of commits of which is known that another one has taken them over."""
    missing = [it for it in archive.missing(receipts.commits) if it.name not in merged]
    for commit in missing:
        if not (adopts and is_forgotten(receipts, archive, commit)):
            archive.raise_missing(commit)
    return missing


def is_forgotten(receipts: Receipts, archive: OfflineArchive, commit: Commit) -> bool:
    """Returns whether a commit without a manifest was dropped by a run that this database, restored from a
    backup, has forgotten. False where any original was deleted, since no other copy may be left."""
    try:
        manifest = archive.chain.link(link_of(commit))
    except DamagedError:
        return False
    return bool(receipts.live(commit.name, manifest.buckets).all())


def _head(archive: OfflineArchive, link: Link, known: Commit | None) -> Manifest:
    try:
        return archive.chain.link(link, known.seal if known else None)
    except DamagedError as error:
        if error.code != "chain-broken":
            raise
    commit = commit_of_link(link)
    raise _rolled_back(archive, commit, "the manifest is missing, though it was the last of the archive")


def _rolled_back(archive: OfflineArchive, commit: Commit, what: str) -> DamagedError:
    remedy = (
        "Restore the store from its versions or a backup: see “What to do at exit 5” in the operations manual"
    )
    return DamagedError(
        "store-rolled-back", archive.place(commit), f"{what}: the store is not as it was left", remedy
    )


def last_checkpoint(receipts: Receipts, archive: OfflineArchive, heads: Heads) -> Checkpoint | None:
    """Returns the checkpoint that these heads name, or a later one; None where they name none. Raises
    DamagedError where it is not as it was written."""
    record = heads.checkpoint
    if record is None:
        return None
    try:
        return read_checkpoint(archive.store, archive.policy.identity, record, archive.chain.keys)
    except DamagedError:
        now = read_heads(receipts)
        if now is None or now.checkpoint in (None, record):
            raise
    return last_checkpoint(receipts, archive, now)  # a concurrent run has made another one


def unreached(
    receipts: Receipts,
    archive: OfflineArchive,
    heads: Heads,
    registered: Collection[Commit],
    reached: set[Link],
) -> list[DamagedError]:
    """Returns an error for each registered commit that neither the chain nor a checkpoint leads to.
    `reached`: as far as the last checkpoint. A commit that had no receipt when the checkpoint was made is
    older, and not listed in it."""
    missing = [it for it in registered if link_of(it) not in reached and it.seal not in heads.lost]
    still = receipts.registered(it.name for it in missing)  # a concurrent run may have dropped some
    missing = [it for it in missing if still.get(it.name) == it]
    if not missing:
        return []
    whole = heads.walk(archive.chain, registered)
    found = {it.link for it in whole if isinstance(it, Manifest)}
    what = "the chain of manifests does not lead to it"
    lost = [archive.place(it) for it in missing if link_of(it) not in found]
    return [DamagedError("chain-broken", place, what) for place in lost]
