"""Runs that have to be repeated, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from jobs.clock import iso
from jobs.output.report import Result
from jobs.output.text.tables import printable

UNTOLD = "repeat it as it was given: the ledger does not record which series it named"


def failed_lines(results: Sequence[Result]) -> list[Text]:
    """Returns two lines for each run: what happened, and the command."""
    told = [line for result in results for it in result.body.get("failed", ()) for line in _lines(result, it)]
    if not told and all(result.error is None for result in results):
        return [Text("No run needs to be repeated", style="green")]
    return told


def _lines(result: Result, it: dict[str, Any]) -> Iterator[Text]:
    error = (it["error"] or "it never finished").partition("\n")[0]
    what = f"{result.policy}: {it['verb']} of {iso(it['started'])}: {it['outcome']}: {error}"
    yield Text(printable(what), style="bold red")
    yield Text(f"    {printable(it['command'] or UNTOLD)}")
