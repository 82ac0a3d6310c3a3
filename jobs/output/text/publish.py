"""What was published, for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jobs.output.report import Result
from jobs.output.text.tables import printable


def publish_table(results: Sequence[Result]) -> RenderableType:
    """Returns a row for each policy."""
    table = Table(title="Published", title_justify="left", box=box.SIMPLE_HEAD)
    for head in ("policy", "keys", "outcome"):
        table.add_column(head, justify="right" if head == "keys" else "left")
    for result in results:
        table.add_row(result.policy, f"{result.body.get('keys', 0):,}", result.outcome)
    return table


def publish_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a line for each policy that a run has published, or could not."""
    bodies = [(it.policy, it.body["publish"]) for it in results if "publish" in it.body]
    return [
        Text(printable(f"{policy}: not published: {body['error']}"), style="yellow")
        if "error" in body
        else Text(f"{policy}: {body['keys']:,} keys published")
        for policy, body in bodies
    ]
