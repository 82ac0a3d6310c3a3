"""Checks that there are archives to drill, and that the drills asked for can be done."""

from __future__ import annotations

from datetime import timedelta

from config.durations import format_duration
from config.policies import Settings
from config.problems import Fault, Report

SHORTEST = timedelta(days=1)


def check_drill(settings: Settings, report: Report) -> None:
    """Reports drills that are too small or too frequent, and a `drill` table without an offline archive."""
    drill = settings.drill
    if drill.days < 1:
        report.add(("drill", "days"), Fault("a drill covers at least one day", "write 1 or more"))
    if drill.every is not None and drill.every < SHORTEST:
        shortest = format_duration(SHORTEST)
        fault = Fault(f"it is shorter than {shortest}", f'write "{shortest}" or longer, or "forever"')
        report.add(("drill", "every"), fault)
    archives = (it.archive for it in settings.policies.values())
    if drill.model_fields_set and not any(it is not None and it.to == "offline" for it in archives):
        fault = Fault("no policy has an offline archive, and only these are drilled", "remove the table")
        report.add(("drill",), fault)
