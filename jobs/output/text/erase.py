"""What an erasure did, and what remains, as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from jobs.output.report import Result
from jobs.output.text.tables import erase_table, plain_table


def erase_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns the tables: what was erased, or would be; and where something remains, or may."""
    left = plain_table("Remaining", "place", "why")
    for result in results:
        for it in result.body.get("remaining", []):
            left.add_row(it["place"], it["why"], style="yellow" if it["found"] else None)
    none = not any(result.body.get("buckets") or result.body.get("summaries") for result in results)
    is_dry = any(result.body.get("dry_run") for result in results)
    told = [Text("Nothing was changed. Add --confirm and the policy's name to erase this.")] if is_dry else []
    if none and all(result.body for result in results):
        told.insert(0, Text("Nothing of this series was found: is --series correct?"))
    return [erase_table(results), *told, left]
