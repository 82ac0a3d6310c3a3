"""The schema of the policy file, as its users apply it."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft7Validator

from bucketwise.config.schema import policy_file_schema


@cache
def _validator() -> Draft7Validator:
    schema = policy_file_schema()
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


def faults(document: dict[str, Any]) -> list[str]:
    """The places of what the schema refuses, with dots between the names."""
    return sorted({".".join(map(str, it.absolute_path)) for it in _validator().iter_errors(document)})
