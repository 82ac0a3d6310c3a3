"""The closing line of a command: one sentence with figures, and what needs attention."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.text import Text

from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.output.text import duration, first_of, size

Body = dict[str, Any]
#: What a plan calls what a run calls otherwise.
_TITLES = {
    "Roll-up": "Would be rolled up",
    "Archive": "Would be archived",
    "Compact": "Would be merged",
    "Expired summaries": "Summaries that would expire",
}
#: So many policies that need attention are named.
_MOST_NAMED = 10
_CONSONANT_Y = re.compile("(?<![aeiou])y$")
_HEADS = {"deleted": "to delete"}
#: Columns of what only a run can tell.
_UNKNOWN = ("parts", "size")


def counted(count: int, one: str) -> str:
    """Returns a number with its noun: 1 policy, 2 policies."""
    if count == 1:
        return f"1 {one}"
    return f"{count:,} {_CONSONANT_Y.sub('ie', one)}s"


def sums(results: Sequence[Result], *keys: str) -> list[int]:
    """Returns the sum of each of these keys over policies."""
    return [sum(it.body.get(key) or 0 for it in results) for key in keys]


def closing(results: Sequence[Result], what: str) -> list[Text]:
    """Returns the line: how many policies, what was done, and which need attention."""
    if not results:
        return []
    done = what if any(it.body for it in results) else "none was worked on"
    return [Text(f"{counted(len(results), 'policy')}: {done}{attention(results)}")]


def attention(results: Sequence[Result]) -> str:
    """Returns which policies need attention, and how they ended; nothing where none does."""
    odd = [f"{it.policy} ({it.outcome})" for it in results if it.outcome != "done"]
    if not odd:
        return ""
    return f"; {len(odd):,} {'needs' if len(odd) == 1 else 'need'} attention: {first_of(odd, _MOST_NAMED)}"


def run_closing(results: Sequence[Result]) -> list[Text]:
    """Returns the line of `run`, `rollup` and `archive`."""
    figures = _Figures(results)
    seconds = sum(sum(it.measures.seconds.values()) for it in results)
    done = [
        *_some(figures.readings, "{} rolled up", "reading"),
        *_some(figures.of("archive", "buckets"), "{} archived", "bucket"),
        *([f"{size(removed)} removed"] if (removed := figures.of("archive", "removed_bytes")) else []),
        *([f"{size(stored)} added to the archive"] if (stored := figures.of("archive", "bytes")) else []),
        *_some(figures.expired, "{} expired", "summary"),
    ]
    idle = "nothing was due" if any(it.exit_code in (0, 3) for it in results) else "nothing was done"
    return closing(results, f"{', '.join(done) or idle}; {seconds:.1f} s")


def plan_closing(results: Sequence[Result]) -> list[Text]:
    """Returns the line of `plan` and `archive --dry-run`."""
    figures = _Figures(results)
    would = [
        *_some(figures.readings, "roll up {}", "reading"),
        *_some(figures.of("archive", "buckets"), "archive {}", "bucket"),
        *_some(figures.of("archive", "deleted"), "delete {}", "bucket"),
        *_some(figures.expired, "expire {}", "summary"),
    ]
    what = "a run would find nothing to do"
    if would:
        what = f"a run would {', '.join(would)}{_estimated(figures)}"
    return closing(results, f"{what}. Nothing was changed")


def _estimated(figures: _Figures) -> str:
    """Returns what it would take by the last runs of the policies, as far as these tell."""
    sizes = {"added to the archive": "bytes", "removed": "removed_bytes"}
    told = [
        f"about {size(count)} {what}" for what, key in sizes.items() if (count := figures.of("estimate", key))
    ]
    seconds = figures.of("estimate", "seconds")
    told += [f"about {duration(seconds)}"] if seconds else []
    return f"; by the last runs {', '.join(told)}" if told else ""


def in_future(table: Grid) -> Grid:
    """Returns a table of a run as that of a plan, without what only a run can tell."""
    kept = [at for at, head in enumerate(table.heads) if head not in _UNKNOWN]
    heads = [_HEADS.get(it, re.sub(r"^(.+) written$", r"\1 to write", it)) for it in table.heads]
    rows = [[row[at] for at in kept] for row in table.rows]
    title = _TITLES.get(table.title, table.title)
    return replace(table, title=title, heads=[heads[at] for at in kept], rows=rows)


class _Figures:
    """Sums over policies, of a verb with one step or with several."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._bodies = [it.body for it in results]

    def of(self, step: str, key: str) -> int:
        """Returns the sum of a key of a step."""
        return sum(body.get(key) or 0 for body in self._of_step(step))

    @property
    def readings(self) -> int:
        """Returns how many readings were rolled up; an archive has a count of its own."""
        return sum(it.get("readings") or 0 for it in self._of_step("rollup") if "hourly" in it)

    @property
    def expired(self) -> int:
        """Returns how many summaries have expired."""
        found = (body.get("expiry", {}) for body in self._bodies)
        return sum(it for body in found for it in body.values() if type(it) is int)

    def _of_step(self, step: str) -> Iterator[Mapping[str, Any]]:
        for body in self._bodies:
            inner = body.get(step)
            yield inner if isinstance(inner, dict) else body


def _some(count: int, text: str, noun: str) -> list[str]:
    return [text.format(counted(count, noun))] if count else []
