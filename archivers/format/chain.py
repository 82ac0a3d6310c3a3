"""The manifests of one policy in a store: their chain, and those that may hold something of a range.

Each manifest names the seals of those before it. Nothing here knows MongoDB. The caller keeps the heads
there, and passes them in.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import NamedTuple, NoReturn, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bucketwise.archivers import decisions
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import (
    SCHEMA_VERSION,
    UNSEALED,
    DamagedError,
    LastReceipt,
    Link,
    Manifest,
    encoded,
    has_seal,
    read_link,
    read_manifest,
    seal_of,
    sealed,
    signed,
)
from bucketwise.archivers.format.names import (
    Commit,
    checkpoint_key,
    commit_at,
    commits,
    day,
    link_key,
    links,
    manifest_key,
)
from bucketwise.archivers.stores.base import AlreadyExists, Corrupt, NotFound, ObjectStore, check_read_back
from bucketwise.buckets.fields.times import DAY_MS, as_ms
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Policy

_REMEDY = (
    "Find out what happened to it, and remove the file if it is there: the next run goes through the whole "
    "chain of manifests, and makes another checkpoint if nothing is wrong"
)


class CheckpointRecord(NamedTuple):
    """The record of the last checkpoint in MongoDB. `commits`: how many it lists."""

    sequence: int
    sha256: str
    commits: int


class Checkpoint(BaseModel):
    """The state of an archive at one number of its chain."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    policy: str
    sequence: int  # the largest of the manifests' numbers
    heads: tuple[Link, ...]  # of the chain
    commits: tuple[Link, ...]  # that stand, or that others have replaced and that are still there
    receipt: LastReceipt | None  # the last one then
    created: datetime
    sha256: str = UNSEALED
    signature: str | None = None

    @property
    def links(self) -> frozenset[Link]:
        """Returns the links of all commits and heads that it names."""
        return frozenset((*self.heads, *self.commits))

    @property
    def key(self) -> str:
        """Returns the key of its file in the store."""
        return checkpoint_key(self.policy, self.sequence, self.sha256)

    @property
    def record(self) -> CheckpointRecord:
        """Returns the record of it that MongoDB keeps."""
        return CheckpointRecord(self.sequence, self.sha256, len(self.commits))


def read_checkpoint(
    store: ObjectStore, policy: str, record: CheckpointRecord, keys: Keys | None
) -> Checkpoint:
    """Returns the checkpoint. Raises DamagedError where it is not the one that was recorded. Without `keys`
    its signature is not verified."""
    key = checkpoint_key(policy, record.sequence, record.sha256)
    place = f"{store.url}/{key}"
    try:
        data = store.get_sound(key, partial(has_seal, seal=record.sha256))
        found = Checkpoint.model_validate_json(data)
    except NotFound:
        what = "the checkpoint is missing, though the database names it"
        raise DamagedError("checkpoint-missing", place, what, _REMEDY) from None
    except Corrupt as error:
        raise DamagedError("checkpoint-differs", place, error.reason, _REMEDY) from None
    except ValidationError as error:
        what = f"the checkpoint can't be read: {error.errors()[0]['msg']}"
        raise DamagedError("checkpoint-differs", place, what, _REMEDY) from None
    if not (seal_of(data) == found.sha256 == record.sha256) or found.policy != policy:
        what = "it is not the checkpoint that was written: the database names another seal"
        raise DamagedError("checkpoint-differs", place, what, _REMEDY)
    if keys is not None:
        keys.check(found.sha256, found.signature, place)
    return found


#: Manifests that are cached: some kilobytes each.
_KEPT = 500
#: A file that vouches for commits.
Vouching = TypeVar("Vouching", Manifest, Checkpoint)


class ChainPosition(NamedTuple):
    """The place of a new manifest in the chain."""

    sequence: int
    previous: tuple[Link, ...]
    receipt: LastReceipt | None


