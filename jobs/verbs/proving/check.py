"""`bucketwise check`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pymongo.database import Database
from pymongo.errors import PyMongoError

from bucketwise.archivers.proof.checks import check_server, check_store
from bucketwise.archivers.proof.findings import Finding
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import Policy
from bucketwise.jobs import clock
from bucketwise.jobs.call import Call
from bucketwise.jobs.failures import explain
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.text.tables import findings_table, fit_lines
from bucketwise.jobs.running.runner import Runner, RunOptions
from bucketwise.jobs.steps.working import CHECK, FAILED, finding_body

EXAMPLES = ["bucketwise check", "bucketwise check -c /etc/bucketwise.toml --json"]


def check(call: Call) -> Report:
    """Check that a run would work, and would be safe.

    Validates config, connections, clocks, privileges, indexes, TTL conflicts, and what the store can do. Ends
    with exit code 1 where an error would keep a run from working or put data at risk, and with 0 where
    there are warnings at most. It writes nothing but a small object to the store, which it removes.
    """
    policies = call.policies
    results: list[Result] = []
    with call.database() as database:
        try:
            general = [finding_body(it) for it in (*check_server(database), _clock(database))]
            results = Runner.of(call, database, [CHECK], RunOptions(dry_run=True)).run_all(policies)
        except PyMongoError as error:
            reason = explain(error, call.hosts).message
            general = [finding_body(Finding("server-unreachable", None, call.hosts, "error", reason))]
    if call.store is not None:
        general += [finding_body(it) for it in check_store(call.store, _storage_classes(policies))]
    findings = [*general, *(it for result in results for it in result.body.get("findings", []))]
    failed = any(it["severity"] == "error" for it in general)
    return Report(
        call.command,
        call.now,
        results,
        [findings_table("Check", findings), *fit_lines(results)],
        error_code=FAILED if failed else 0,
        extra={"findings": general},
    )


def _storage_classes(policies: Iterable[Policy]) -> list[str]:
    """Those that parts are to have."""
    named = (it.archive.storage_class for it in policies if it.archive is not None)
    return sorted({it for it in named if it is not None})


def _clock(database: Database[dict[str, Any]]) -> Finding:
    """Checks that this machine's clock agrees with the server's. Raises PyMongoError."""
    try:
        clock.check_skew(clock.current(), clock.of_server(database))
    except BucketwiseError as error:
        return Finding("clock", None, "clock", "error", str(error))
    return Finding("clock", None, "clock", "ok", "this machine's clock and MongoDB's agree")
