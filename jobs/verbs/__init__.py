"""The verbs of the command line: a file a verb. Each has its function and its EXAMPLES."""

from __future__ import annotations

from collections.abc import Callable

from jobs.output.report import Report
from jobs.verbs import demo, init
from jobs.verbs.asking import advise, coverage, explain, query, readings, receipts, status, summarize
from jobs.verbs.keeping import hold, pause, undelete
from jobs.verbs.proving import audit, check, drill, sign, verify
from jobs.verbs.returning import restore, unpin
from jobs.verbs.working import (
    archive,
    compact,
    erase,
    lake,
    plan,
    publish,
    remodel,
    rollup,
    run,
    schedule,
)

#: In the order in which --help lists them.
VERBS: dict[str, tuple[Callable[..., Report], list[str]]] = {
    "demo": (demo.demo, demo.EXAMPLES),
    "init": (init.init, init.EXAMPLES),
    "check": (check.check, check.EXAMPLES),
    "plan": (plan.plan, plan.EXAMPLES),
    "rollup": (rollup.rollup, rollup.EXAMPLES),
    "archive": (archive.archive, archive.EXAMPLES),
    "run": (run.run, run.EXAMPLES),
    "summarize": (summarize.summarize, summarize.EXAMPLES),
    "readings": (readings.readings, readings.EXAMPLES),
    "query": (query.query, query.EXAMPLES),
    "coverage": (coverage.coverage, coverage.EXAMPLES),
    "explain": (explain.explain, explain.EXAMPLES),
    "advise": (advise.advise, advise.EXAMPLES),
    "remodel": (remodel.remodel, remodel.EXAMPLES),
    "schedule": (schedule.schedule, schedule.EXAMPLES),
    "publish": (publish.publish, publish.EXAMPLES),
    "compact": (compact.compact, compact.EXAMPLES),
    "lake": (lake.lake, lake.EXAMPLES),
    "verify": (verify.verify, verify.EXAMPLES),
    "drill": (drill.drill, drill.EXAMPLES),
    "restore": (restore.restore, restore.EXAMPLES),
    "unpin": (unpin.unpin, unpin.EXAMPLES),
    "hold": (hold.hold, hold.EXAMPLES),
    "undelete": (undelete.undelete, undelete.EXAMPLES),
    "erase": (erase.erase, erase.EXAMPLES),
    "pause": (pause.pause, pause.EXAMPLES),
    "resume": (pause.resume, pause.RESUME_EXAMPLES),
    "receipts": (receipts.receipts, receipts.EXAMPLES),
    "sign": (sign.sign, sign.EXAMPLES),
    "audit": (audit.audit, audit.EXAMPLES),
    "status": (status.status, status.EXAMPLES),
}
