"""Names of commits, and the keys of their files.

A commit's name contains the days it covers, the fence of the lease under which it was made and the digest of
its documents. So a listing is enough to know which commits may hold a range, and which files belong to no
commit. The name of its manifest begins with its number in the chain, so that a listing can continue where
another ended.

    <policy>/data/dt=2018-06-30/<commit>.parquet      parts
    <policy>/meta/buckets/<commit>.parquet            buckets file
    <policy>/meta/buckets/<commit>.states.parquet     states file, where parts move to a cold class
    …/<commit>.<n>…                                   of its further sections, from 1
    <policy>/meta/manifests/<sequence>_<commit>.json  manifest
    <policy>/meta/checkpoints/<sequence>_<seal>.json  the commits that stood when it was made
    <policy>/meta/receipts/<first>-<last>_<seal>.bson.gz   receipts of old deletes
    <policy>/meta/holds/<name>.<digest>.json          the holds that stand, without their series
    <policy>/meta/superseded/<commit>.bson            what was taken out of a commit: not part of the archive
    <policy>/meta/superseded/<commit>.<seal>.json     the manifest of a commit that was dropped
    <policy>/meta/versions/<commit>.<fence>.<sha256>.bson     versions that count no more
    <policy>/iceberg/…                                of the Iceberg table (`lake/`)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date

from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.buckets.fields.times import as_date

#: 1970-01-01.
EPOCH = date(1970, 1, 1).toordinal()
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
COMMIT = re.compile(rf"({_DAY})_({_DAY})_f([0-9]+)_([0-9a-f]{{16}})")
_FILE = re.compile(
    rf"(?:data/dt={_DAY}/([^/.]+)(?:\.[0-9]+)?|meta/buckets/([^/.]+)(?:\.[0-9]+)?(?:\.states)?)\.parquet"
)


@dataclass(frozen=True)
class CommitName:
    """A commit's name, taken apart."""

    name: str
    first: str  # UTC days that it covers
    last: str
    fence: int

    def may_hold(self, start_ms: int, end_ms: int) -> bool:
        """Returns whether a day of the commit overlaps [start, end), milliseconds."""
        return self.first <= day(end_ms - 1) and self.last >= day(start_ms)


@dataclass(frozen=True)
class Commit(CommitName):
    """A commit, as the key of its manifest names it."""

    sequence: int  # of its manifest in the chain
    seal: str | None = None  # that the manifest has to have, where it is known


def day(ms: int) -> str:
    """Returns the UTC day of an instant in milliseconds, as YYYY-MM-DD."""
    return as_date(ms).date().isoformat()


def day_number(day: str) -> int:
    """Returns a UTC day since 1970."""
    return date.fromisoformat(day).toordinal() - EPOCH


def commit_name(first_ms: int, last_ms: int, fence: int, digest: str) -> str:
    """Returns the name of a commit from its first and last reading (milliseconds), fence and digest."""
    return f"{day(first_ms)}_{day(last_ms)}_f{fence:06d}_{digest[:16]}"


def parse_commit(name: str) -> CommitName | None:
    """Returns the parts of a commit's name; None where the text is no such name."""
    match = COMMIT.fullmatch(name)
    return (
        CommitName(name, match[1], match[2], int(match[3]))
        if match and all(map(_is_day, match.group(1, 2)))
        else None
    )


def commit_at(name: str, sequence: int, seal: str | None = None) -> Commit | None:
    """Returns the commit of this name, whose manifest has this number; None where it is no such name."""
    found = parse_commit(name)
    return None if found is None else Commit(**vars(found), sequence=sequence, seal=seal)


