"""The verbs of the command line: modules with the functions of these names, and EXAMPLES of them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from bucketwise.jobs.output.report import Report

#: In the order in which --help lists them: the module of each, in this package.
VERBS = {
    "demo": "demo",
    "init": "init",
    "check": "proving.check",
    "plan": "working.plan",
    "rollup": "working.run",
    "archive": "working.run",
    "run": "working.run",
    "summarize": "asking.summarize",
    "readings": "asking.readings",
    "query": "asking.query",
    "coverage": "asking.coverage",
    "explain": "asking.explain",
    "advise": "asking.advise",
    "remodel": "working.remodel",
    "schedule": "working.schedule",
    "publish": "working.following",
    "compact": "working.run",
    "lake": "working.following",
    "verify": "proving.archive",
    "drill": "proving.drill",
    "restore": "returning.restore",
    "unpin": "returning.restore",
    "hold": "keeping.hold",
    "undelete": "keeping.hold",
    "erase": "working.erase",
    "adopt": "keeping.adopt",
    "pause": "keeping.pause",
    "resume": "keeping.pause",
    "retire": "keeping.retire",
    "receipts": "proving.archive",
    "sign": "proving.archive",
    "audit": "proving.audit",
    "status": "asking.status",
}


def load(name: str) -> tuple[Callable[..., Report], list[str]]:
    """Imports a verb. Returns its function and its examples.

    A process imports only the verbs that its command line names: all of them take as long as a short run."""
    module = import_module(f"{__name__}.{VERBS[name]}")
    beside = [
        f"bucketwise {other} " for other, path in VERBS.items() if path == VERBS[name] and other != name
    ]
    examples = [it for it in module.EXAMPLES if not any(other in f"{it} " for other in beside)]
    return getattr(module, name), examples
