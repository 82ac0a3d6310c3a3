"""Finds the commits of an offline archive, and those that may hold something of a range."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol, Self

from bucketwise.archivers.format.chain import Chain
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import DamagedError, Manifest
from bucketwise.archivers.format.names import Commit, commits, day, manifest_key
from bucketwise.archivers.stores.base import NotFound, ObjectStore
from bucketwise.buckets.fields.times import DAY_MS, as_ms
from bucketwise.config.policies import Policy


class CommitIndex(Protocol):
    """Answers questions about commits without reading the store."""

    def seal(self, commit: str) -> str | None:
        """Returns the seal that a commit's manifest has to have, where that is known."""

    def was_made(self, manifest: Manifest, chain: Chain) -> bool:
        """Returns whether a manifest is one of the archive's, though its commit may have been dropped."""

    def versions(self, manifest: Manifest, chain: Chain) -> Collection[str] | None:
        """Returns the SHA-256 of each file that keeps buckets which have left a dropped commit; None where
        nothing tells, since an older release has dropped it. Raises DamagedError where what tells is not as
        it was written."""

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
        replaced = {name for manifest in named for name in manifest.replaces}
        return [manifest for manifest in found if manifest.commit not in replaced]

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