def _is_day(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def commit_of_file(policy: str, key: str) -> CommitName | None:
    """Returns the commit for which a run put a file of its sections there; None where none did."""
    match = _FILE.fullmatch(key.removeprefix(f"{policy}/"))
    return parse_commit(match[1] or match[2]) if match else None


def files_digest(files: Iterable[tuple[str, int]]) -> str:
    """Returns a digest of the files of a commit: their keys, and their sizes in bytes."""
    lines = (f"{key} {size}\n" for key, size in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


#: Digits of a manifest's number in its key: enough for all commits there will ever be.
DIGITS = 10
_MANIFEST = re.compile(rf"(?P<sequence>[0-9]{{{DIGITS}}})_(?P<commit>.+)\.json")
_SUPERSEDED = re.compile(r"([^.]+)(?:\.[0-9]+)?\.bson")
_LINK = re.compile(rf"(?P<commit>{COMMIT.pattern})\.(?P<seal>[0-9a-f]{{16}})\.json")


def part_key(policy: str, dt: str, commit: str, section: int = 0) -> str:
    """Returns the key of a part of a section. `dt`: its day, as YYYY-MM-DD."""
    return f"{policy}/data/dt={dt}/{_of_section(commit, section)}.parquet"


def buckets_key(policy: str, commit: str, section: int = 0) -> str:
    """Returns the key of the buckets file of a section."""
    return f"{policy}/meta/buckets/{_of_section(commit, section)}.parquet"


def states_key(policy: str, commit: str, section: int = 0) -> str:
    """Returns the key of the states file of a section."""
    return f"{policy}/meta/buckets/{_of_section(commit, section)}.states.parquet"


def _of_section(commit: str, section: int) -> str:
    return f"{commit}.{section}" if section else commit


def manifest_key(policy: str, sequence: int, commit: str) -> str:
    """Returns the key of a manifest."""
    return f"{manifests_prefix(policy)}{sequence:0{DIGITS}d}_{commit}.json"


def manifests_prefix(policy: str) -> str:
    """Returns the prefix of the keys of all manifests."""
    return f"{policy}/meta/manifests/"


def commit_of_manifest(policy: str, key: str) -> Commit | None:
    """Returns the commit that a manifest is of; None where no run has put such a file there."""
    match = _MANIFEST.fullmatch(key.removeprefix(manifests_prefix(policy)))
    return commit_at(match["commit"], int(match["sequence"])) if match else None


def checkpoints_prefix(policy: str) -> str:
    """Returns the prefix of the keys of all checkpoints."""
    return f"{policy}/meta/checkpoints/"


def checkpoint_key(policy: str, sequence: int, seal: str) -> str:
    """Returns the key of a checkpoint. Two runs may make one of the same number, and only the seals
    differ."""
    return f"{checkpoints_prefix(policy)}{sequence:0{DIGITS}d}_{seal[:16]}.json"


def receipts_key(policy: str, first: int, last: int, seal: str) -> str:
    """Returns where the receipts of these numbers lie; `seal` is that of the last of them."""
    return f"{policy}/meta/receipts/{first:0{DIGITS}d}-{last:0{DIGITS}d}_{seal[:16]}.bson.gz"


def holds_prefix(policy: str) -> str:
    """Returns the prefix of the keys of the files of all holds."""
    return f"{policy}/meta/holds/"


def hold_key(policy: str, name: str, digest: str) -> str:
    """Returns the key of the file of a hold."""
    return f"{holds_prefix(policy)}{name}.{digest[:16]}.json"


def superseded_prefix(policy: str) -> str:
    """Returns the prefix of the keys of all lists of superseded buckets."""
    return f"{policy}/meta/superseded/"


def superseded_key(policy: str, commit: str, section: int = 0) -> str:
    """Returns the key of the list of superseded buckets of a commit's section."""
    return f"{superseded_prefix(policy)}{_of_section(commit, section)}.bson"


def commit_of_superseded(policy: str, key: str) -> CommitName | None:
    """Returns the commit that such a list is of; None where the key is none of a list."""
    match = _SUPERSEDED.fullmatch(key.removeprefix(superseded_prefix(policy)))
    return parse_commit(match[1]) if match else None


def link_key(policy: str, commit: str, seal: str) -> str:
    """Returns the key of a dropped commit's manifest. A run may make and drop one commit twice, and only the
    seals differ."""
    return f"{superseded_prefix(policy)}{commit}.{seal[:16]}.json"


def link_of(policy: str, key: str) -> tuple[str, str] | None:
    """Returns the dropped commit of which a manifest is left under a key: its name, and how its seal begins;
    None where no run has put such a file there."""
    match = _LINK.fullmatch(key.removeprefix(superseded_prefix(policy)))
    return (match["commit"], match["seal"]) if match else None


def lake_prefix(policy: str) -> str:
    """Returns the prefix of the metadata of the policy's Iceberg table, beside `data/` and `meta/`."""
    return f"{policy}/iceberg/"


def owner_key(policy: str) -> str:
    """Returns the key of the file that says which collection the archive is of."""
    return f"{policy}/meta/owner.json"


def commits(store: ObjectStore, policy: str, from_sequence: int = 0) -> Iterator[Commit]:
    """Yields the commits with this number or a later one, by their numbers."""
    prefix = manifests_prefix(policy)
    after = f"{prefix}{from_sequence:0{DIGITS}d}" if from_sequence else ""
    for found in store.list(prefix, after):
        if (commit := commit_of_manifest(policy, found.key)) is not None:
            yield commit


def links(store: ObjectStore, policy: str, commit: str = "") -> Iterator[tuple[str, str]]:
    """Yields the dropped commits whose manifests are left: their names, and how their seals begin. `commit`:
    that one alone."""
    for found in store.list(f"{superseded_prefix(policy)}{commit}"):
        if (link := link_of(policy, found.key)) is not None:
            yield link
