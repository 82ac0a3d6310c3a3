"""The list of jobs, in the groups and the order of `--help`. It imports none of them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from bucketwise.jobs.core.job import Job


class Entry(NamedTuple):
    """The module of a job, and the first line of its help."""

    module: str
    summary: str


GROUPS = {
    "Begin": {
        "demo": Entry("demo.verb", "Show the whole cycle on invented readings."),
        "init": Entry("init", "Write a policy file for the collections of a database."),
        "check": Entry("check.verb", "Check that a run would work, and would be safe."),
        "plan": Entry("plan.verb", "Show what `run` would do now."),
        "config": Entry("settings", "Show the policy file as it is read."),
    },
    "Run": {
        "run": Entry("run.verb", "Roll up, archive, expire summaries."),
        "rollup": Entry("rollup", "Roll up what is due."),
        "archive": Entry("archive", "Archive the buckets that have expired."),
        "schedule": Entry("schedule.verb", "Stay up and run policies on schedule."),
        "pause": Entry("pause", "Keep policies from being worked on."),
        "resume": Entry("pause", "Let paused policies be worked on again."),
        "lake": Entry("lake", "Bring Iceberg tables up to what the offline archives hold."),
    },
    "Ask": {
        "status": Entry("status", "Show where each policy stands."),
        "history": Entry("history", "Show the runs of each policy, the newest first."),
        "commits": Entry("commits", "List the commits of offline archives."),
        "stats": Entry("stats", "Show what the policies are worth."),
        "summarize": Entry("summarize", "Summarize a range from its summaries."),
        "readings": Entry("readings", "Print the readings of a range."),
        "query": Entry("query.verb", "Query readings and summaries in SQL."),
        "coverage": Entry("coverage", "Show where each day is."),
        "explain": Entry("explain.verb", "Explain what becomes of a bucket."),
    },
    "Prove": {
        "verify": Entry("verify", "Re-read archived parts."),
        "drill": Entry("drill", "Prove that archived days can be restored."),
        "audit": Entry("audit.verb", "Check that every policy is kept."),
        "repair": Entry("repair", "Put damaged and missing objects back."),
        "receipts": Entry("receipts", "List what has been deleted."),
    },
    "Keep, bring back and remove": {
        "restore": Entry("restore.verb", "Bring archived buckets back."),
        "thaw": Entry("thaw", "Make parts in a cold storage class readable."),
        "hold": Entry("hold.verb", "Keep readings from being destroyed."),
        "erase": Entry("erase.verb", "Erase a series for good."),
        "adopt": Entry("adopt", "Take archives over that belong to another database or lineage."),
        "retire": Entry("retire", "End a policy that has left the policy file."),
    },
    "Design": {
        "advise": Entry(
            "advise.verb", "Tell how well a collection's model is kept, and what others would take."
        ),
        "remodel": Entry("remodel.verb", "Rewrite a collection in another bucket model."),
    },
    "Rarely needed": {
        "copy": Entry("copy", "Fill the copies of the store."),
        "compact": Entry("compact", "Merge small commits of offline archives."),
        "sign": Entry("sign", "Sign what has been archived without a signature."),
        "rekey": Entry("rekey", "Wrap the data keys of encrypted archives with the first encryption key."),
        "unpin": Entry("restore.unpin", "Release restored buckets."),
        "undelete": Entry("undelete", "Lift the tombstones of expiring archives and summaries."),
        "publish": Entry("publish.verb", "Publish the newest summaries in Redis."),
    },
}
ENTRIES = {name: entry for group in GROUPS.values() for name, entry in group.items()}


def load(name: str) -> Job:
    """Imports a job, and nothing of the others: all of them take as long as a short run."""
    module = import_module(f"{__package__}.{ENTRIES[name].module}")
    return next(it for it in vars(module).values() if isinstance(it, Job) and it.name == name)


def all_jobs() -> Iterator[Job]:
    """Imports and yields all jobs."""
    return map(load, ENTRIES)
