"""The names of keys in Redis: a series of any values as text, so that no two have the same. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from bson import json_util
from bson.errors import BSONError

from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.selectors import EXTENDED_JSON

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
