"""Types of the values in a policy file: they turn what TOML has into what Python works with, and refuse what
is wrong by itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from math import inf
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, SecretStr, WithJsonSchema
from pydantic_core import PydanticKnownError

from bucketwise.config.amounts import (
    MOST_WORKERS,
    SHARE_REMEDY,
    SIZE_REMEDY,
    check_limit,
    parse_share,
    parse_size,
)
from bucketwise.config.amounts import Share as ParsedShare
from bucketwise.config.cron import parse_cron, parse_rate, parse_window
from bucketwise.config.problems import InvalidValueError
from bucketwise.config.times import (
    as_text,
    check_slot,
    check_span,
    format_duration,
    parse_duration,
    read_instant,
    read_latest,
)

_WILD = re.compile(r"[*?\[]")
#: The end of a text, in the expressions of Python and of MongoDB alike.
_END = r"(?![\s\S])"


def is_literal(glob: str) -> bool:
    """Returns whether a glob matches one text alone."""
    return _WILD.search(glob) is None


def glob_pattern(glob: str) -> str:
    """Returns a regular expression for Python and MongoDB, for use with the flag `s`. It begins with the text
    that the glob begins with, so that an index finds what it matches."""
    rest = glob.rstrip("*")
    found, at = ["^"], 0
    while at < len(rest):
        character, close = rest[at], rest.find("]", at + (3 if rest[at + 1 : at + 2] == "!" else 2))
        if character == "[" and close > 0:
            held = rest[at + 1 : close]
            chosen = "".join(rf"\{it}" if it in r"\[]^" else it for it in held.removeprefix("!"))
            found.append(f"[{'^' if held.startswith('!') else ''}{chosen}]")
            at = close
        else:
            found.append({"*": ".*", "?": "."}.get(character, re.escape(character)))
        at += 1
    return "".join(found) + (_END if rest == glob else "")


T = TypeVar("T")


def _duration(least: timedelta = timedelta(0), message: str = "", remedy: str = "") -> BeforeValidator:
    """Returns what parses a duration (None: forever), and refuses one that is shorter than `least`."""

    def parsed(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        span = parse_duration(value)
        if span is not None and span < least:
            raise InvalidValueError(message, remedy)
        return span

    return BeforeValidator(parsed)


#: The shortest that can be written, but for zero.
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
_ABOVE_ZERO = (_SECOND, "it must be longer than zero", 'write a duration such as "10m" or "30d"')
_BELOW_A_DAY, _A_DAY = "it is shorter than 1d", 'write "1d" or longer'
_LOW_LAG = ("replication lag is rarely that low", 'write "1s" or more, such as "10s", or "forever"')
_LONGEST_BATCH = timedelta(days=31)


def _batch(value: Any) -> Any:
    if isinstance(value, str) and value == "forever":
        raise InvalidValueError(
            "its buckets would wait forever", 'write a duration such as "1d", or remove it'
        )
    if isinstance(value, timedelta) and value > _LONGEST_BATCH:
        longest = format_duration(_LONGEST_BATCH)
        raise InvalidValueError(
            f"a commit spans {longest} at most", f'write "{longest}" or less, such as "1d"'
        )
    return value


def _size(value: Any) -> Any:
    if isinstance(value, str):
        return parse_size(value)
    if not isinstance(value, ByteSize):
        raise PydanticKnownError("string_type")
    return value


def _share(value: Any) -> Any:
    if isinstance(value, str):
        return parse_share(value)
    if not isinstance(value, ParsedShare):
        raise InvalidValueError("it is not a share", SHARE_REMEDY)
    return value


def _limit(value: Any) -> Any:
    check_limit(value)
    return value


def _secrets(value: Any) -> Any:
    """Returns one secret, or some; the message says nothing of what it found."""
    values = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(it, str | SecretStr) for it in values):
        raise InvalidValueError("it has to be text, or a list of texts", 'write it in quotes: "${NAME}"')
    return values


def _within(least: int, most: float, message: str, remedy: str) -> AfterValidator:
    """Returns a validator of numbers from `least` to `most`."""
    return _sound(lambda value: least <= value <= most, message, remedy)


def _matching(pattern: str, message: str, remedy: str) -> AfterValidator:
    """Returns a validator of texts that match a pattern as a whole."""
    return _sound(lambda value: re.fullmatch(pattern, value), message, remedy)


def _fields(value: Any) -> Any:
    if isinstance(value, list | tuple) and len(value) > 1 and all(isinstance(it, str) for it in value):
        return tuple(value)
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        raise InvalidValueError("it is no list of several fields", 'write "d", or such as ["date", "time"]')
    raise InvalidValueError("it has to be text, or a list of texts", 'write "d", or ["date", "time"]')


def _globs(value: Any) -> Any:
    """Returns a glob, or some, as texts: a number or a truth value is written as series show it."""
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not values or not all(isinstance(it, str | int) for it in values):
        raise InvalidValueError("it is no text, and no list of texts", 'write "lab-*", or ["a", "b"]')
    texts = tuple(it if isinstance(it, str) else str(it).lower() for it in values)
    for text in texts:
        try:
            re.compile(glob_pattern(text))
        except re.error as error:
            message = f"{text!r} is no glob: {error.msg}"
            raise InvalidValueError(message, "write ranges in order, such as [a-z]") from None
    return texts


def _sound(is_sound: Callable[[Any], object], message: str, remedy: str) -> AfterValidator:
    def check(value: T) -> T:
        if not is_sound(value):
            raise InvalidValueError(message, remedy)
        return value

    return AfterValidator(check)


def _parsed_by(parse: Callable[[str], object]) -> AfterValidator:
    """Returns a validator of texts. `parse` raises what is wrong with one."""

    def check(value: str) -> str:
        parse(value)
        return value

    return AfterValidator(check)


_TEXT = {"type": "string"}
List = Annotated[tuple[T, ...], Field(strict=False)]
Duration = Annotated[timedelta, _duration()]
PositiveDuration = Annotated[timedelta, _duration(*_ABOVE_ZERO)]
#: A tombstone has to stand for so long that a daily run shows it, and a person can act.
DayOrLonger = Annotated[timedelta, _duration(_DAY, _BELOW_A_DAY, _A_DAY)]
DurationOrForever = Annotated[timedelta | None, _duration()]
PositiveOrForever = Annotated[timedelta | None, _duration(*_ABOVE_ZERO)]
DayOrForever = Annotated[timedelta | None, _duration(_DAY, _BELOW_A_DAY, f'{_A_DAY}, or "forever"')]
#: MongoDB tells the times of members in whole seconds.
Lag = Annotated[timedelta | None, _duration(_SECOND, *_LOW_LAG)]
Batch = Annotated[timedelta | None, AfterValidator(_batch), _duration(*_ABOVE_ZERO), BeforeValidator(_batch)]
Size = Annotated[ByteSize, BeforeValidator(_size), WithJsonSchema(_TEXT)]
Share = Annotated[float, BeforeValidator(_share), WithJsonSchema(_TEXT)]
#: A number, or a share such as "20%"; None: no limit.
Limit = Annotated[int | str | None, BeforeValidator(_limit)]
#: One field, or several whose values make one.
Fields = Annotated[str | tuple[str, ...], BeforeValidator(_fields)]
_VALUE = {"type": ["string", "integer", "boolean"]}
_SOME_VALUES = {"anyOf": [_VALUE, {"type": "array", "items": _VALUE, "minItems": 1}]}
#: One glob, or several, of which any may match.
Globs = Annotated[tuple[str, ...], BeforeValidator(_globs), WithJsonSchema(_SOME_VALUES)]
Schedule = Annotated[str, _parsed_by(parse_cron)]
InstantText = Annotated[str, _parsed_by(read_instant), BeforeValidator(as_text)]
#: An instant, or a duration.
LatestText = Annotated[str, _parsed_by(read_latest), BeforeValidator(as_text)]
RateText = Annotated[str, _parsed_by(parse_rate)]
WindowText = Annotated[str, _parsed_by(parse_window)]
SlotText = Annotated[str, _parsed_by(check_slot)]
SpanText = Annotated[str, _parsed_by(check_span)]
FirstSlot = Annotated[int, _within(0, 1, "slots are counted from 0 or from 1", "write 0 or 1")]
_SOME_TEXTS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
Secrets = Annotated[
    tuple[SecretStr, ...], Field(strict=False), BeforeValidator(_secrets), WithJsonSchema(_SOME_TEXTS)
]

_A_LOCK = ("files are locked for 1 to 36500 days", "write how many days each has to stay")
LockDays = Annotated[int, _within(1, 36_500, *_A_LOCK)]
DrilledDays = Annotated[int, _within(1, inf, "a drill covers at least one day", "write 1 or more")]
_A_COUNT = (f"it must be between 1 and {MOST_WORKERS}", "write the number of worker processes")
WorkerCount = Annotated[int, _within(1, MOST_WORKERS, *_A_COUNT)]
Memory = Annotated[Size, _within(50_000_000, inf, "less than 50MB is too little to work with", SIZE_REMEDY)]
#: Windows of a series: all of them are written at once.
_SOME = ("this number of windows can't be kept", "write a number from 1 to 10000, or leave it out")
WindowCount = Annotated[int, _within(1, 10_000, *_SOME)]

_A_REGION = ("not a valid region", 'use a name such as "us-east-1"')
Region = Annotated[str, _matching("[A-Za-z0-9-]{1,64}", *_A_REGION)]
_NAME, _NAMED = "[A-Za-z0-9_-]{1,64}", "use 1 to 64 letters, digits, `_` and `-`"
CatalogName = Annotated[str, _matching(_NAME, "it is not a valid catalog name", _NAMED)]
_SPACED = ("it is not a valid namespace name", f"{_NAMED}; a dot between a namespace and one inside it")
Namespace = Annotated[str, _matching(rf"{_NAME}(\.{_NAME})*", *_SPACED)]
_A_PREFIX = ("every key begins with it", "use 1 to 100 letters, digits and `_ . : / -`")
Prefix = Annotated[str, _matching("[A-Za-z0-9_.:/-]{1,100}", *_A_PREFIX)]
#: An empty one is refused where copies are checked.
_A_COPY = ("it is not a valid name of a copy", "use 1 to 32 letters, digits, `_` and `-`")
CopyName = Annotated[str, _matching("[A-Za-z0-9_-]{0,32}", *_A_COPY)]
