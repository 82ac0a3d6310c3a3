"""Reads a database's change stream once for several policies, so that the server reads its oplog once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pymongo.database import Database
from pymongo.errors import PyMongoError

from buckets.bson.raw import TOLERANT
from buckets.source import Source
from config.errors import BucketwiseError
from config.policies import Policy
from rollups.changes.drain import Drain, Followed, LostError, UnavailableError
from rollups.changes.gathering import Changed
from rollups.changes.reach import may_stream, rolled_up_to
from rollups.progress import Progress, load_all

Document = dict[str, Any]
#: A policy that is so much further behind than the one in front reads the stream by itself: it would cost
#: the others a long read.
MOST_BEHIND_S = 86_400


@dataclass(frozen=True)
class _Told:
    """The changes of a policy since it was rolled up."""

    loaded: Progress
    followed: Followed
    changed: Changed | None = None


class SharedChanges:
    """The changes of the policies that can share a read: they follow the change stream, have been rolled up,
    and have no collection in common with another one.

    It only saves reading. A policy that it does not tell of, or that was rolled up by somebody else in
    the meantime, reads for itself; and so do all where the read fails.
    """

    def __init__(
        self, database: Database[Document], policies: Sequence[Policy], books: str, *, leaves_marks: bool
    ) -> None:
        """`books` and `leaves_marks`: see `Drain`."""
        self._database = database.with_options(codec_options=TOLERANT)
        self._books = books
        self._leaves_marks = leaves_marks
        self._left = list(policies)
        self._told: dict[str, _Told] = {}

    def read_on(self, check: Callable[[], None]) -> None:
        """Reads up to now, from where it stopped; nothing where fewer than two policies are left."""
        try:
            self._told = self._told or _sharing(self._database, self._left)
            self._left = []
            if len(self._told) > 1:
                self._read(check)
        except (LostError, UnavailableError, BucketwiseError, PyMongoError):
            self._told = {}  # each of them will meet and report the error in its own turn

    def _read(self, check: Callable[[], None]) -> None:
        followed = [it.followed for it in self._told.values()]
        drain = Drain(self._database, self._books, followed, check, leaves_mark=self._leaves_marks)
        self._told = {name: _then(self._told[name], changed) for name, changed in drain.read().items()}

    def take(self, policy: Policy, loaded: Progress) -> Changed | None:
        """Returns what changed since `loaded`, and up to the last read; None where that is not known. It is
        told once."""
        told = self._told.pop(policy.name, None)
        return told.changed if told is not None and told.loaded == loaded else None

    def leave_out(self, policy: Policy) -> None:
        """Reads no further for a policy whose turn is over."""
        self._told.pop(policy.name, None)
        self._left = [it for it in self._left if it.name != policy.name]


def _sharing(database: Database[Document], policies: Sequence[Policy]) -> dict[str, _Told]:
    uses = Counter(name for it in policies for name in it.sources)
    alone = [it for it in policies if may_stream(it) and all(uses[name] == 1 for name in it.sources)]
    loaded = load_all(database, alone)
    found = []
    for policy in alone:
        known = loaded[policy.name]
        if known.bookmark is not None and known.through:
            reached = rolled_up_to(policy, known.through)
            found.append(_Told(known, Followed(Source(database, policy), known.bookmark.token, reached)))
    newest = max((_seconds(it.followed) for it in found), default=0)
    near = [it for it in found if _seconds(it.followed) >= newest - MOST_BEHIND_S]
    return {it.followed.policy.name: it for it in near}


def _seconds(followed: Followed) -> int:
    """Returns the time of a resume token: the seconds of the cluster time that its data begin with."""
    return int(str(followed.token["_data"])[2:10], 16)


def _then(told: _Told, changed: Changed) -> _Told:
    both = changed if told.changed is None else told.changed.then(changed)
    return replace(told, followed=replace(told.followed, token=both.token), changed=both)
