"""A policy as the text of a policy file, and the fingerprints of what its summaries were made with."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from pydantic import ByteSize, SecretStr

from bucketwise.config.amounts import format_size
from bucketwise.config.errors import HIDDEN, hide_in_url
from bucketwise.config.models import LAYOUT_KEYS, fields_of
from bucketwise.config.policies import SUMMARY_KEYS, Policy, Settings
from bucketwise.config.tables import Table
from bucketwise.config.times import format_duration

_DECISIVE = LAYOUT_KEYS | {"collection", "expected_interval", "local_offset_field"}
#: Counted up by whatever changes what a summary of the same readings is: all summaries are then made anew.
SUMMARY_SCHEMA = 1
#: Further levels are rolled up without it: what is new of them is made of the summaries that stand.
_DECISIVE_IN_ROLLUP = {"hourly", "daily", "timezone", "percentiles"}


def fingerprint(policy: Policy) -> str:
    """Returns 16 hex digits that change whenever the policy's summaries would. How long anything is
    kept does not matter."""
    rollup = _changed_keys(policy.rollup, _DECISIVE_IN_ROLLUP) if policy.rollup else None
    texts = {"text_states": policy.text_states} if policy.text_states else {}
    return _digest(
        {
            **_changed_keys(policy, {*_DECISIVE, "duplicates"}),
            **texts,
            "rollup": rollup,
            "summary_schema": SUMMARY_SCHEMA,
        }
    )


def layout_fingerprint(policy: Policy) -> str:
    """Returns 16 hex digits that change whenever the policy would read its documents differently, or
    require more of them."""
    sparse = {"sparse_ok"}
    keys = _changed_keys(policy, _DECISIVE | sparse)
    if "values" in keys:  # what is summarised of a field doesn't change how it is read
        read = {
            path: {key: it for key, it in field.items() if key not in SUMMARY_KEYS}
            for path, field in keys.pop("values").items()
        }
        keys |= {"values": kept} if (kept := {path: field for path, field in read.items() if field}) else {}
    return _digest({**keys, "nonnumeric_ok": sorted(policy.nonnumeric_ok)})


def _changed_keys(table: Table, keys: set[str]) -> dict[str, Any]:
    """Returns the keys that differ from their defaults: a key that a later release adds changes no
    fingerprint by itself."""
    return table.model_dump(mode="json", include=keys, exclude_defaults=True)


def _digest(values: dict[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_BARE = re.compile(r"[A-Za-z0-9_-]+")


def policy_toml(policy: Policy) -> str:
    """Returns the keys that are set, as TOML. Loaded again it is the same policy."""
    return "\n".join(_table(("policies", policy.name), policy))


def _table(path: tuple[str, ...], table: Table) -> Iterator[str]:
    yield from ([""] if len(path) > 2 else [])
    yield f"[{'.'.join(map(toml_key, path))}]"
    said = _set_keys(table)
    inner = {key: value for key, value in said.items() if isinstance(value, Table)}
    for key, value in said.items():
        if key not in inner:
            yield f"{toml_key(key)} = {toml_value(value)}"
    for key, value in inner.items():
        yield from _table((*path, key), value)


def _set_keys(table: Table) -> dict[str, Any]:
    """Returns the keys that are set. The name of a policy is not among them: it is the name of its table."""
    fields = fields_of(type(table)) if isinstance(table, Policy) else type(table).model_fields
    named = {name: field.alias or name for name, field in fields.items() if name in table.model_fields_set}
    left_out = "name" if isinstance(table, Policy) else None
    return {key: getattr(table, name) for name, key in named.items() if name != left_out}


def resolved(settings: Settings) -> dict[str, Any]:
    """Returns all that holds, defaults included, with each value as a policy file would have it. Secrets are
    hidden; of URLs, what may be shown is shown."""
    found: dict[str, Any] = _resolved(settings)
    del found["path"]
    for policy in found["policies"].values():
        del policy["name"]
    return found


def as_written(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns keys of a policy for JSON, each value as a policy file would have it."""
    return {key: _inner(it) for key, it in keys.items()}


def _resolved(value: Any) -> Any:
    if isinstance(value, Table):
        fields = fields_of(type(value)) if isinstance(value, Policy) else type(value).model_fields
        held = {it.alias or name: (name, getattr(value, name)) for name, it in fields.items()}
        # None is "forever" where it is said, and else a key that is left out
        return {
            key: _resolved("forever" if it is None else it)
            for key, (name, it) in held.items()
            if it is not None or (name in value.model_fields_set and _is_duration(type(value), name))
        }
    if isinstance(value, dict):
        return {key: _inner(it) for key, it in value.items()}
    if isinstance(value, list | tuple):
        return [_inner(it) for it in value]
    if isinstance(value, SecretStr):
        return hide_in_url(value.get_secret_value()) if "://" in value.get_secret_value() else HIDDEN
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, ByteSize):
        return format_size(value)
    if isinstance(value, float):  # a share is the only one that stands alone
        return f"{value * 100:.9g}%"
    return value if isinstance(value, bool | int | str) else str(value)


def _inner(value: Any) -> Any:
    return value if isinstance(value, float) else _resolved(value)


def _is_duration(table: type[Table], name: str) -> bool:
    return "timedelta" in str(table.model_fields[name].annotation)


def settings_toml(said: Mapping[str, Any]) -> str:
    """Returns what `resolved` returns as TOML."""
    return "\n".join(_plain_table((), said)).strip()


def _plain_table(path: tuple[str, ...], said: Mapping[str, Any]) -> Iterator[str]:
    inner = {key: it for key, it in said.items() if isinstance(it, dict)}
    if path and (len(inner) < len(said) or not said):
        yield from ("", f"[{'.'.join(map(toml_key, path))}]")
    for key, value in said.items():
        if key not in inner:
            yield f"{toml_key(key)} = {toml_value(tuple(value) if isinstance(value, list) else value)}"
    for key, value in inner.items():
        yield from _plain_table((*path, key), value)


def toml_key(key: str) -> str:
    """Returns the name of a key as TOML, in quotes where it needs them."""
    return key if _BARE.fullmatch(key) else _text(key)


def toml_value(value: Any) -> str:
    """Returns the value of a key as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, timedelta):
        return _text(_duration(value))
    if isinstance(value, ByteSize):
        return _text(format_size(value))
    if isinstance(value, float):  # a share is the only one that stands alone
        return _text(f"{value * 100:.9g}%")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_inner_value, value))}]"
    if isinstance(value, Table | dict):
        said = _set_keys(value) if isinstance(value, Table) else value
        pairs = (f"{toml_key(key)} = {_inner_value(inner)}" for key, inner in said.items())
        return f"{{{', '.join(pairs)}}}"
    return _text(value) if isinstance(value, str) else str(value)


def _inner_value(value: Any) -> str:
    return str(value) if isinstance(value, float) else toml_value(value)


def _duration(span: timedelta | None) -> str:
    """Returns a duration in days rather than weeks: most policies use days."""
    text = format_duration(span)
    return f"{int(text[:-1]) * 7}d" if text.endswith("w") else text


def _text(text: str) -> str:
    """Returns a text as TOML writes it: JSON's escapes are TOML's. A literal `${` is written `$${`."""
    return json.dumps(text.replace("${", "$${"), ensure_ascii=False).replace("\x7f", "\\u007f")
