"""Writes the keys of series: all of one series in one transaction, those of many in one request.

What is written of a series follows from its summaries in MongoDB alone, so that it may be written again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

from bson import json_util
from bson.errors import BSONError

from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.selectors import EXTENDED_JSON
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.models.series import series_key
from bucketwise.jobs.publish.newest import ChangedSeries, Document, Newest, PublishState, as_fields, as_json

#: Characters that separate, open or close something in a key, or are not visible.
_UNSAFE = re.compile(r"[%:{}\x00-\x20\x7f-\x9f]")
#: Matches the beginning of JSON that is no bare text; all of it where it is a number, a word or nothing.
_JSON = re.compile(r'["\[{]|(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null)?\Z')
_LOADED = EXTENDED_JSON.with_options(tz_aware=True)
#: The key of a policy without series fields.
_ONLY = "all"


def text_of(value: Any) -> str:
    """Returns a value as it stands in a key: a string as it is, unless it looks like JSON; all else as
    extended JSON; with %XX for what a key must not hold."""
    if not isinstance(value, str) or _JSON.match(value):
        value = json_util.dumps(value, json_options=EXTENDED_JSON, ensure_ascii=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), value)


def value_of(text: str) -> Any:
    """Returns the value of which `text_of` made this; the text itself where somebody else wrote it."""
    plain = unquote(text)
    try:
        return json_util.loads(plain, json_options=_LOADED) if _JSON.match(plain) else plain
    except (ValueError, TypeError, LookupError, ArithmeticError, BSONError):
        return plain


def member_of(series: Series) -> str:
    """Returns a series as sets name it, and keys between their braces."""
    return ":".join(map(text_of, series)) or _ONLY


def series_of(member: str, fields: Sequence[str]) -> Series:
    """Returns the series of which `member_of` made this; `fields` are its names."""
    return tuple(map(value_of, member.split(":"))) if fields else ()


@dataclass(frozen=True)
class Keys:
    """The keys of one policy. `base`: what all of them begin with."""

    base: str

    def of(self, kind: str, member: str) -> str:
        """Returns the key of one series. All keys of a series have one hash slot: that of the braces."""
        return f"{self.base}:{kind}:{{{member}}}"

    def index_key(self, field: str, value: Any) -> str:
        """Returns the key of the set of series with this value in a field."""
        return f"{self.base}:by:{text_of(field)}:{text_of(value)}"

    @property
    def series(self) -> str:
        """Returns the key of the set of all series."""
        return f"{self.base}:series"

    @property
    def expires(self) -> str:
        """Returns the key of the sorted set that says when each series goes: milliseconds since 1970."""
        return f"{self.base}:expires"

    @property
    def meta(self) -> str:
        """Returns the key of the hash that says whose keys these are, and how far they have come."""
        return f"{self.base}:meta"


Command = tuple[str | int, ...]
#: Sends commands in one request and returns the replies. Raises where one was refused.
Ask = Callable[[Sequence[Command]], list[Any]]
KINDS = ("last", "hourly", "daily")
#: Series, and characters, that one request writes: at most, or little more.
SERIES, _SIZE = 100, 1_000_000


class PublishedSeries(NamedTuple):
    """A series as Redis has it: its last summary's start and level, and which publication wrote it."""

    start: int | None
    level: str
    version: int


@dataclass(frozen=True)
class Keyspace:
    """The keys of a policy's series, and how long they live (milliseconds since the last write of a series).
    `fields`: its series fields; `secondary`: the one that has an index."""

    keys: Keys
    fields: Sequence[str]
    secondary: str | None
    keep: int

    def index_key(self, series: Series) -> str | None:
        """Returns the key of the index set that a series is in."""
        if self.secondary is None or len(series) != len(self.fields):
            return None
        return self.keys.index_key(self.secondary, series[self.fields.index(self.secondary)])

    def claim(self, owner: str) -> list[Command]:
        """Returns the commands that say whose the keys are. They go with each request that writes some, so
        that keys are known for ours whenever Redis is emptied."""
        meta = self.keys.meta
        return [("HSET", meta, "owner", owner), ("PEXPIRE", meta, self.keep + DAY_MS)]

    def keys_of(self, member: str) -> list[str]:
        """Returns the keys that a series may have."""
        return [self.keys.of(kind, member) for kind in KINDS]


