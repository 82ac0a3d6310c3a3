"""Connects to Redis, and brings it up to date with the summaries of a policy.

Redis holds nothing that MongoDB doesn't: each key can be written again at any time, and a publication that
was cut off is started again, or continues.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bucketwise.buckets.fields.selectors import Selector, selects
from bucketwise.buckets.fields.times import DAY_MS, as_ms
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import LevelName
from bucketwise.config.tables import Redis
from bucketwise.config.written import fingerprint
from bucketwise.jobs.core import clock
from bucketwise.jobs.publish.newest import ChangedSummaries, Newest, PublishState, PublishStates
from bucketwise.jobs.publish.writer import (
    SERIES,
    Ask,
    Command,
    Keys,
    Keyspace,
    SeriesWriter,
    as_number,
    series_of,
)
from bucketwise.rollups.calendar.levels import LEVEL_RULES, Level, levels_of
from bucketwise.rollups.context import RunContext

#: For a connection, and for each reply.
_SECONDS = 5
_OLDEST = 6


class PublishError(BucketwiseError):
    """Redis can't be brought up to date now."""


class LinkError(PublishError):
    """Redis can't be reached, takes too long, or refuses."""


class Link:
    """Connects with the first request. `patience`: seconds that all requests may take; None: any."""

    def __init__(self, url: str, patience: float | None = None) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError:
            install = "pip install 'bucketwise[redis]'"
            raise LinkError(f"the Python package redis is missing: {install}") from None
        self._errors = (redis.RedisError, OSError)
        self._refused = redis.ResponseError
        limits = {"socket_timeout": _SECONDS, "socket_connect_timeout": _SECONDS}
        never = Retry(NoBackoff(), 0)
        self._pool = redis.ConnectionPool.from_url(
            url, decode_responses=True, encoding_errors="replace", protocol=2, retry=never, **limits
        )
        self._place = shown(url)
        self._patience = patience
        self._waited = self._begun = 0.0
        self._connection: Any = None

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._pool.disconnect()

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Sends the commands at once and returns their replies. Raises LinkError."""
        self._begun = clock.steady()
        try:
            if self._connection is None:
                self._connection = self._pool.get_connection()
                self._check(self._send([("INFO", "server")])[0])
            replies = self._send(commands)
        except self._errors as error:
            self._pool.disconnect()
            raise LinkError(f"Redis at {self._place}: {' '.join(str(error).split())}") from error
        self._waited += clock.steady() - self._begun
        return replies

    def _send(self, commands: Sequence[Command]) -> list[Any]:
        self._connection.send_packed_command(self._connection.pack_commands(commands), check_health=False)
        replies = [self._reply() for _ in commands]
        inner = [it for reply in replies if isinstance(reply, list) for it in reply]
        refusals = [it for it in (*replies, *inner) if isinstance(it, self._refused)]
        if refusals:  # the first is the cause
            raise refusals[0]
        return replies

    def _reply(self) -> Any:
        try:
            reply = self._connection.read_response()
        except self._refused as error:
            reply = error
        waited = self._waited + clock.steady() - self._begun
        if self._patience is not None and waited > self._patience:
            self._pool.disconnect()
            raise LinkError(f"Redis at {self._place}: it is slow. The next run continues")
        return reply

    def _check(self, info: str) -> None:
        lines = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
        version = lines.get("redis_version", "0")
        if int(version.partition(".")[0]) < _OLDEST:
            raise LinkError(f"Redis at {self._place} is {version}; {_OLDEST}.0 or later is needed")


def shown(url: str) -> str:
    """Returns where a URL goes, without user, password and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


_BATCH_SIZE = 1000  # keys


class _Meta(NamedTuple):
    """The facts that Redis keeps of its keys. Whoever writes keys says whose they are; only a publication of
    all series says by which `layout`, before it begins, and one that ends, its `number`. So in a Redis that
    was emptied meanwhile the layout is missing."""

    owner: str | None = None
    layout: str | None = None
    number: int | None = None


