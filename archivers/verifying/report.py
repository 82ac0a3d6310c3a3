"""The report of a verification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.manifest import DamagedError, LastReceipt
from bucketwise.archivers.format.names import Commit
from bucketwise.archivers.records.receipt_checks import Ranges, check_deletions


@dataclass(frozen=True)
class Damage:
    """A file or record that is missing, or not as it was written."""

    code: str  # the code of a finding
    place: str  # the url of the file, or of the manifest; or what names a document
    message: str


class ColdPiece(NamedTuple):
    """A commit whose parts have to be thawed before they can be read. They have the sizes and checksums that
    they should, by what the store tells. `proven`: when they were last read."""

    commit: str
    parts: int
    proven: datetime


@dataclass
class VerifyReport:
    """How much was verified, what is damaged, and what is cold and was not read."""

    parts: int = 0
    readings: int = 0
    bad: list[Damage] = field(default_factory=list)
    cold: list[ColdPiece] = field(default_factory=list)

    def add(self, *errors: DamagedError) -> None:
        """Records damages, one for each place."""
        for error in errors:
            if all(it.place != error.place for it in self.bad):
                self.bad.append(Damage(error.code, error.place, str(error)))


class ArchivedDay(NamedTuple):
    """A UTC day of an online archive, as YYYY-MM-DD."""

    name: str

    @property
    def first(self) -> str:
        """Returns the day."""
        return self.name

    @property
    def last(self) -> str:
        """Returns the day."""
        return self.name


#: What an audit reads, or leaves to another one: a commit, or a day of an online archive.
Piece = Commit | ArchivedDay
#: Tells of a piece whether it has its turn.
HasTurn = Callable[[Piece], bool]


class IntactPiece(NamedTuple):
    """An undamaged piece of an archive, and how many parts it has; a day: how many buckets."""

    piece: Piece
    parts: int


class VerifiedRecords(NamedTuple):
    """The result of `verify_records`: `intact` are the undamaged pieces, `unlisted` the keys of files that no
    manifest names. `is_gone`: the archive is not all there, so that nothing can be compared with
    it. `baseline`: when it was recorded what an older archive has."""

    report: VerifyReport
    intact: list[IntactPiece]
    unlisted: list[str]
    is_gone: bool = False
    baseline: datetime | None = None


def verify_receipts(
    context: ArchiveContext,
    report: VerifyReport,
    named: Sequence[LastReceipt] = (),
    deleted: dict[str, Ranges] | None = None,
) -> None:
    """Adds to the report what is wrong with receipts: seals, signatures, and that none is missing; and
    which holds are. `named`: those that manifests name. `deleted`: see `check_deletions`."""
    files, keys = context.receipt_files, context.keys
    report.add(*check_deletions(context.receipts, files, keys, named, {} if deleted is None else deleted))
    report.add(*context.damage_of_holds())
