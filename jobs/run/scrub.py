"""The step that looks after a share of the archive once a day, in the words of the JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from bucketwise.config.errors import HaltedError
from bucketwise.jobs.core.turn import LEFT_SOMETHING, Step, StepResult, Turn, pick
from bucketwise.jobs.output.report import Result

Body = dict[str, Any]


def _scrub(turn: Turn) -> StepResult:
    from bucketwise.archivers.copying.scrubbing import scrub

    found = scrub(turn.context) if turn.context.has_parts and not turn.dry_run else None
    if found is None:
        return StepResult({})
    body: Body = {
        **pick(found, "parts", "parts_read"),
        "repaired": len(found.mended),
        "lost": len(found.lost),
        "objects": [pick(it, "place", "source", "code") for it in found.mended],
        "damage": [pick(it, "code", "place", "message") for it in found.lost],
    }
    return StepResult(body, HaltedError.exit_code if found.lost else LEFT_SOMETHING if found.mended else 0)


SCRUB = Step("scrub", _scrub, by_present=True, weight=0.1)


def scrub_lines(results: Sequence[Result]) -> Iterator[Text]:
    """Yields what was put back in each policy's archive, and what is damaged everywhere."""
    for result in results:
        body = result.body.get("scrub") or {}
        for it in body.get("objects", ()):
            yield Text(f"{result.policy}: {it['code']} {it['place']}: put back from {it['source']}", "yellow")
        for it in body.get("damage", ()):
            yield Text(f"{result.policy}: {it['code']} {it['place']}: {it['message']}", "bold red")
