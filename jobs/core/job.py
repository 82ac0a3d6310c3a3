"""What a job is: one record, from which its command, its help, its table and its pages are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from bucketwise.jobs.output.report import Report

Severity = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Code:
    """A code of findings, with the severities that it may have. `remedy`: what to do about it, as audits
    say."""

    code: str
    severities: tuple[Severity, ...]
    remedy: str = ""


@dataclass(frozen=True)
class Job:
    """One job. `verb`: the function of the command line; its name is that of the command, its docstring the
    help, and its parameters beside the call are options.

    `title` and `columns`: its table for people, and the keys of the JSON that are columns of it. `rights`:
    what it does in collections of bucketwise, by their names. `checked` and `audited`: findings that a check
    and an audit may have because of this job."""

    verb: Callable[..., Report]
    examples: Sequence[str]
    title: str = ""
    columns: Sequence[str] = ()
    is_pausable: bool = False  # not while the policy is paused, or its window closed
    is_measured: bool = False  # adds its runs to the metrics
    has_workers: bool = False  # takes --workers and --executor
    reads_departed: bool = False  # also works on a policy that has left the file
    rights: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    checked: Sequence[Code] = ()
    audited: Sequence[Code] = ()

    @property
    def name(self) -> str:
        """Returns the name of its command."""
        return self.verb.__name__
