"""Change streams: what has changed in a policy's source since the last roll-up."""

from __future__ import annotations

from collections.abc import Callable

from bucketwise.buckets.bson.raw import TOLERANT
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy
from bucketwise.rollups.changes.collector import ChangeSet
from bucketwise.rollups.changes.drain import (
    Drain,
    FollowedPolicy,
    StreamUnavailableError,
    Token,
    open_stream,
    read_step,
)


def collections_of(source: Source) -> dict[str, str]:
    """Returns the collections of the stream that exist, each with what tells it from another of its name."""
    if any(info["type"] != "collection" for info in source.listed):
        raise StreamUnavailableError("views and native time-series collections have none")
    return {info["name"]: str(info["info"]["uuid"]) for info in source.listed}


class Stream:
    """The changes of one policy's source. `receipts` and `leaves_marks`: see `Drain`."""

    def __init__(self, policy: Policy, source: Source, receipts: str, *, leaves_marks: bool = True) -> None:
        self._database = source.collection.database.with_options(codec_options=TOLERANT)
        self.policy = policy
        self.leaves_marks = leaves_marks
        self._source = source
        self._receipts = receipts

    def token_now(self) -> Token:
        """Returns a token from which the stream gives all that happens from here on. Raises
        StreamUnavailableError."""
        pipeline = [{"$match": {"ns.coll": {"$in": self.policy.sources}}}]
        with open_stream(self._database, pipeline, None) as stream:
            while stream.resume_token is None:  # if an event came in just as it was opened
                read_step(stream.try_next, is_resumed=False)
            return stream.resume_token

    def drain(self, token: Token, rolled_up_to: int | None, check: Callable[[], None]) -> ChangeSet:
        """Reads all that has happened up to now. Readings that came in at or after `rolled_up_to`
        (milliseconds) are left out.

        Raises StreamLostError, StreamUnavailableError, and BucketwiseError where the stream stays silent."""
        followed = FollowedPolicy(self._source, token, rolled_up_to)
        drain = Drain(self._database, self._receipts, [followed], check, leaves_mark=self.leaves_marks)
        return drain.read()[self.policy.name]
