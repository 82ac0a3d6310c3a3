"""The JSON of commands that keep, bring back and remove, and of those that begin and design."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from bucketwise.jobs.output.bodies.common import Finding, Fit, Hold, Instant


class Thaw(TypedDict):
    """Tells what a thaw has asked for, in parts: `asked` now, `waiting` since an earlier call, `ready` to be
    read. `ready_at`: when the last of them can be, at the latest; null where all can. `classes`: cold parts,
    by class; `bytes`: of these."""

    asked: int
    waiting: int
    ready: int
    parts: int
    commits: int
    bytes: int
    ready_at: Instant | None
    days: int
    tier: str
    classes: dict[str, int]


class Restore(TypedDict):
    """Tells what came back; with `--dry-run`, what would."""

    to: NotRequired[str | None]
    buckets: int
    readings: int
    overflow: NotRequired[int]
    versions: NotRequired[int]
    pinned: NotRequired[int]
    pinned_until: NotRequired[Instant | None]
    missing: NotRequired[list[Any]]
    bytes: NotRequired[int]
    commits: NotRequired[Any]
    thaw: NotRequired[Thaw]


class Unpin(TypedDict):
    """How many restored buckets were released."""

    buckets: int


class Holds(TypedDict):
    """The holds of a policy, once the command is done. `placed`, `released`: whether it changed one."""

    placed: NotRequired[bool]
    released: NotRequired[bool]
    holds: list[Hold]


class Remaining(TypedDict):
    """Tells where readings of an erased series may remain, and why. `found`: whether any were seen there."""

    place: str
    why: str
    found: bool


class Erase(TypedDict):
    """Tells what was erased; in a dry run, what would be."""

    dry_run: bool
    buckets: int
    rewritten: int
    live: int
    online: int
    archived: int
    versions: int
    set_aside: int
    commits_rewritten: int
    summaries: int
    pins: int
    quarantine: int
    remaining: list[Remaining]


class Adopted(TypedDict):
    """Whose archive was taken over, and when."""

    adopted: dict[str, Any] | None


class Retire(TypedDict):
    """Tells whether the policy was ended now."""

    retired: bool


class Undelete(TypedDict):
    """Days and summaries whose tombstones were lifted, and until when they stay."""

    days: int
    summaries: int
    until: Instant | None


class Check(TypedDict):
    """Tells whether a run would work. `fit`: null where no bucket could be read."""

    findings: list[Finding]
    fit: NotRequired[Fit | None]


class CheckWhole(TypedDict):
    """Findings that concern no single policy."""

    findings: list[Finding]


class InitCollection(TypedDict):
    """Tells what a collection is. `asked`: it can be read in several ways, each an entry of `readings`."""

    collection: str
    model: str | None
    evidence: list[str]
    questions: list[str]
    asked: bool
    readings: list[dict[str, Any]]


class InitWhole(TypedDict):
    """The text of a policy file, and what it was made from."""

    collections: list[InitCollection]
    config: str
    output: str | None
    findings: list[Finding]


class ConfigWhole(TypedDict):
    """The policy file as it is read, or its JSON Schema."""

    config: NotRequired[dict[str, Any]]
    json_schema: NotRequired[dict[str, Any]]


class AdviseWhole(TypedDict):
    """How well a collection's model is kept, and what others would take; or shard keys compared."""

    collection: NotRequired[str]
    model: NotRequired[str | None]
    policy: NotRequired[str | None]
    evidence: NotRequired[list[str]]
    series_fields: NotRequired[list[str]]
    value_fields: NotRequired[list[str]]
    current: NotRequired[dict[str, Any]]
    sample: NotRequired[dict[str, Any] | None]
    arrival: NotRequired[dict[str, Any] | None]
    findings: NotRequired[list[dict[str, Any]]]
    candidates: NotRequired[list[dict[str, Any]]]
    summaries: NotRequired[dict[str, Any] | None]
    recommendation: NotRequired[str | dict[str, Any] | None]
    shard_keys: NotRequired[list[dict[str, Any]]]


class RemodelWhole(TypedDict):
    """The collection that was written. `equal`: its readings are those of the old one."""

    collection: str
    model: str
    into: str
    documents: int
    readings: int
    equal: bool
    left_out: dict[str, Any]
    uncarried: dict[str, Any]
    policy: str


class DemoWhole(TypedDict):
    """Tells what the demo did. With `--keep`: where its MongoDB and its policy file are."""

    sizes: list[dict[str, Any]]
    checks: int
    failed: list[str]
    uri: NotRequired[str]
    config: NotRequired[str]
    pid: NotRequired[int]
