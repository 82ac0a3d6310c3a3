"""The list of jobs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from bucketwise.jobs.output.report import Report

#: In the order in which --help lists them: the module of each, in this package.
VERBS = {
    "demo": "demo.verb",
    "init": "init.verb",
    "check": "check.verb",
    "plan": "plan.verb",
    "rollup": "rollup",
    "archive": "archive",
    "run": "run.verb",
    "summarize": "summarize",
    "readings": "readings",
    "query": "query.verb",
    "coverage": "coverage",
    "explain": "explain.verb",
    "advise": "advise.verb",
    "remodel": "remodel.verb",
    "schedule": "schedule.verb",
    "publish": "publish.verb",
    "compact": "compact",
    "lake": "lake",
    "verify": "verify",
    "drill": "drill",
    "restore": "restore.verb",
    "unpin": "restore.unpin",
    "hold": "hold.verb",
    "undelete": "undelete",
    "erase": "erase.verb",
    "adopt": "adopt",
    "pause": "pause",
    "resume": "pause",
    "retire": "retire",
    "receipts": "receipts",
    "sign": "sign",
    "audit": "audit.verb",
    "status": "status",
}


def load(name: str) -> tuple[Callable[..., Report], list[str]]:
    """Imports a verb. Returns its function and its examples.

    A process imports only the verbs that its command line names: all of them take as long as a short run."""
    module = import_module(f"{__package__}.{VERBS[name]}")
    beside = [
        f"bucketwise {other} " for other, path in VERBS.items() if path == VERBS[name] and other != name
    ]
    examples = [it for it in module.EXAMPLES if not any(other in f"{it} " for other in beside)]
    return getattr(module, name), examples
