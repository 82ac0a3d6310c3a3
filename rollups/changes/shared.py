"""Reads a database's change stream once for several policies, so that the server reads its oplog once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pymongo.database import Database
from pymongo.errors import PyMongoError

from bucketwise.buckets.bson.raw import TOLERANT
from bucketwise.buckets.source import Source
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import Policy
from bucketwise.rollups.changes.collector import ChangeSet
from bucketwise.rollups.changes.drain import Drain, FollowedPolicy, StreamLostError, StreamUnavailableError
from bucketwise.rollups.changes.reach import may_stream, rolled_up_to
from bucketwise.rollups.progress import Progress, load_all

Document = dict[str, Any]
#: A policy that is so much further behind than the one in front reads the stream by itself: it would cost
#: the others a long read.
MOST_BEHIND_S = 86_400


@dataclass(frozen=True)
class _Pending:
    """A policy's changes since it was rolled up, which nobody has taken yet."""

    loaded: Progress
    followed: FollowedPolicy
    changed: ChangeSet | None = None


class SharedChanges:
    """The changes of the policies that can share a read: they follow the change stream, have been rolled up,
    and have no collection in common with another one.

    It only saves reading. A policy whose changes it does not know, or that was rolled up by somebody else in
    the meantime, reads for itself; and so do all where the read fails.
    """

    def __init__(
        self, database: Database[Document], policies: Sequence[Policy], receipts: str, *, leaves_marks: bool
    ) -> None:
        """`receipts` and `leaves_marks`: see `Drain`."""
        self._database = database.with_options(codec_options=TOLERANT)
        self._receipts = receipts
        self._leaves_marks = leaves_marks
        self._unread = list(policies)
        self._pending: dict[str, _Pending] = {}

    def read_on(self, check: Callable[[], None]) -> None:
        """Reads up to now, from where it stopped; nothing where fewer than two policies are left."""
        try:
            self._pending = self._pending or _shareable(self._database, self._unread)
            self._unread = []
            if len(self._pending) > 1:
                self._read(check)
        except (StreamLostError, StreamUnavailableError, BucketwiseError, PyMongoError):
            self._pending = {}  # each of them will meet and report the error in its own turn

    def _read(self, check: Callable[[], None]) -> None:
        followed = [it.followed for it in self._pending.values()]
        drain = Drain(self._database, self._receipts, followed, check, leaves_mark=self._leaves_marks)
        self._pending = {
            name: _extended(self._pending[name], changed) for name, changed in drain.read().items()
        }

    def take(self, policy: Policy, loaded: Progress) -> ChangeSet | None:
        """Returns the changes since `loaded` up to the last read; None if they are not known. Each
        change is returned once."""
        pending = self._pending.pop(policy.name, None)
        return pending.changed if pending is not None and pending.loaded == loaded else None

    def leave_out(self, policy: Policy) -> None:
        """Stops reading for a policy whose turn is over."""
        self._pending.pop(policy.name, None)
        self._unread = [it for it in self._unread if it.name != policy.name]


def _shareable(database: Database[Document], policies: Sequence[Policy]) -> dict[str, _Pending]:
    uses = Counter(name for it in policies for name in it.sources)
    candidates = [it for it in policies if may_stream(it) and all(uses[name] == 1 for name in it.sources)]
    loaded = load_all(database, candidates)
    found = []
    for policy in candidates:
        known = loaded[policy.name]
        if known.bookmark is not None and known.through:
            reached = rolled_up_to(policy, known.through)
            found.append(
                _Pending(known, FollowedPolicy(Source(database, policy), known.bookmark.token, reached))
            )
    newest = max((_seconds(it.followed) for it in found), default=0)
    close_behind = [it for it in found if _seconds(it.followed) >= newest - MOST_BEHIND_S]
    return {it.followed.policy.name: it for it in close_behind}


def _seconds(followed: FollowedPolicy) -> int:
    """Returns the time of a resume token: the seconds of the cluster time that its data begin with."""
    return int(str(followed.token["_data"])[2:10], 16)


def _extended(pending: _Pending, changed: ChangeSet) -> _Pending:
    both = changed if pending.changed is None else pending.changed.then(changed)
    return replace(pending, followed=replace(pending.followed, token=both.token), changed=both)
