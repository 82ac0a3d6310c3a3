"""`bucketwise config`: the policy file as it is read, and its JSON Schema."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from bucketwise.config.errors import UsageError
from bucketwise.config.problems import nearest
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.output.bodies import keeping
from bucketwise.jobs.output.bodies.common import Instant, ReadsFromCopies
from bucketwise.jobs.output.bodies.running import Paused
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.suite import ENTRIES, load

Schema = dict[str, Any]

_REFERENCE = "#/$defs/{model}"
#: What keeps a policy from having all that its command tells.
_CUT_SHORT = ("error", "paused", "stopped")


def output_schema(job: Job) -> Schema:
    """Returns the JSON Schema (draft 2020-12) of what a job's command prints with `--json`. Keys that it does
    not name may come with later versions. A part that a failure has cut short lacks keys."""
    from pydantic import TypeAdapter

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
    from pydantic import TypeAdapter

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


What = Annotated[
    Literal["show", "schema"],
    typer.Argument(metavar="ACTION", help="show: print it as it is read. schema: print its JSON Schema."),
]

Command = Annotated[
    str | None, typer.Argument(metavar="[COMMAND]", help="schema: that of the JSON that this command prints.")
]


def config(call: Call, action: What, command: Command = None) -> Report:
    """Show the policy file as it is read.

    `show`: with the values of the environment, and all defaults; secrets are hidden. With --policy, these
    policies alone. `schema`: the JSON Schema of policy files, for editors, or of what a command prints with
    --json; it needs no file. Connects to nothing.
    """
    from bucketwise.config.written import resolved, settings_toml

    if action == "schema":
        schema = _schema(command)
        text = json.dumps(schema, indent=2, ensure_ascii=False)
        return Report(call.command, call.now, [], [Text(text)], extra={"json_schema": schema})
    if command is not None:
        raise UsageError(f"config show {command}: only `config schema` takes a command")
    chosen = {it.name: it for it in call.policies}
    settings = call.settings.model_copy(update={"policies": chosen})
    said = resolved(settings)
    text = f"# {settings.path}, with all defaults\n{settings_toml(said)}"
    return Report(call.command, call.now, [], [Text(text)], extra={"config": said})


def _schema(command: str | None) -> dict[str, Any]:
    """Returns the schema of what a command prints; without one, of policy files. Raises UsageError."""
    if command is None:
        from bucketwise.config.schema import policy_file_schema

        return policy_file_schema()
    from bucketwise.jobs.settings import output_schema

    if command not in ENTRIES:
        near = nearest(command, ENTRIES)
        remedy = f"did you mean {near}?" if near else f"there are: {', '.join(ENTRIES)}"
        raise UsageError(f"config schema {command}: there is no such command; {remedy}")
    return output_schema(load(command))


JOB = Job(
    config,
    beside=keeping.ConfigWhole,
    unused=("now",),
    examples=(
        "bucketwise config show",
        "bucketwise config show -p ticks --json",
        "bucketwise config schema > bucketwise.schema.json",
        "bucketwise config schema run > run.schema.json",
    ),
    answers=True,
)
