"""Types of the values in a policy file: they turn what TOML has into what Python works with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, SecretStr
from pydantic_core import PydanticKnownError

from config.amounts import SHARE_REMEDY, check_limit, parse_share, parse_size
from config.amounts import Share as ParsedShare
from config.cron import parse_cron
from config.durations import parse_duration
from config.problems import InvalidValueError
from config.throttling import parse_rate, parse_window

T = TypeVar("T")


def _duration(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value  # None: forever


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


def _parsed_by(parse: Callable[[str], object]) -> AfterValidator:
    """Returns a validator of texts. `parse` raises what is wrong with one."""

    def check(value: str) -> str:
        parse(value)
        return value

    return AfterValidator(check)


List = Annotated[tuple[T, ...], Field(strict=False)]
Duration = Annotated[timedelta, BeforeValidator(_duration)]
DurationOrForever = Annotated[timedelta | None, BeforeValidator(_duration)]
Size = Annotated[ByteSize, BeforeValidator(_size)]
Share = Annotated[float, BeforeValidator(_share)]
#: A number, or a share such as "20%"; None: no limit.
Limit = Annotated[int | str | None, BeforeValidator(_limit)]
Schedule = Annotated[str, _parsed_by(parse_cron)]
RateText = Annotated[str, _parsed_by(parse_rate)]
WindowText = Annotated[str, _parsed_by(parse_window)]
Secrets = Annotated[tuple[SecretStr, ...], Field(strict=False), BeforeValidator(_secrets)]
