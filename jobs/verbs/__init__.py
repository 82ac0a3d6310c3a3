"""The verbs of the command line: a file a verb, which has the function of that name and its EXAMPLES."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from jobs.output.report import Report

#: In the order in which --help lists them: the file of each, in this package.
VERBS = {
    "demo": "demo",
    "init": "init",
    "check": "proving.check",
    "plan": "working.plan",
    "rollup": "working.rollup",
    "archive": "working.archive",
    "run": "working.run",
    "summarize": "asking.summarize",
    "readings": "asking.readings",
    "query": "asking.query",
    "coverage": "asking.coverage",
    "explain": "asking.explain",
    "advise": "asking.advise",
    "remodel": "working.remodel",
    "schedule": "working.schedule",
    "publish": "working.publish",
    "compact": "working.compact",
    "lake": "working.lake",
    "verify": "proving.verify",
    "drill": "proving.drill",
    "restore": "returning.restore",
    "unpin": "returning.unpin",
    "hold": "keeping.hold",
    "undelete": "keeping.undelete",
    "erase": "working.erase",
    "pause": "keeping.pause",
    "resume": "keeping.resume",
    "receipts": "asking.receipts",
    "sign": "proving.sign",
    "audit": "proving.audit",
    "status": "asking.status",
}


def load(name: str) -> tuple[Callable[..., Report], list[str]]:
    """Imports a verb. Returns its function and its examples.

    A process imports only the verbs that its command line names: all of them take as long as a short run."""
    module = import_module(f"{__name__}.{VERBS[name]}")
    return getattr(module, name), module.EXAMPLES
