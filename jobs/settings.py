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
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.suite import ENTRIES, load

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
    from bucketwise.jobs.output.schemas import output_schema

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