@dataclass
class SeriesWriter:
    """Writes series for the publication that `state` counts. `present`: milliseconds since 1970. `written`
    counts the keys of series that were written or removed."""

    newest: Newest
    keyspace: Keyspace
    ask: Ask
    state: PublishState
    present: int
    written: int = 0
    _waiting: list[Command] = field(default_factory=list)
    _series: dict[str, Series] = field(default_factory=dict)

    def known(self, series: Sequence[Series]) -> list[PublishedSeries]:
        """Returns what Redis holds of each series."""
        keys = [self.keyspace.keys.of("last", member_of(it)) for it in series]
        replies = self.ask([("HMGET", key, "start_ms", "level", "version") for key in keys])
        return [
            PublishedSeries(as_number(start), str(level), as_number(version) or 0)
            for start, level, version in replies
        ]

    def put_changed(self, changed: Sequence[ChangedSeries]) -> None:
        """Writes the summaries that have changed; all of a series that is not there."""
        found = self.newest.changed(changed)
        for changes, known in zip(changed, self.known([changes.series for changes in changed]), strict=True):
            if changes.has_deletes or known.start is None or known.level != self.newest.finest:
                self._put(changes.series)
            else:
                self._update(changes.series, found.get(series_key(changes.series), {}), known.start)
        self._flush()

    def put(self, all_series: Iterable[Series]) -> None:
        """Writes these series; removes those that have no summaries."""
        for series in all_series:
            self._put(series)
        self._flush()

    def remove(self, members: Sequence[str]) -> None:
        """Removes these series."""
        if members:
            removed = self.ask([("UNLINK", *self.keyspace.keys_of(it)) for it in members])
            self.written += sum(removed)
            index_keys = [
                (self.keyspace.index_key(series_of(it, self.keyspace.fields)), it) for it in members
            ]
            indexed = [("SREM", key, member) for key, member in index_keys if key is not None]
            keys = self.keyspace.keys
            self.ask([*indexed, ("SREM", keys.series, *members), ("ZREM", keys.expires, *members)])

    def _put(self, series: Series) -> None:
        member, found = member_of(series), self.newest.of(series)
        last = next((it[0] for it in found.values() if it), None)
        if last is None:
            self.remove([member])
            return
        commands: list[Command] = [("DEL", *self.keyspace.keys_of(member))]
        for kind in self.newest.counts:
            scored = [part for it in found[kind] for part in (it["start_ms"], as_json(it))]
            if scored:
                commands.append(("ZADD", self.keyspace.keys.of(kind, member), *scored))
        self._queue(series, [*commands, self._last(member, last)])

    def _update(self, series: Series, found: Mapping[str, list[Document]], start: int) -> None:
        member, commands = member_of(series), list[Command]()
        for kind, count in self.newest.counts.items():
            key = self.keyspace.keys.of(kind, member)
            for summary in found.get(kind, ()):
                at = summary["start_ms"]
                commands += [("ZREMRANGEBYSCORE", key, at, at), ("ZADD", key, at, as_json(summary))]
            if kind in found:
                commands.append(("ZREMRANGEBYRANK", key, 0, -count - 1))
        newest = found.get(self.newest.finest)
        if newest and newest[0]["start_ms"] >= start:
            commands += [("DEL", self.keyspace.keys.of("last", member)), self._last(member, newest[0])]
        else:
            commands.append(("HSET", self.keyspace.keys.of("last", member), "version", self.state.number))
        self._queue(series, commands)

    def _last(self, member: str, document: Document) -> Command:
        fields = {**as_fields(document), "version": str(self.state.number)}
        return "HSET", self.keyspace.keys.of("last", member), *(it for pair in fields.items() for it in pair)

    def _queue(self, series: Series, commands: list[Command]) -> None:
        member = member_of(series)
        self.written += len({it[1] for it in commands if it[0] in ("ZADD", "HSET")})
        expiries = [("PEXPIRE", key, self.keyspace.keep) for key in self.keyspace.keys_of(member)]
        self._waiting += [("MULTI",), *commands, *expiries, ("EXEC",)]
        self._series[member] = series
        size = sum(len(part) for it in commands for part in it if isinstance(part, str))
        if len(self._series) >= SERIES or size * len(self._series) > _SIZE:
            self._flush()

    def _flush(self) -> None:
        if not self._series:
            return
        keys, ends = self.keyspace.keys, self.present + self.keyspace.keep
        sets: list[Command] = [("SADD", keys.series, *self._series)]
        sets.append(("ZADD", keys.expires, *(part for it in self._series for part in (ends, it))))
        index_keys = [(self.keyspace.index_key(series), member) for member, series in self._series.items()]
        sets += [("SADD", key, member) for key, member in index_keys if key is not None]
        sets += [("PEXPIRE", key, self.keyspace.keep) for key in dict.fromkeys(it[1] for it in sets)]
        self.ask([*self.keyspace.claim(self.state.owner), *sets, *self._waiting])
        self.newest.context.progress("published series", len(self._series))
        self._waiting, self._series = [], {}


def as_number(found: str | None) -> int | None:
    """Returns a number that Redis holds; None where it is none."""
    return int(found) if found is not None and found.lstrip("-").isdecimal() else None
