"""The report of a command: one JSON object, or tables for people, and its exit code."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bucketwise.config.errors import hide_secrets
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.output.text import first_of

if TYPE_CHECKING:
    from rich.console import RenderableType

SCHEMA = 1

#: From what a person must look at first to what is fine. A failure goes before a lease held elsewhere: a
#: caller may take 11 for harmless, and must not miss the failure of another policy.
PRECEDENCE = (5, 130, 1, 2, 11, 4, 3, 0)

#: What the ledger, the metrics and people call an exit code.
OUTCOMES = {
    0: "done",
    1: "failed",
    2: "refused",
    3: "left something",
    4: "not kept",
    5: "halted",
    11: "held elsewhere",
    130: "interrupted",
}


def worst_exit_code(codes: Iterable[int]) -> int:
    """Returns the exit code of a command whose policies ended with these codes: the most severe one."""
    return min(codes, key=PRECEDENCE.index, default=0)


@dataclass
class Measures:
    """Measurements of a run. `ended`: None where the run could not begin. `seconds` by step. `requests` to
    the store by operation, `retries` of them. `gauges`: the state of the policy after the run, by the names
    of the metrics; empty where it is not known."""

    ended: datetime | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    retries: int = 0
    gauges: Mapping[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Notes how long the step in the block takes, also where it fails."""
        begun = clock.steady()
        try:
            yield
        finally:
            self.seconds[step] = clock.steady() - begun


@dataclass
class Result:
    """The result of one policy. `body` is its part of the JSON, beside name, exit code and error. `paused`:
    by whom and why it was kept from being worked on. `stopped`: its window was over, or had not opened, and
    `next_window` is when it opens. `late_since`: the first firing of its schedule that was missed before.
    `has_window`: it waits for one. `measures` are for the metrics."""

    policy: str
    exit_code: int = 0
    body: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    paused: dict[str, Any] | None = None
    stopped: Literal["window over", "outside window"] | None = None
    next_window: datetime | None = None
    late_since: datetime | None = None
    has_window: bool = False
    measures: Measures = field(default_factory=Measures)

    @property
    def outcome(self) -> str:
        """Returns the exit code as a word; "paused", or what stopped it, where that is why not all was
        done."""
        if self.exit_code == 0 and self.paused:
            return "paused"
        return self.stopped if self.exit_code == 0 and self.stopped else OUTCOMES[self.exit_code]

    @property
    def own_error(self) -> str:
        """Returns the error without the name of the policy, where that is told beside it."""
        return own_error(self.error, self.policy)

    @property
    def is_idle(self) -> bool:
        """Returns whether there was no run: the policy is paused, or this is no time for it to work."""
        return self.outcome in ("paused", "outside window")

    def as_dict(self) -> dict[str, Any]:
        """Returns the policy's part of the JSON."""
        error = {} if self.error is None else {"error": self.error}
        beside = {"paused": self.paused, "stopped": self.stopped, "next_window": self.next_window}
        beside["late_since"] = self.late_since
        given = {key: value for key, value in beside.items() if value is not None}
        return {"policy": self.policy, "exit_code": self.exit_code, **self.body, **given, **error}


def own_error(error: str | None, policy: str) -> str:
    """Returns an error of a policy without its name, where that is told beside it; empty for none."""
    return (error or "").removeprefix(f"policy {policy}: ")


@dataclass
class Report:
    """The result of a command. `tables` are what people see; `error` is what kept it from working at all.
    `is_answer`: what people see is what they asked for, and stays with --quiet."""

    command: str | None
    now: datetime
    results: list[Result] = field(default_factory=list)
    tables: list[RenderableType] = field(default_factory=list)
    error: str | None = None
    error_code: int = 0
    extra: dict[str, Any] = field(default_factory=dict)
    is_answer: bool = False

    @property
    def exit_code(self) -> int:
        """Returns the worst exit code of all policies and of the command itself."""
        return worst_exit_code([*(result.exit_code for result in self.results), self.error_code])

    def hush(self) -> None:
        """Leaves nothing for people but what needs attention, where all is well and nothing was asked."""
        if self.exit_code == 0 and not self.is_answer:
            self.tables = [it for it in self.tables if getattr(it, "needs_attention", False)]

    def as_dict(self) -> dict[str, Any]:
        """Returns the JSON object of the command."""
        error = {} if self.error is None else {"error": self.error}
        return {
            "schema": SCHEMA,
            "command": self.command,
            "exit_code": self.exit_code,
            "now": iso(self.now),
            "policies": [result.as_dict() for result in self.results],
            **self.extra,
            **error,
        }

    def as_json(self) -> str:
        """Returns one object on one line. Instants are ISO 8601; `_id`s that JSON lacks are extended JSON."""
        return json.dumps(self.plain(), ensure_ascii=False, allow_nan=False)

    def plain(self) -> dict[str, Any]:
        """Returns the JSON object with plain types only; secrets are hidden."""
        plain: dict[str, Any] = _plain(self.as_dict())
        return plain

    @property
    def complaints(self) -> list[Complaint]:
        """Returns a line for each error, for people. What several policies say alike is one."""
        alike: dict[str, list[str]] = {}
        for it in self.results:
            if it.error is not None:
                alike.setdefault(it.own_error, []).append(it.policy)
        of_policies = [Complaint(f"{_named(them)}: {error}", them) for error, them in alike.items()]
        return [*of_policies, *([] if self.error is None else [Complaint(self.error, [])])]


class Complaint(NamedTuple):
    """An error as a line, and the policies that it is about; of the command itself, none."""

    line: str
    policies: list[str]


_MOST_NAMED = 5


def _named(policies: list[str]) -> str:
    if len(policies) == 1:
        return f"policy {policies[0]}"
    return f"{len(policies):,} policies ({first_of(policies, _MOST_NAMED)})"


def _plain(value: Any) -> Any:
    """Returns `value` as JSON can hold it, secrets hidden."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if type(value) is str:
        return hide_secrets(value)
    if value is None or type(value) in (bool, int, float):
        return value
    from bson import json_util
    from bson.code import Code

    from bucketwise.buckets.fields.selectors import EXTENDED_JSON

    if isinstance(value, str) and not isinstance(value, Code):
        return hide_secrets(value)
    return json.loads(json_util.dumps(value, json_options=EXTENDED_JSON))
