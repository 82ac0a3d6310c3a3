"""Which views there are: of each policy its readings, each level of its summaries, and its coverage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.querying.tables import CoverageTable, ReadingsTable, SummariesTable, Table, Types
from bucketwise.archivers.tasks import Connections, LocalExecutor
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import LevelName, Policy
from bucketwise.rollups.context import Check, ProgressListener, no_progress
from bucketwise.rollups.guarded import dry_run_guard


def read_context(
    connections: Connections,
    policy: Policy,
    now: datetime,
    check: Check = lambda: None,
    progress: ProgressListener = no_progress,
    known: Sequence[Policy] = (),
) -> ArchiveContext:
    """Returns a context for reading only. `check` raises where the query must stop. `known`: all policies of
    the file."""
    return ArchiveContext(
        connections.database,
        policy,
        now,
        dry_run_guard,
        check,
        progress,
        store=connections.store,
        keys=connections.keys,
        executor=LocalExecutor(connections),
        known=known,
    )


@dataclass(frozen=True)
class View:
    """A view of a policy: its readings, the summaries of a level, or its coverage."""

    name: str
    context: ArchiveContext
    what: str  # "readings", "summaries" or "coverage"
    make: Callable[[Types], Table]
    level: LevelName | None = None


def views_of(contexts: Sequence[ArchiveContext]) -> list[View]:
    """Returns the views of policies. Raises UsageError where SQL could not tell two by their names."""
    found: dict[str, View] = {}
    for view in (it for context in contexts for it in _views(context)):
        other = found.setdefault(view.name.lower(), view)
        if other is not view:
            raise UsageError(
                f"policy {view.context.policy.name}: its view {view.name} has the name of "
                f"{other.name}, of policy {other.context.policy.name}: SQL can't tell them. Ask for one of "
                "the two policies with --policy, or rename one in the policy file"
            )
    return list(found.values())


def _views(context: ArchiveContext) -> Iterator[View]:
    name, rollup = context.policy.name, context.policy.rollup
    yield View(name, context, "readings", partial(ReadingsTable, context))
    for level in rollup.targets if rollup else ():
        yield View(f"{name}_{level}", context, "summaries", partial(SummariesTable, context, level), level)
    yield View(f"{name}_coverage", context, "coverage", lambda _types: CoverageTable(context))


def check_columns(view: str, names: Sequence[str]) -> None:
    """Raises UsageError where SQL could not tell two columns by their names."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) is not name:
            raise UsageError(
                f"view {view}: SQL can't tell its columns {other} and {name}. `bucketwise readings` has them "
                "both; to ask for other policies, name them with --policy"
            )


def quoted(name: str) -> str:
    """Returns a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'
