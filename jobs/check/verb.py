"""`bucketwise check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from bucketwise.buckets.fields.times import FIRST_MS, as_ms
from bucketwise.config.errors import BucketwiseError, HaltedError
from bucketwise.jobs.copy import copy_findings
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import PAUSED, Code, Job
from bucketwise.jobs.core.turn import (
    FAILED,
    Finding,
    RunOptions,
    Step,
    StepResult,
    Turn,
    finding_body,
    findings_result,
)
from bucketwise.jobs.output.bodies import keeping
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import counted, findings_table, fit_lines
from bucketwise.jobs.run.verb import JOB as RUN_JOB

if TYPE_CHECKING:
    from pymongo.collection import Collection
    from pymongo.database import Database

    from bucketwise.archivers.context import ArchiveContext
    from bucketwise.config.policies import Policy

Document = dict[str, Any]
#: Summaries that start so close to one another are neighbours: no level is finer.
_WINDOW = timedelta(minutes=5)
_MILLISECOND = timedelta(milliseconds=1)


def gained(database: Database[Document], policy: Policy) -> Iterator[Finding]:
    """Yields findings of each level and value field whose first summary lacks statistics of the policy."""
    from bucketwise.rollups.calendar.levels import levels_of
    from bucketwise.rollups.summaries import documents

    for level in levels_of(policy):
        collection = database.get_collection(level.collection, codec_options=documents.OPTIONS)
        for name, holding, keys in _told(policy):
            summaries = _Summaries(collection, name, holding)
            first = summaries.at(None)
            told = {} if first is None else documents.value_at(first, name)
            lacking = [key for key in keys if key not in told] if first is not None else []
            for since, some in summaries.since(first, lacking).items():
                place = f"{level.collection}, {name}"
                yield Finding("statistics-since", policy.name, place, "ok", _text(since, some))


def _told(policy: Policy) -> Iterator[tuple[str, Document, list[str]]]:
    """Yields value fields, queries for their summaries, and the keys that all of these have: those of numbers
    where there is one, and those of states that are texts."""
    from bucketwise.rollups.statistics import columns_of, statistics_of

    for name, kinds in statistics_of(policy).items():
        numeric, worded = ([it for it in kinds if it.has_texts == flag] for flag in (False, True))
        for some, holding in ((numeric, {f"{name}.count": {"$gt": 0}}), (worded, {name: {"$exists": True}})):
            shown = [it for it in columns_of(some) if kinds[0].kept.shows(it.key) and not it.has_silent_zero]
            yield name, holding, [it.key for it in shown]


@dataclass(frozen=True)
class _Summaries:
    """The summaries of a level that tell of a value field. Each question goes by the index of starts, so that
    none reads its way through the years."""

    collection: Collection[Document]
    name: str
    holding: Document

    def at(self, start: datetime | None, order: int = 1) -> Document | None:
        """Returns the first one that starts at this instant or later; None: the first of all, or the last
        where `order` is -1."""
        from bucketwise.buckets.bson.cursor import SIMPLE

        query: Document = {"_id.series": {"$exists": True}, **self.holding}
        if start is not None:
            query["start"] = {"$gte": start}
        return self.collection.find_one(query, sort=[("start", order)], collation=SIMPLE)

    def since(self, first: Document | None, keys: list[str]) -> dict[int | None, list[str]]:
        """Returns these keys, which the first one lacks, by the start from which on they are told
        (milliseconds); None: the last one lacks them too."""
        from bucketwise.rollups.summaries import documents

        found: dict[int | None, list[str]] = {}
        last = self.at(None, -1) if keys else None
        for key in keys:
            is_told = last is not None and key in documents.value_at(last, self.name)
            start = self._begin(first, last, key) if is_told and first and last else None
            found.setdefault(start, []).append(key)
        return found

    def _begin(self, lacking: Document, telling: Document, key: str) -> int:
        """Returns the start of the first one that tells a key, by halves: earlier ones don't."""
        from bucketwise.rollups.calendar.windows import to_ms
        from bucketwise.rollups.summaries import documents

        low, high = lacking["start"], telling["start"]
        while high - low > _WINDOW:
            between = self.at(low + (high - low) / 2)
            if between is None or between["start"] >= high or key in documents.value_at(between, self.name):
                high = low + (high - low) / 2
            else:
                low = between["start"]
        after = self.at(low + _MILLISECOND)
        return to_ms((after or telling)["start"])


def _text(since: int | None, keys: list[str]) -> str:
    from bucketwise.rollups.calendar.tiling import instant

    names = ", ".join(keys)
    if since is None:
        return f"no summary tells {names} yet: they come with windows that are rolled up from now on"
    at = instant(since)
    return (
        f"summaries tell {names} from {at} on. For earlier ones: `bucketwise rollup --since INSTANT --until "
        f"{at}`, as far as their readings are live or archived"
    )


Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also show how the documents of each policy are read.")
]


