"""What commands print, held against their schemas."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from bucketwise.jobs.settings import output_schema
from bucketwise.jobs.suite import load


def undeclared(told: dict[str, Any]) -> list[str]:
    """What the schema of the command does not say: keys that it does not name as well."""
    return [f"{it.json_path}: {it.message}" for it in _validator(told["command"]).iter_errors(told)]


@cache
def _validator(command: str) -> Draft202012Validator:
    schema = output_schema(load(command))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(closed(schema), format_checker=FormatChecker())


def closed(schema: Any) -> Any:
    """The schema without room for further keys, where it names any."""
    if isinstance(schema, list):
        return [closed(it) for it in schema]
    if not isinstance(schema, dict):
        return schema
    named = ("properties", "$defs")
    inside = {
        key: {name: closed(inner) for name, inner in it.items()} if key in named else closed(it)
        for key, it in schema.items()
    }
    has_names = inside.get("type") == "object" and inside.get("properties")
    return {**inside, "additionalProperties": False} if has_names else inside
