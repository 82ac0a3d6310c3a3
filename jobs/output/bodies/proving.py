"""The JSON of commands that prove: verify, drill, audit, receipts and signatures."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from bucketwise.jobs.output.bodies.common import CopyStanding, Day, Finding, Instant, Worth


class Damage(TypedDict):
    """Something in the archive that is not as it was written."""

    code: str
    place: str
    message: str


class ColdCommit(TypedDict):
    """A commit whose parts have to be thawed to be read. `proven_at`: when they were read last."""

    commit: str
    parts: int
    proven_at: Instant


class Verify(TypedDict):
    """Tells what was read again. `bad`: how many parts, manifests or records are not as they must be. `cold`:
    what was not read, since it would have to be thawed."""

    parts: int
    readings: int
    bad: int
    damage: list[Damage]
    cold: NotRequired[list[ColdCommit]]


class DrilledDay(TypedDict):
    """A day that was restored into a scratch collection and compared."""

    day: Day
    commits: int
    buckets: int
    equal: int
    summaries_differing: int
    drilled_before: Instant | None


class Drill(TypedDict):
    """Tells what a drill has proven."""

    days: int
    buckets: int
    equal: int
    differing: int
    summaries_differing: int
    seed: int
    drilled: list[DrilledDay]


class CoverageRun(TypedDict):
    """Days one after the other that are in the same state."""

    first: Day
    last: Day
    days: int
    state: str
    readings: int


class AuditedCoverage(TypedDict):
    """Tells where the readings are. `states`: days in each."""

    states: dict[str, int]
    runs: list[CoverageRun]


class Balance(TypedDict):
    """Buckets, each once. `archived`: those that were ever archived, which is the sum of the next six.

    `in_archive` and `online`: their originals are gone. `waiting`: copied, and not deleted yet. `restored`:
    live again, and pinned. `erased` and `ended`: gone for good, by an erasure or by `retain.archive`.
    `deleted`: by receipts, without those that are live again; null where earlier versions have deleted some.
    `difference`: how many more these are than what is in the archive or gone for good: later versions of
    archived buckets count here. `live`: an estimate of what the source holds now."""

    archived: int
    in_archive: int
    online: int
    waiting: int
    restored: int
    erased: int
    ended: int
    deleted: int | None
    difference: int | None
    live: int


class Audit(TypedDict):
    """Tells whether a policy is kept, and the evidence for it."""

    findings: list[Finding]
    words: NotRequired[str]
    settings: NotRequired[str]
    policy_sha256: NotRequired[str]
    parts: NotRequired[int]
    parts_read: NotRequired[int]
    days: NotRequired[int]
    coverage: NotRequired[AuditedCoverage | None]
    months: NotRequired[list[dict[str, Any]] | None]
    balance: NotRequired[Balance | None]
    worth: NotRequired[Worth | None]
    deleted_by_month: NotRequired[list[dict[str, Any]] | None]
    holds: NotRequired[list[Any]]
    history: NotRequired[dict[str, Any]]
    proof: NotRequired[dict[str, Any]]
    untold: NotRequired[list[Any]]


class AuditWhole(TypedDict):
    """Tells who audited what, with which version."""

    by: str
    version: str
    hosts: str
    database: str
    config: str
    findings: NotRequired[list[Finding]]


class Receipts(TypedDict):
    """Receipts as they are recorded: of deletes, and of what else was removed or placed. `policies`: the
    policies that they were made under, by SHA-256."""

    deletes: list[dict[str, Any]]
    policies: dict[str, str]


class Rekey(TypedDict):
    """How many data keys were wrapped with the first encryption key. `left`: copies with the old ones."""

    rekeyed: int
    left: NotRequired[list[str]]


class Sign(TypedDict):
    """Tells what was signed. `key`: the fingerprint of the key."""

    key: str | None
    manifests: int
    receipts: int


class FilledCopy(CopyStanding):
    """Tells what was put into a copy. `others`: objects that only it has. `damaged`: keys that were not
    copied."""

    copied: int
    bytes: int
    others: int
    damaged: list[str]


class Copy(TypedDict):
    """Tells what was put into copies of the store, or which were forgotten."""

    copied: NotRequired[int]
    bytes: NotRequired[int]
    behind: NotRequired[int]
    copies: NotRequired[list[FilledCopy]]
    forgotten: NotRequired[list[str]]


class Mended(TypedDict):
    """An object that was put back, or would be, and from where."""

    place: str
    source: str
    code: str


class Repair(TypedDict):
    """Tells what was put back; `lost`: how much is damaged everywhere."""

    repaired: int
    lost: int
    objects: list[Mended]
    damage: list[Damage]