def check(call: Call, verbose: Verbose = False) -> Report:
    """Check that a run would work, and would be safe.

    Validates config, connections, clocks, privileges, indexes, TTL conflicts, and what the store can do. Ends
    with exit code 1 where an error would keep a run from working or put data at risk, and with 0 where
    there are warnings at most. It writes nothing but a small object to the store, which it removes.
    """
    from pymongo.errors import PyMongoError

    from bucketwise.jobs.check.services import check_server, check_stores
    from bucketwise.jobs.core.failures import failure_of
    from bucketwise.jobs.core.runner import Runner

    policies = call.policies
    results: list[Result] = []
    with call.database() as database:
        try:
            general = [finding_body(it) for it in (*check_server(database), _clock(database))]
            results = Runner.of(call, database, [CHECK], RunOptions(dry_run=True)).run_all(policies)
        except PyMongoError as error:
            reason = failure_of(error, call.hosts).message
            general = [finding_body(Finding("server-unreachable", None, call.hosts, "error", reason))]
    if call.store is not None:
        general += [finding_body(it) for it in check_stores(call.store, policies)]
    findings = [*general, *(it for result in results for it in result.body.get("findings", []))]
    failed = any(it["severity"] == "error" for it in general)
    return Report(
        call.command,
        call.now,
        results,
        [findings_table("Check", findings), *fit_lines(results, is_full=verbose), check_closing(findings)],
        error_code=FAILED if failed else 0,
        extra={"findings": general},
    )


def check_closing(findings: Sequence[Mapping[str, Any]]) -> Text:
    """Returns the last line: would a run work?"""
    counts = Counter(it["severity"] for it in findings)
    told = "A run would not work, or put data at risk" if counts["error"] else "A run would work"
    odd = f"{counted(counts['error'], 'error')}, {counted(counts['warning'], 'warning')}"
    return Text(f"{told}: {counted(len(findings), 'finding')}, {odd}")


def _clock(database: Database[dict[str, Any]]) -> Finding:
    """Checks that this machine's clock agrees with the server's. Raises PyMongoError."""
    try:
        clock.check_skew(clock.current(), clock.of_server(database))
    except BucketwiseError as error:
        return Finding("clock", None, "clock", "error", str(error))
    return Finding("clock", None, "clock", "ok", "this machine's clock and MongoDB's agree")


#: What a run does in the collections of bucketwise.
OWN_COLLECTIONS = {name: ("find", *actions) for name, actions in RUN_JOB.rights.items()}


def _check(turn: Turn) -> StepResult:
    from bucketwise.archivers.classes import places_of
    from bucketwise.jobs.check.checks import check_policy
    from bucketwise.jobs.check.classes import billed_longer
    from bucketwise.jobs.core import lease
    from bucketwise.jobs.core.fit import fit_body
    from bucketwise.jobs.core.lease import pause_findings
    from bucketwise.jobs.core.throttle import lag_findings
    from bucketwise.rollups.calendar.levels import levels_of

    context = turn.context
    checked = check_policy(
        context.database, turn.policy, OWN_COLLECTIONS, partial(_unmet, context), lambda: context.plausible
    )
    # Where a right is missing, nothing is asked.
    withheld = {it.place for it in checked.findings if it.code == "privilege-missing"}
    paused = pause_findings(turn) if lease.COLLECTION not in withheld else []
    early = _early(context) if withheld.isdisjoint(OWN_COLLECTIONS) else []
    targets = {level.collection for level in levels_of(turn.policy)}
    since = gained(context.database, turn.policy) if withheld.isdisjoint(targets) else ()
    found = [*paused, *lag_findings(turn), *unfollowed(turn), *early, *checked.findings, *since]
    if withheld.isdisjoint(OWN_COLLECTIONS):
        found += copy_findings(None, turn)
    found += billed_longer(turn.policy, places_of(context))
    done = findings_result(found, FAILED)
    fit = None if checked.fit is None else fit_body(checked.fit, turn.policy, checked.misfits)
    return StepResult({**done.body, "fit": fit}, done.exit_code)


def _unmet(context: ArchiveContext) -> Iterator[Finding]:
    """Yields what would keep a run from going on."""
    from bucketwise.archivers.preconditions import OF_CHECKS, problems
    from bucketwise.archivers.stores.base import StoreError

    name = context.policy.name
    try:
        for it in problems(context, OF_CHECKS):
            yield Finding(it.code, name, it.place, "error", str(it.error))
        yield from _oldest(context)
    except StoreError as error:  # the rest can't be asked
        yield Finding("store", name, context.store.url if context.store else "", "error", str(error))


