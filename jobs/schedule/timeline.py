"""The page of one policy: where it stands, its sizes over time, and what each of its runs did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bucketwise.jobs.core.ledger import Run
from bucketwise.jobs.core.turn import pick

Body = dict[str, Any]

#: So many runs are on the page; those that did nothing are one.
MOST_RUNS = 60
#: Of the drawing, in its own units.
WIDTH, HEIGHT = 600, 100


@dataclass(frozen=True)
class Line:
    """One size over time: its name, the class of its colour, its path, and its bytes at first and at last."""

    name: str
    colour: str
    path: str
    first: int
    last: int


@dataclass(frozen=True)
class Chart:
    """Sizes over time. `most`: the bytes at the top; `since`, `until`: the ends of the time axis."""

    lines: list[Line]
    most: int
    since: datetime
    until: datetime


def chart(runs: Sequence[Run]) -> Chart | None:
    """Returns the sizes that runs recorded, the newest run first; None where there are fewer than two."""
    found = [(it.ended, worth["now"]) for it in reversed(runs) if it.ended and (worth := _worth(it))]
    if len(found) < 2:
        return None
    since, until = found[0][0], found[-1][0]
    series = {
        ("in MongoDB", "live"): [sum(now[key] for key in _IN_MONGODB) for _, now in found],
        ("in the archive", "archived"): [now["store_bytes"] for _, now in found],
    }
    most = max(1, *(max(it) for it in series.values()))
    span = (until - since).total_seconds() or 1.0
    places = [round((at - since).total_seconds() / span * WIDTH) for at, _ in found]
    lines = [
        Line(name, colour, "".join(_path(places, sizes, most)), sizes[0], sizes[-1])
        for (name, colour), sizes in series.items()
    ]
    return Chart(lines, most, since, until)


_IN_MONGODB = ("data_bytes", "index_bytes", "summary_bytes")


def _worth(run: Run) -> Mapping[str, Any] | None:
    """Returns the sizes in the ledger's entry of a run; None where it has none, or of an earlier version."""
    worth = run.counts.get("worth")
    now = worth.get("now") if isinstance(worth, Mapping) else None
    is_whole = isinstance(now, Mapping) and all(
        isinstance(now.get(it), int) for it in (*_IN_MONGODB, "store_bytes")
    )
    return worth if is_whole else None


def _path(places: Sequence[int], sizes: Sequence[int], most: int) -> Iterator[str]:
    """Yields the steps of a line: a size holds until the next one is known."""
    for at, (place, count) in enumerate(zip(places, sizes, strict=True)):
        height = HEIGHT - round(HEIGHT * count / most)
        yield f"H{place}V{height}" if at else f"M{place} {height}"


def run_body(run: Run) -> Body:
    """Returns a run as the pages show it."""
    archived = run.counts.get("archive", run.counts if run.verb == "archive" else {})
    done = archived if isinstance(archived, Mapping) else {}
    return {
        **pick(run, "policy", "verb", "started", "ended", "outcome", "runs"),
        "took": None if run.ended is None else (run.ended - run.started).total_seconds(),
        "documents": done.get("buckets"),
        "removed": done.get("removed_bytes"),
        "bytes": done.get("bytes"),
        "error": (run.error or "").partition("\n")[0],
        "good": run.exit_code in (None, 0, 3),
    }


def with_trends(runs: Sequence[Body]) -> list[Body]:
    """Returns runs, the newest first, each with how many times as long it took as the one before of its
    policy and verb; None where there is none."""
    found: list[Body] = []
    before: dict[tuple[str, str], float] = {}
    for it in reversed(runs):
        kind, took = (it["policy"], it["verb"]), it["took"]
        known = before.get(kind)
        found.append({**it, "trend": took / known if took and known else None})
        if took:
            before[kind] = took
    return found[::-1]
