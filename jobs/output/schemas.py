"""The JSON Schemas of what commands print with `--json`, made of the types of their parts."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from bucketwise.jobs.core.job import Job
from bucketwise.jobs.output.bodies.common import Instant, ReadsFromCopies
from bucketwise.jobs.output.bodies.running import Paused

Schema = dict[str, Any]

_REFERENCE = "#/$defs/{model}"


#: What keeps a policy from having all that its command tells.
_CUT_SHORT = ("error", "paused", "stopped")


def output_schema(job: Job) -> Schema:
    """Returns the JSON Schema (draft 2020-12) of what a job's command prints with `--json`. Keys that it does
    not name may come with later versions. A part that a failure has cut short lacks keys."""
    of_policy, beside = (_of(it) if it else {"properties": {}} for it in (job.body, job.beside))
    instant = TypeAdapter(Instant).json_schema()
    policy = {
        "type": "object",
        "properties": {
            "policy": {"type": "string", "description": "Its name."},
            "exit_code": {"type": "integer", "description": "How it ended for this policy."},
            "paused": _of(Paused),
            "from_copies": _of(ReadsFromCopies),
            **of_policy["properties"],
            "error": {"type": "string", "description": "Why it was cut short."},
            "stopped": {"enum": ["window over", "outside window"]},
            "next_window": instant,
            "late_since": instant,
        },
        "required": ["policy", "exit_code"],
        "anyOf": [
            {"required": of_policy.get("required", [])},
            *({"required": [it]} for it in _CUT_SHORT),
        ],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"bucketwise {job.name} --json",
        "type": "object",
        "properties": {
            "schema": {"const": 1, "description": "Raised when a key changes its meaning or goes."},
            "command": {"const": job.name},
            "exit_code": {"type": "integer", "description": "The most severe of all policies."},
            "now": {**instant, "description": "What was taken as the present."},
            "policies": {"type": "array", "items": policy},
            "from_copies": _of(ReadsFromCopies),
            **beside["properties"],
            "error": {"type": "string", "description": "What kept it from working at all."},
            "problems": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["schema", "command", "exit_code", "now", "policies"],
        "anyOf": [{"required": beside.get("required", [])}, {"required": ["error"]}],
        "$defs": of_policy.get("$defs", {}) | beside.get("$defs", {}),
    }


def _of(kind: Any) -> Schema:
    schema: Schema = TypeAdapter(kind).json_schema(ref_template=_REFERENCE)
    while "$ref" in schema:
        schema = {**schema["$defs"][schema["$ref"].rpartition("/")[2]], "$defs": schema["$defs"]}
    plain: Schema = _without_titles(schema)
    plain.setdefault("properties", {})
    return plain


def _without_titles(schema: Any) -> Any:
    """Returns the schema without what pydantic calls its parts."""
    if isinstance(schema, list):
        return [_without_titles(it) for it in schema]
    if not isinstance(schema, dict):
        return schema
    named = ("properties", "$defs")
    return {
        key: {name: _without_titles(it) for name, it in value.items()}
        if key in named
        else _without_titles(value)
        for key, value in schema.items()
        if key != "title"
    }