def _oldest(context: ArchiveContext) -> Iterator[Finding]:
    """Yields a finding where today's keys don't open the oldest commit."""
    from bucketwise.archivers.context import Connections, offline_archive

    archive = offline_archive(Connections(context.database, context.store), context.policy)
    if archive is None or context.store is None or context.store.file_keys(context.policy.identity) is None:
        return
    try:
        first = archive.earliest(FIRST_MS)
        for manifest in [] if first is None else archive.manifests(first, first + 1)[:1]:
            archive.load(manifest, 0)
    except HaltedError as error:
        yield Finding("key-wrong", context.policy.name, archive.store.url, "error", str(error))


def _early(context: ArchiveContext) -> list[Finding]:
    """Returns a finding if times before 1971 are summarised, and the policy does not say from when on times
    are plausible."""
    from bucketwise.buckets.decoding.soundness import EARLIEST

    policy = context.policy
    if policy.earliest is not None or context.plausible.first == as_ms(EARLIEST):
        return []
    message = (
        f"there are summaries of times before {EARLIEST:%Y}, so that any earlier time is taken for right: a "
        "wrong unit would not be noticed. Say from when on times are plausible, such as "
        'earliest = "1960-01-01"'
    )
    return [Finding("earliest-missing", policy.name, policy.collection, "warning", message)]


CHECK = Step("check", _check)


def unfollowed(turn: Turn) -> list[Finding]:
    """Returns a finding if the policy only rolls up what another one archives."""
    from bucketwise.rollups.calendar.levels import levels_of

    policy, archivers = turn.policy, turn.archivers
    if policy.archiving is not None or not archivers or not levels_of(policy):
        return []
    name = archivers[0].name
    message = (
        f"policy {name} archives {policy.collection}, and this one only rolls it up: readings that come late "
        "for what is archived are not in its summaries; runs count such summaries as `missed`. If that "
        f"matters, let policy {name} make these summaries"
    )
    return [Finding("late-missed", policy.name, policy.collection, "warning", message)]


#: What a check may find.
CHECKED = (
    PAUSED,
    Code("server-unreachable"),
    Code("server-version", severities=("error", "ok")),
    Code("replica-set", severities=("error", "warning", "ok")),
    Code("archive-kind"),
    Code("sharded-id", severities=("warning",)),
    Code("clock", severities=("error", "ok")),
    Code("store", severities=("error", "warning", "ok")),
    Code("store-absent"),
    Code("storage-class", severities=("warning", "ok")),
    Code("lifecycle", severities=("error", "warning", "ok")),
    Code("copy-unfilled", severities=("error", "warning")),
    Code("copy-behind"),
    Code("copy-removed", severities=("warning",)),
    Code("archive-not-ours"),
    Code("object-lock", severities=("error", "warning", "ok")),
    Code("store-versioned", severities=("ok",)),
    Code("lag-unreadable"),
    Code("late-missed", severities=("warning",)),
    Code("earliest-missing", severities=("warning",)),
    Code("key-wrong"),
    Code("lag", severities=("warning",)),
    Code("policy", severities=("ok",)),
    Code("statistics-since", severities=("ok",)),
    Code("time-recorded"),
    Code("policy-renamed"),
    Code("summaries-lost"),
    Code("archive-unreadable"),
    Code("hold-missing"),
    Code("source-missing"),
    Code("archive-foreign"),
    Code("archive-incomplete"),
    Code("source-kind"),
    Code("deletes-impossible", severities=("warning",)),
    Code("index-missing", severities=("warning",)),
    Code("times-unsorted", severities=("warning",)),
    Code("ends-unknown", severities=("warning",)),
    Code("overflow-kind"),
    Code("overflow-missing", severities=("warning",)),
    Code("ttl-conflict"),
    Code("value-field-empty"),
    Code("no-readings"),
    Code("summaries-larger", severities=("warning",)),
    Code("slots-sparse"),
    Code("slots-overlap"),
    Code("slots-shifted"),
    Code("samples-unit"),
    Code("time-format-unlikely"),
    Code("zone-unlikely"),
    Code("days-unlikely"),
    Code("no-bucket-fits"),
    Code("target-kind"),
    Code("stream-unreadable", severities=("error", "warning")),
    Code("privilege-missing"),
)


JOB = Job(
    check,
    body=keeping.Check,
    beside=keeping.CheckWhole,
    checked=CHECKED,
    examples=(
        "bucketwise check",
        "bucketwise check --verbose",
        "bucketwise check -c /etc/bucketwise.toml --json",
    ),
)
