"""`bucketwise rekey`: wraps the data keys of encrypted archives with another key."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.turn import LEFT_SOMETHING, Step, StepResult, Turn, perform
from bucketwise.jobs.output.bodies import proving
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, job_table, sums


def rekey(call: Call) -> Report:
    """Wrap the data keys of encrypted archives with the first encryption key.

    Needed where store.encryption_key was changed: put the new key first and leave the old one behind it, run
    `rekey`, then remove the old one. No other file is written again. Archives of policies that have left the
    file are among them.
    """
    results = perform(call, [REKEY], policies=call.archived_policies)
    return Report(call.command, call.now, results, rekey_tables(results))


def _rekey(turn: Turn) -> StepResult:
    from bucketwise.archivers.mirroring.changes import caught_up, removed_copies
    from bucketwise.archivers.stores.encrypted import EncryptedStore

    store = turn.context.store
    if not turn.policy.has_parts or not isinstance(store, EncryptedStore) or not store.keys:
        return StepResult({"rekeyed": 0})
    body = {"rekeyed": store.rekey(turn.policy.identity)}
    late = [it.standing.name for it in caught_up(turn.context) if it.standing.behind != 0]
    late += removed_copies(turn.context)  # they keep the keyring of before
    return StepResult({**body, "left": late}, LEFT_SOMETHING if late else 0)


def rekey_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `rekey` prints: how many data keys of each policy were wrapped."""
    (wrapped,) = sums(results, "rekeyed")
    what = f"{counted(wrapped, 'data key')} wrapped with the first encryption key"
    return [job_table(JOB, results), *closing(results, what if wrapped else "no data key had to be wrapped")]


REKEY = Step("rekey", _rekey, preconditions="reading")

JOB = Job(
    rekey,
    body=proving.Rekey,
    examples=("bucketwise rekey", "bucketwise rekey -p ticks"),
    title="Wrapped",
    columns=("rekeyed",),
    reads_departed=True,
)
