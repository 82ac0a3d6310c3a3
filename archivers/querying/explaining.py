"""Explains what a query would read, without reading it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bucketwise.archivers.format.rows import RowFilter
from bucketwise.archivers.querying.engine import Engine
from bucketwise.archivers.querying.rewriting import Rewritten, rewritten
from bucketwise.archivers.querying.served import Scan
from bucketwise.archivers.querying.views import View
from bucketwise.archivers.reading.archived import archived_reader


@dataclass(frozen=True)
class ViewRead:
    """One scan of a view. `parts` and `bytes`: of the files of an offline archive that may hold some of it.
    `live`: the first and last time of live buckets, in milliseconds. None: does not apply."""

    scan: Scan
    view: View
    parts: int | None = None
    bytes: int | None = None
    live: tuple[int, int] | None = None


@dataclass(frozen=True)
class ExplainedQuery:
    """What a statement would read. `unread`: views that it names, of which the amount that is read depends on
    other results."""

    reads: Sequence[ViewRead]
    unread: Sequence[str]
    rewritten: Rewritten | None


def explain(engine: Engine, sql: str) -> ExplainedQuery:
    """Returns what a statement would read. Raises what `Engine.run` does, except errors of reading."""
    engine.scan_log.is_dry = True
    try:
        engine.run(sql, lambda reader: reader.read_all())
    finally:
        engine.scan_log.is_dry = False
    scans = list(engine.scan_log.scans)
    reads = [_view_read(engine.views[it.view], it) for it in scans]
    named = {it.name for it in engine.views_named(sql)} if len(scans) else set()
    found = None
    if len(reads) == 1 and reads[0].view.what == "readings":
        found = rewritten(engine.connection, sql, reads[0].view, scans[0].narrowed.ranges)
    return ExplainedQuery(reads, sorted(named - {it.view for it in scans}), found)


def _view_read(view: View, scan: Scan) -> ViewRead:
    if view.what != "readings":
        return ViewRead(scan, view)
    context, selectors = view.context, scan.narrowed.selectors
    archived = archived_reader(context.connections, context.policy)
    held = [archived.parts(RowFilter(start, end, selectors)) for start, end in scan.narrowed.ranges]
    if any(it is None for it in held):
        return ViewRead(scan, view, live=context.source.span())
    unlike = {part.key: part.bytes for some in held for part in some or ()}
    return ViewRead(scan, view, len(unlike), sum(unlike.values()), context.source.span())
