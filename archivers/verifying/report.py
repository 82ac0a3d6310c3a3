"""What a verification reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from archivers.format.manifest import DamagedError
from archivers.format.names import Commit


@dataclass(frozen=True)
class Damage:
    """A file or record that is missing, or not as it was written."""

    code: str  # the code of a finding
    place: str  # the url of the file, or of the manifest; or what names a document
    message: str


@dataclass
class VerifyReport:
    """How much was verified, and what is damaged."""

    parts: int = 0
    readings: int = 0
    bad: list[Damage] = field(default_factory=list)

    def add(self, *errors: DamagedError) -> None:
        """Records damages, one for each place."""
        for error in errors:
            if all(it.place != error.place for it in self.bad):
                self.bad.append(Damage(error.code, error.place, str(error)))


class IntactCommit(NamedTuple):
    """An undamaged commit, and how many parts it has."""

    commit: Commit
    parts: int


class VerifiedRecords(NamedTuple):
    """What `verify_records` found: `intact` are the undamaged commits, `unlisted` the keys of files that no
    manifest names. `is_gone`: the archive is not all there, so that nothing can be compared with
    it."""

    report: VerifyReport
    intact: list[IntactCommit]
    unlisted: list[str]
    is_gone: bool = False
