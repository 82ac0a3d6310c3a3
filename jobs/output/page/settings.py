"""A policy as the text of a policy file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from pydantic import ByteSize

from config.durations import format_duration
from config.policies import Policy
from config.shares import Share
from config.sizes import format_size

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def policy_toml(policy: Policy) -> str:
    """Returns the keys that are set, as TOML. Loaded again it is the same policy."""
    said = policy.model_dump(by_alias=True, exclude_unset=True, exclude={"name"})
    return "\n".join(_table(("policies", policy.name), said))


def _table(path: tuple[str, ...], said: Mapping[str, Any]) -> Iterator[str]:
    yield from ([""] if len(path) > 2 else [])
    yield f"[{'.'.join(map(_key, path))}]"
    tables = {key: value for key, value in said.items() if isinstance(value, dict)}
    for key, value in said.items():
        if key not in tables:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in tables.items():
        yield from _table((*path, key), value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, timedelta):
        return _text(_duration(value))
    if isinstance(value, ByteSize):
        return _text(format_size(value))
    if isinstance(value, Share):
        return _text(f"{value * 100:.9g}%")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(key)} = {_value(inner)}' for key, inner in value.items())}}}"
    return _text(value) if isinstance(value, str) else repr(value)


def _duration(span: timedelta | None) -> str:
    """In days rather than weeks: most policies say days."""
    text = format_duration(span)
    return f"{int(text[:-1]) * 7}d" if text.endswith("w") else text


def _text(text: str) -> str:
    """JSON's escapes are TOML's."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
