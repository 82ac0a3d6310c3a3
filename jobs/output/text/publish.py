"""What was published, as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from jobs.output.report import Result
from jobs.output.text.tables import printable


def publish_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a line for each policy that a run has published, or could not."""
    bodies = [(it.policy, it.body["publish"]) for it in results if "publish" in it.body]
    return [
        Text(printable(f"{policy}: not published: {body['error']}"), style="yellow")
        if "error" in body
        else Text(f"{policy}: {body['keys']:,} keys published")
        for policy, body in bodies
    ]
