"""The manifests of one policy in a store, as a chain: each names the seals of those before it.

Nothing here knows MongoDB. The caller keeps the heads there, and passes them in.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, NoReturn, TypeVar

from bucketwise.archivers.format.checkpoint import Checkpoint
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import (
    DamagedError,
    LastReceipt,
    Link,
    Manifest,
    read_link,
    read_manifest,
)
from bucketwise.archivers.format.names import Commit, commit_at, link_key, links, manifest_key
from bucketwise.archivers.format.seals import encoded, sealed, signed
from bucketwise.archivers.stores.base import AlreadyExists, Corrupt, NotFound, ObjectStore
from bucketwise.config.errors import HaltedError

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

    def manifest(self, commit: Commit) -> Manifest:
        """Returns the manifest of a commit. It never changes, so it is read once, unless very many are.
        Raises NotFound, and DamagedError where it is not the one that was committed."""
        at = commit.sequence, commit.name
        if at not in self._manifests:
            manifest = read_manifest(self._store, self._policy, commit)
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
            manifest = self.manifest(commit)
            if manifest.sha256 == link.sha256:
                return manifest
        place = self._place(link_key(self._policy, link.commit, link.sha256))
        try:
            manifest = read_link(self._store, self._policy, link.commit, link.sha256)
        except NotFound:
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
        self.put(link_key(self._policy, manifest.commit, manifest.sha256), self._store.get_bytes(key))
        self._store.delete([key])
        self._manifests.pop((manifest.sequence, manifest.commit), None)

    def sign(self, manifest: Manifest, keys: Keys) -> bool:
        """Signs a manifest, or the link that is left of it, unless the first key has signed it. Returns
        whether it was signed now. A reader meanwhile finds the old signature or the new one."""
        signature = keys.sign(manifest.sha256)
        if manifest.signature == signature:
            return False
        for key in (
            manifest_key(self._policy, manifest.sequence, manifest.commit),
            link_key(self._policy, manifest.commit, manifest.sha256),
        ):
            with contextlib.suppress(NotFound):
                self.put(key, signed(self._store.get_bytes(key), signature))
        return True

    def _check_signature(self, manifest: Manifest, place: str) -> None:
        if self.keys is not None:
            self.keys.check(manifest.sha256, manifest.signature, place)

    def _place(self, key: str) -> str:
        return f"{self._store.url}/{key}"

    def put(self, key: str, data: bytes) -> None:
        """Writes a file, and reads it back. Raises HaltedError where it is not what was written."""
        for _ in range(2):  # damaged on its way, it is put once more
            self._store.put_bytes(key, data)
            if self._holds(key, data):
                return
        self._halt(key)

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self._store.get_bytes(key) == data
        except Corrupt:
            return False

    def _halt(self, key: str) -> NoReturn:
        raise HaltedError(
            f"{self._place(key)}: read back, it is not the file that was written. "
            "Nothing was deleted. Look at the store, remove that file, then run again"
        )