@dataclass(frozen=True)
class Publisher:
    """Publishes one policy. `present`: by the clock, as Redis counts; `redis`: what is kept, and where."""

    context: RunContext
    redis: Redis
    ask: Ask
    present: datetime

    def publish(self, changed: ChangedSummaries | None = None, *, everything: bool = False) -> int:
        """Publishes the summaries that `changed` names, and those that earlier runs have left; or everything.
        Returns how many keys of series were written or removed. Raises PublishError."""
        state = self._states.load()
        meta = self._meta(state)
        is_unknown = state.pending and (changed is None or not changed.is_noted or changed.is_all)
        is_lost = self._is_lost(meta, state) and state.whole is None
        is_new = everything or is_unknown or is_lost or state.settings != self._settings
        changed_series = [] if is_new or changed is None or changed.is_all else list(changed.series.values())
        if not is_new and not changed_series and state.whole is None:
            return self._finish(state, 0)
        state = self._begin(state, meta, whole=is_new)
        writer = self._writer(state)
        for at in range(0, len(changed_series), SERIES):
            self.context.check()
            writer.put_changed(changed_series[at : at + SERIES])
        self._states.note(pending=False)
        if state.whole is not None:
            self._put_all(writer, state.whole)
        self._sweep(writer)
        self.ask([*self._keyspace.claim(state.owner), ("HSET", self._keys.meta, "number", state.number)])
        written = self._finish(state, writer.written)
        if self._is_lost(self._meta(state), state):
            raise PublishError(
                f"Redis was emptied while keys under {self._keys.base}: were written. The next run, or "
                "`bucketwise publish`, writes all of them again"
            )
        return written

    def forget(self, selector: Selector) -> int:
        """Brings series up to date of which summaries were erased: all keys are looked at. Returns how many
        keys of series were written or removed. Raises PublishError."""
        state = self._states.load()
        self._meta(state)  # raises where these are not our keys
        if state.number == 0:
            return 0
        members = {key.partition("{")[2].rstrip("}") for key in self._scan_keys() if key.endswith("}")}
        series = (series_of(it, self._fields) for it in members)
        chosen = (it for it in series if len(it) == len(self._fields))
        writer = self._writer(state)
        writer.put(it for it in chosen if selects(it, self.context.policy, selector))
        return writer.written

    def backlog_reason(self) -> str | None:
        """Returns why Redis is not up to date; None if it is. Raises PublishError. Changes nothing."""
        state = self._states.load()
        is_lost = self._is_lost(self._meta(state), state)
        if state.number == 0:
            return "nothing is published yet"
        if state.settings != self._settings:
            return "the settings have changed since"
        if state.pending or state.whole is not None:
            return "some changed summaries are not published"
        return "Redis has lost keys, or was restored from a backup" if is_lost else None

    @cached_property
    def _states(self) -> PublishStates:
        return PublishStates(self.context.database, self.context.policy)

    @cached_property
    def _levels(self) -> list[Level]:
        return levels_of(self.context.policy)

    @cached_property
    def _counts(self) -> dict[LevelName, int]:
        counts: dict[LevelName, int | None] = {
            "hourly": self.redis.latest_hours,
            "daily": self.redis.latest_days,
        }
        return {level: count for level, count in counts.items() if count is not None}

    @cached_property
    def _keys(self) -> Keys:
        return Keys(f"{self.redis.prefix}:{self.context.policy.identity}")

    @property
    def _fields(self) -> tuple[str, ...]:
        return self.context.policy.series_names

    @cached_property
    def _keyspace(self) -> Keyspace:
        """Returns where series lie. A series expires a day after its last kept window would have been pushed
        out."""
        lengths = (LEVEL_RULES[level].length * count for level, count in self._counts.items())
        longest = max([2 * self._levels[0].row.length, *lengths])
        return Keyspace(self._keys, self._fields, self.redis.secondary, longest + DAY_MS)

    @cached_property
    def _settings(self) -> str:
        """Returns what all keys depend on."""
        levels = {level.name: level.collection for level in self._levels}
        parts = [self._keys.base, self._counts, self._layout, levels, fingerprint(self.context.policy)]
        return json.dumps(parts)

    @cached_property
    def _layout(self) -> str:
        return json.dumps([self._fields, self.redis.secondary])

    def _writer(self, state: PublishState) -> SeriesWriter:
        newest = Newest(self.context, self._levels, self._counts)
        return SeriesWriter(newest, self._keyspace, self.ask, state, as_ms(self.present))

    def _meta(self, state: PublishState) -> _Meta:
        """Returns what Redis says of the keys. Raises PublishError where they are somebody else's."""
        [[owner, layout, number]] = self.ask([("HMGET", self._keys.meta, "owner", "layout", "number")])
        if owner is not None and owner != state.owner:
            raise PublishError(self._foreign_key(self._keys.meta))
        return _Meta(owner, layout, as_number(number))

    def _is_lost(self, meta: _Meta, state: PublishState) -> bool:
        """Returns whether Redis has lost what was published, or part of it: more than has expired."""
        if meta == _Meta() and state.expires is not None and state.expires <= self.present:
            return False
        return meta.layout is None or meta.number != state.number

    def _begin(self, before: PublishState, meta: _Meta, *, whole: bool) -> PublishState:
        """Records in Redis who owns the keys, before the first one is written. Removes the keys under
        an earlier prefix."""
        is_ours = meta.owner is not None or meta.number == before.number  # emptied under an earlier version
        if not is_ours and (foreign := next(self._scan_keys(), None)):
            raise PublishError(self._foreign_key(foreign))
        base = json.loads(before.settings)[0] if before.settings else self._keys.base
        if base != self._keys.base:
            prefix = base.removesuffix(f":{self.context.policy.identity}")
            replace(self, redis=self.redis.model_copy(update={"prefix": prefix})).remove(before.owner)
        state = self._states.begin(self._settings, whole=whole)
        if meta.layout is not None and meta.layout != self._layout:
            self._remove_index(*json.loads(meta.layout))
        if whole or meta.layout is None:
            layout = "HSET", self._keys.meta, "layout", self._layout
            self.ask([*self._keyspace.claim(state.owner), layout])
        return state

    def _foreign_key(self, key: str) -> str:
        return (
            f"keys under {self._keys.base}: were not written for this database, such as {key}. Set another "
            f"`publish.redis.prefix`, or remove them: redis-cli --scan --pattern '{self._keys.base}:*' | "
            "xargs -d '\\n' redis-cli unlink"
        )

    def _scan_keys(self) -> Iterator[str]:
        """Yields keys under the prefix."""
        cursor = "0"
        while True:
            self.context.check()
            pattern = f"{self._keys.base}:*"
            [[cursor, found]] = self.ask([("SCAN", cursor, "MATCH", pattern, "COUNT", _BATCH_SIZE)])
            yield from found
            if cursor == "0":
                return

    def _scan_members(self) -> Iterator[list[str]]:
        """Yields all series of the set, some at once; a series may come twice."""
        cursor = "0"
        while True:
            self.context.check()
            [[cursor, found]] = self.ask([("SSCAN", self._keys.series, cursor, "COUNT", SERIES)])
            yield found
            if cursor == "0":
                return

    def remove(self, owner: str) -> None:
        """Removes all that was published, if this owner published it."""
        try:
            [[found, layout]] = self.ask([("HMGET", self._keys.meta, "owner", "layout")])
        except PublishError:  # not allowed any more, say: it goes in its time
            return
        if found == owner:
            if layout is not None:
                self._remove_index(*json.loads(layout))
            for members in self._scan_members():
                self._writer(PublishState()).remove(members)
            self.ask([("UNLINK", self._keys.series, self._keys.expires, self._keys.meta)])

    def _remove_index(self, fields: list[str], secondary: str | None) -> None:
        """Removes the index sets that went by other settings."""
        before = Keyspace(self._keys, fields, secondary, 0)
        for members in self._scan_members() if secondary is not None else ():
            keys = {before.index_key(series_of(it, fields)) for it in members} - {None}
            self.ask([("UNLINK", str(key)) for key in keys])

    def _put_all(self, writer: SeriesWriter, publication: int) -> None:
        """Writes what was not written since the publication of all series began, then removes the rest."""
        for level in self._levels:
            found = writer.newest.series(level)
            while batch := list(islice(found, SERIES)):
                self.context.check()
                known = writer.known(batch)
                writer.put(it for it, has in zip(batch, known, strict=True) if has.version < publication)
        for members in self._scan_members():
            versions = self.ask([("HGET", self._keys.of("last", it), "version") for it in members])
            stale = [
                it
                for it, version in zip(members, versions, strict=True)
                if (as_number(version) or 0) < publication
            ]
            writer.remove(stale)
        self._states.note(whole=None)

    def _sweep(self, writer: SeriesWriter) -> None:
        """Removes series whose keys have expired from the sets."""
        expired = ("ZRANGEBYSCORE", self._keys.expires, 0, writer.present, "LIMIT", 0, _BATCH_SIZE)
        while members := self.ask([expired])[0]:
            writer.remove(members)

    def _finish(self, state: PublishState, written: int) -> int:
        if written or state.pending:
            ends = self.present + timedelta(milliseconds=self._keyspace.keep + DAY_MS)
            self._states.note(pending=False, **({"expires": ends} if written else {}))
        return written
