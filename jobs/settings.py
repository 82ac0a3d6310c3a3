"""`bucketwise config`: the policy file as it is read."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.text import Text

from bucketwise.config.written import resolved, settings_toml
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.output.report import Report

What = Annotated[Literal["show"], typer.Argument(metavar="show", help="Print it.")]


def config(call: Call, action: What) -> Report:  # noqa: ARG001  # there is one
    """Show the policy file as it is read.

    With the values of the environment, and all defaults; secrets are hidden. With --policy, these policies
    alone. Connects to nothing.
    """
    chosen = {it.name: it for it in call.policies}
    settings = call.settings.model_copy(update={"policies": chosen})
    said = resolved(settings)
    text = f"# {settings.path}, with all defaults\n{settings_toml(said)}"
    return Report(call.command, call.now, [], [Text(text)], extra={"config": said})


JOB = Job(
    config, unused=("now",), examples=("bucketwise config show", "bucketwise config show -p ticks --json")
)
