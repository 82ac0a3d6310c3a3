"""`bucketwise demo`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from bucketwise.jobs.call import Call
from bucketwise.jobs.output.report import Report

EXAMPLES = ["bucketwise demo", "bucketwise demo --keep", "bucketwise demo --json | jq .sizes"]
Keep = Annotated[
    bool, typer.Option("--keep", help="Leave MongoDB running, and keep the archive and the policy file.")
]


def demo(call: Call, keep: Keep = False) -> Report:
    """Show the whole cycle on invented readings.

    Starts an embedded MongoDB and a store in a folder of its own, loads sample readings of every bucket
    model, rolls them up, archives, queries, restores, runs again and audits; and checks every number that it
    shows. Ends with exit code 1 where one is wrong.
    """
    from bucketwise.jobs.demo.demo import PRESENT, play  # only the demo pays for loading it

    return play(call if call.is_now_given else replace(call, now=PRESENT, is_now_given=True), keep=keep)
