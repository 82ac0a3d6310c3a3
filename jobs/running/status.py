"""Where each policy stands: how far it has come, what waits, how its last runs went."""

from __future__ import annotations

from dataclasses import asdict

from archivers.reading.reader import ArchivedReader
from archivers.records.pins import Pins
from buckets.fields.times import FIRST_MS, as_date, as_ms
from buckets.source import Source
from jobs.running.ledger import Ledger
from jobs.running.runner import Done, Step, Work
from rollups.progress import NO_GATE, load, rolled_up_through
from rollups.rolling import quarantine

LAST_RUNS = 5


def _status(work: Work) -> Done:
    runs = [asdict(run) for run in Ledger(work.database).last_runs(work.policy.name, LAST_RUNS)]
    through = rolled_up_through(work.database, work.policy)
    archived = ArchivedReader(work.database, work.policy, work.store).span()
    pinned, pinned_until = Pins(work.database, work.policy, work.now).standing()
    return Done(
        {
            "rolled_up_through": None if through in (None, NO_GATE) else as_date(through),
            "levels": {name: as_date(end) for name, end in load(work.database, work.policy).through.items()},
            "archived_through": None if archived is None else as_date(archived[1]),
            "waiting": _waiting(work),
            "pinned": pinned,
            "pinned_until": pinned_until,
            "quarantined": _quarantined(work),
            "last_runs": runs,
        }
    )


def _waiting(work: Work) -> int:
    """Buckets that have expired and are still in the source."""
    policy = work.policy
    if policy.archive is None or policy.archive.to == "none" or policy.archive.after is None:
        return 0
    cutoff = as_ms(work.now - policy.archive.after)
    return Source(work.database, policy).count_ending(FIRST_MS, cutoff)


def _quarantined(work: Work) -> int:
    return work.database[quarantine.COLLECTION].count_documents({"_id.policy": work.policy.name})


STATUS = Step("status", _status)
