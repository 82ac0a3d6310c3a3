"""`bucketwise config`: the policy file as it is read, and its JSON Schema."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer
from rich.text import Text

from bucketwise.config.written import resolved, settings_toml
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.output.report import Report

What = Annotated[
    Literal["show", "schema"],
    typer.Argument(metavar="ACTION", help="show: print it as it is read. schema: print its JSON Schema."),
]


def config(call: Call, action: What) -> Report:
    """Show the policy file as it is read.

    `show`: with the values of the environment, and all defaults; secrets are hidden. With --policy, these
    policies alone. `schema`: the JSON Schema of policy files, for editors; it needs no file. Connects to
    nothing.
    """
    if action == "schema":
        from bucketwise.config.schema import policy_file_schema

        schema = policy_file_schema()
        text = json.dumps(schema, indent=2, ensure_ascii=False)
        return Report(call.command, call.now, [], [Text(text)], extra={"json_schema": schema})
    chosen = {it.name: it for it in call.policies}
    settings = call.settings.model_copy(update={"policies": chosen})
    said = resolved(settings)
    text = f"# {settings.path}, with all defaults\n{settings_toml(said)}"
    return Report(call.command, call.now, [], [Text(text)], extra={"config": said})


JOB = Job(
    config,
    unused=("now",),
    examples=(
        "bucketwise config show",
        "bucketwise config show -p ticks --json",
        "bucketwise config schema > bucketwise.schema.json",
    ),
)