class Chain:
    """The chain of manifests of a policy. `seal_of` returns the seal that a commit's manifest must have,
    where that is known. Without `keys` signatures are not verified."""

    def __init__(
        self, store: ObjectStore, policy: str, seal_of: Callable[[str], str | None], keys: Keys | None
    ) -> None:
        self.keys = keys
        self._store = store
        self._policy = policy
        self._seal_of = seal_of
        self._manifests: dict[tuple[int, str], Manifest] = {}

    def manifest(self, commit: Commit, *, may_be_gone: bool = False) -> Manifest:
        """Returns the manifest of a commit. It never changes, so it is read once, unless very many are.
        Raises NotFound, and DamagedError where it is not the one that was committed. `may_be_gone`: the
        commit may have been dropped."""
        at = commit.sequence, commit.name
        if at not in self._manifests:
            manifest = read_manifest(self._store, self._policy, commit, may_be_gone=may_be_gone)
            place = self._place(manifest_key(self._policy, commit.sequence, commit.name))
            if (commit.seal or self._seal_of(commit.name)) not in (None, manifest.sha256):
                fault = "it is not the manifest that was committed: its receipt has another seal"
                raise DamagedError("part-differs", place, fault)
            self._check_signature(manifest, place)
            if len(self._manifests) == _KEPT:
                self._manifests.pop(next(iter(self._manifests)))
            self._manifests[at] = manifest
        return self._manifests[at]

    def expect(self, seals: Mapping[str, str | None]) -> None:
        """Remembers these seals, so that they need not be looked up."""
        self._seal_of = seals.get

    def link(self, link: Link, seal: str | None = None) -> Manifest:
        """Returns a manifest of the chain, whether its commit is there or was dropped. `seal`: the one that
        its commit is registered with, where the caller knows it. Raises DamagedError."""
        commit = commit_at(link.commit, link.sequence, seal)
        assert commit is not None  # the model checks the name
        with contextlib.suppress(NotFound):
            manifest = self.manifest(commit, may_be_gone=True)
            if manifest.sha256 == link.sha256:
                return manifest
        place = self._place(link_key(self._policy, link.commit, link.sha256))
        try:
            manifest = read_link(self._store, self._policy, link.commit, link.sha256)
        except NotFound:
            with contextlib.suppress(NotFound):  # a copy may have what the store has lost
                if (manifest := self.manifest(commit)).sha256 == link.sha256:
                    return manifest
            place = self._place(manifest_key(self._policy, link.sequence, link.commit))
            fault = f"the manifest is missing, though the chain of manifests names it (seal {link.sha256})"
            raise DamagedError("chain-broken", place, fault) from None
        if manifest.sha256 != link.sha256:
            raise DamagedError("chain-broken", place, "the chain of manifests names another seal")
        self._check_signature(manifest, place)
        return manifest

    def walk(
        self,
        heads: Iterable[Link],
        *,
        lost: Collection[str] = (),
        floor: int = 0,
        vouched: Collection[Link] = (),
    ) -> Iterator[Manifest | DamagedError]:
        """Yields the heads and the manifests before them, leaving out those with a smaller sequence than
        `floor`; in place of one that can't be read, the error. Manifests that only such a one leads to are
        not found. `lost`: seals that a person has given up. `vouched`: manifests that a checkpoint vouches
        for; the walk stops there."""
        waiting = list(heads)
        seen = set(waiting)
        while waiting:
            link = waiting.pop()
            if link.sha256 in lost or link in vouched:
                continue
            try:
                manifest = self.link(link)
            except DamagedError as error:
                yield error
                continue
            if manifest.sequence < floor:
                continue
            yield manifest
            waiting += [link for link in manifest.previous if link not in seen]
            seen.update(manifest.previous)

    def leaves(self, manifests: Iterable[Manifest]) -> list[Manifest]:
        """Returns those of these manifests, and of the dropped ones, that no other one names."""
        found = {it.link: it for it in manifests}
        for link in links(self._store, self._policy):
            manifest = read_link(self._store, self._policy, *link)
            self._check_signature(manifest, self._place(link_key(self._policy, *link)))
            found[manifest.link] = manifest
        named = {link for manifest in found.values() for link in manifest.previous}
        return [manifest for link, manifest in found.items() if link not in named]

    def sealed(self, made: Vouching) -> Vouching:
        """Returns a manifest or checkpoint sealed, and signed where there is a key."""
        made = sealed(made)
        signature = self.keys.sign(made.sha256) if self.keys else None
        return made.model_copy(update={"signature": signature})

    def commit(self, manifest: Manifest) -> None:
        """Writes a manifest, and reads it back. Raises HaltedError where another manifest has its key."""
        key = manifest_key(self._policy, manifest.sequence, manifest.commit)
        data, ours = encoded(manifest), True
        try:
            self._store.put_bytes(key, data, if_absent=True, locked_from=manifest.created)
        except AlreadyExists:
            ours = False
        if self._holds(key, data):
            return
        if ours:  # damaged on its way: the same bytes once more can't harm, whoever reads them by now
            self._store.put_bytes(key, data, locked_from=manifest.created)
            if self._holds(key, data):
                return
        self._halt(key)

    def drop(self, manifest: Manifest) -> None:
        """Takes a commit out; its manifest stays as a link of the chain."""
        key = manifest_key(self._policy, manifest.sequence, manifest.commit)
        data = self._store.get_sound(key, partial(has_seal, seal=manifest.sha256))
        self.put(link_key(self._policy, manifest.commit, manifest.sha256), data)
        self._store.delete([key])
        self._manifests.pop((manifest.sequence, manifest.commit), None)

    def was_dropped(self, manifest: Manifest) -> bool:
        """Returns whether what `drop` leaves of a commit is there."""
        return self._store.head(link_key(self._policy, manifest.commit, manifest.sha256)) is not None

    def sign(self, manifest: Manifest, keys: Keys) -> bool:
        """Signs a manifest, or the link that is left of it, unless the first key has signed it. Returns
        whether it was signed now. A reader meanwhile finds the old signature or the new one."""
        signature = keys.sign(manifest.sha256)
        if manifest.signature == signature:
            return False
        for key, locked_from in (
            (manifest_key(self._policy, manifest.sequence, manifest.commit), manifest.created),
            (link_key(self._policy, manifest.commit, manifest.sha256), None),
        ):
            with contextlib.suppress(NotFound):
                self.put(key, signed(self._store.get_bytes(key), signature), locked_from)
        return True

    def _check_signature(self, manifest: Manifest, place: str) -> None:
        if self.keys is not None:
            self.keys.check(manifest.sha256, manifest.signature, place)

    def _place(self, key: str) -> str:
        return f"{self._store.url}/{key}"

    def put(self, key: str, data: bytes, locked_from: datetime | None = None) -> None:
        """Writes a file, and reads it back. Raises HaltedError where it is not what was written."""
        for _ in range(2):  # damaged on its way, it is put once more
            self._store.put_bytes(key, data, locked_from=locked_from)
            if self._holds(key, data):
                return
        self._halt(key)

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            is_there = self._store.get_bytes(key) == data
            check_read_back(self._store, key)
            return is_there
        except Corrupt:
            return False

    def _halt(self, key: str) -> NoReturn:
        raise HaltedError(
            f"{self._place(key)}: read back, it is not the file that was written. "
            "Nothing was deleted. Look at the store, remove that file, then run again"
        )


