"""Checks how long the ledger keeps entries."""

from __future__ import annotations

from datetime import timedelta

from config.durations import format_duration
from config.problems import Fault, Report
from config.tables import RunLedger

SHORTEST = timedelta(days=1)


def check_ledger(ledger: RunLedger, report: Report) -> None:
    """Reports a `ledger.keep` that is too short."""
    if ledger.keep is not None and ledger.keep < SHORTEST:
        shortest = format_duration(SHORTEST)
        fault = Fault(f"it is shorter than {shortest}", f'write "{shortest}" or longer, or "forever"')
        report.add(("ledger", "keep"), fault)