class VersionFiles(NamedTuple):
    """The files of superseded versions of one commit, each by its SHA-256. `fence`: of the run that took the
    buckets out of the commit; None where that is not told. `gone`: those that have made way for others, or
    for none."""

    kept: Set[str]
    fence: int | None
    gone: Set[str] = frozenset()


class CommitIndex(Protocol):
    """Answers questions about commits without reading the store."""

    def seal(self, commit: str) -> str | None:
        """Returns the seal that a commit's manifest has to have, where that is known."""

    def was_made(self, manifest: Manifest, chain: Chain) -> bool:
        """Returns whether a manifest is one of the archive's, though its commit may have been dropped."""

    def versions(self, manifest: Manifest, chain: Chain) -> VersionFiles | None:
        """Returns the files that keep buckets which have left a dropped commit; None where nothing tells,
        since an older release has dropped it. Raises DamagedError where what tells is not as it was
        written."""

    def within(self, start_ms: int, end_ms: int) -> list[Commit]:
        """Returns the registered commits that may hold something of [start, end)."""

    def span(self) -> tuple[int, int] | None:
        """Returns the first and the last UTC day, since 1970, of all of them; None where there are none."""

    def types(self, fields: Sequence[str]) -> dict[str, str] | None:
        """Returns the types of the columns of these series fields; None where that is not known."""


#: What to do with damage in a commit: its name, and the number of the section; None: all of it. Where this
#: returns, what is damaged is left out.
OnDamage = Callable[[DamagedError, str, int | None], None]


def refuse(error: DamagedError, _commit: str, _section: int | None) -> None:
    """Raises the error: an `OnDamage` for whoever needs all that is archived."""
    raise error


@dataclass(eq=False)
class ArchivedCommits:
    """The commits of one policy in a store, and how they are found: what the index does not know is no part
    of the archive, whatever lies in the store. Without `keys` signatures are not looked at. `on_damage`
    decides about damaged commits."""

    policy: Policy
    store: ObjectStore
    index: CommitIndex
    keys: Keys | None = None
    on_damage: OnDamage = refuse

    def __post_init__(self) -> None:
        self.chain = Chain(self.store, self.policy.identity, self.index.seal, self.keys)
        self._types: dict[str, str] | None = None

    def commits(self) -> list[Commit]:
        """Returns all commits, by their numbers, as the store lists them."""
        return list(commits(self.store, self.policy.identity))

    def manifest(self, commit: Commit) -> Manifest:
        """Returns the manifest of a commit. Raises NotFound, and DamagedError where it is not the one that
        was committed."""
        return self.chain.manifest(commit)

    def at(self, index: CommitIndex) -> Self:
        """Returns the same commits, as they were registered at another instant."""
        other = copy.copy(self)
        other.index = index
        return other

    def within(self, start_ms: int, end_ms: int) -> list[Commit]:
        """Returns the commits that may hold something of [start, end)."""
        return self.index.within(start_ms, end_ms)

    def manifests(self, start_ms: int, end_ms: int, among: Iterable[Commit] | None = None) -> list[Manifest]:
        """Returns the commits that hold something of [start, end), leaving out those that another one has
        taken over (a crash may leave both). `among` these commits, or all that there are."""
        there = self.within(start_ms, end_ms) if among is None else list(among)
        near = (commit for commit in there if commit.may_hold(start_ms, end_ms))
        named = [manifest for commit in near for manifest in self._undamaged(commit)]
        found = [it for it in named if as_ms(it.first) < end_ms and as_ms(it.last) >= start_ms]
        return decisions.standing(found, named)

    def _undamaged(self, commit: Commit) -> Iterator[Manifest]:
        """Yields the manifest of a commit, unless it is damaged or gone, and that is to be left out."""
        try:
            yield self.current(commit)
        except DamagedError as error:
            self.on_damage(error, commit.name, None)

    def current(self, commit: Commit) -> Manifest:
        """Returns the manifest of a commit. Raises DamagedError where it is gone."""
        try:
            return self.manifest(commit)
        except NotFound:
            self.raise_missing(commit)

    def earliest(self, at_or_after_ms: int) -> int | None:
        """Returns an instant at or after the argument, so that nothing archived lies between the two; None
        where nothing archived is later. Searches spans of doubling length."""
        at, width = at_or_after_ms, DAY_MS
        span: tuple[int, int] | None = None  # asked for where the first day holds nothing
        while True:
            end = (at // DAY_MS + 1) * DAY_MS + width - DAY_MS
            if (found := self._first_start(at, end)) is not None:
                return found
            span = span or self.span()
            if span is None or end >= span[1]:
                return None
            at, width = max(end, span[0]), 2 * width

    def _first_start(self, start_ms: int, end_ms: int) -> int | None:
        """Returns what `earliest` does, in [start, end). Where a commit continues later, another one may lie
        before that. Reads no manifests that begin on later days than what was found."""
        found = end_ms
        for commit in sorted(self.within(start_ms, end_ms), key=lambda it: it.first):
            if commit.first > day(found):
                break
            found = min([found, *self._starts(commit, start_ms)])
        return found if found < end_ms else None

    def _starts(self, commit: Commit, at_or_after_ms: int) -> list[int]:
        """Returns where the days of a commit begin, from the instant on."""
        parts = self.current(commit).parts
        return [max(as_ms(it.first), at_or_after_ms) for it in parts if as_ms(it.last) >= at_or_after_ms]

    def span(self) -> tuple[int, int] | None:
        """Returns a range, in milliseconds, that holds all readings; None where nothing is archived."""
        days = self.index.span()
        return None if days is None else (days[0] * DAY_MS, (days[1] + 1) * DAY_MS)

    def missing(
        self, registered: Callable[[], Iterable[Commit]], listed: Iterable[Commit] | None = None
    ) -> list[Commit]:
        """Returns the registered commits that have no manifest, by name. Where some are missing, reads the
        receipts again: a concurrent run may have dropped them since, or made them since the commits were
        `listed`."""
        missing = self._missing(registered(), listed)
        if not missing:
            return []
        still = self._missing(registered())
        return [still[name] for name in sorted(missing.keys() & still.keys())]

    def _missing(
        self, registered: Iterable[Commit], listed: Iterable[Commit] | None = None
    ) -> dict[str, Commit]:
        wanted = {commit.name: commit for commit in registered}  # before the listing
        for commit in self.commits() if listed is None else listed:
            wanted.pop(commit.name, None)
        return wanted

    def known_types(self) -> dict[str, str]:
        """Returns the types of the series columns, as commits with these series fields have them: one archive
        is one table."""
        if self._types is None:
            fields = self.policy.series_names
            self._types = self.index.types(fields) or {}
        return self._types

    def is_there(self, commit: Commit) -> bool:
        """Returns whether a commit's manifest is."""
        return self.store.head(manifest_key(self.policy.identity, commit.sequence, commit.name)) is not None

    def place(self, commit: Commit) -> str:
        """Returns the url of a commit's manifest."""
        return f"{self.store.url}/{manifest_key(self.policy.identity, commit.sequence, commit.name)}"

    def raise_missing(self, commit: Commit) -> NoReturn:
        """Raises DamagedError for a commit whose manifest has gone."""
        raise DamagedError(
            "part-missing", self.place(commit), "the manifest is missing, though a receipt names it"
        )
