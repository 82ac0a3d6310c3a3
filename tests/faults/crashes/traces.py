"""Traces of real runs, in the words of the model that `tests/explore` explores.

Each operation that a run logs (`points.py`) is a step of the model, or is beside the protocol: it decides
nothing about what is kept and what goes. One that is neither fails.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.explore.paths import explored, explored_beside_a_copy
from tests.faults.crashes.elsewhere import COPY, GLACIER, MOVES
from tests.faults.crashes.jobs import ENDING, LAKE
from tests.faults.crashes.points import Logged, read_log

#: Steps of the model, by operation; several words where it depends on what came before.
_STEPS = {
    r"(file put|s3 PutObject|cloud put) (data|buckets)": "put file",
    r"(file put|s3 PutObject|cloud put) manifests": "put manifest",
    r"(file put|s3 PutObject|cloud put) versions": "put kept",
    r"(file put|s3 PutObject|cloud put) superseded": "put link",
    r"(file remove|s3 DeleteObjects|cloud delete) (data|buckets)": "delete file",
    r"(file remove|s3 DeleteObjects|cloud delete) manifests": "delete manifest",
    r"(file remove|s3 DeleteObjects|cloud delete) (versions|superseded)": "delete kept",
    r"(file read|s3 GetObject|cloud read) (data|buckets)": "read file, check file",
    r"(file look at|s3 HeadObject|cloud look) (data|buckets)": "look at file, check file",
    r"(file read|s3 GetObject|cloud read) manifests": "read manifest",
    r"(file look at|s3 HeadObject|cloud look) manifests": "look at manifest",
    r"(file read|s3 GetObject|cloud read) versions": "read kept",
    r"(file read|file look at|s3 GetObject|s3 HeadObject|cloud read|cloud look) superseded": "read link",
    r"mongo (find|aggregate|count) it_(hourly|daily)": "read summaries",
    r"(file put|s3 PutObject|cloud put) holds": "put hold",
    r"(file read|s3 GetObject|cloud read) holds": "read hold",
    r"(file remove|s3 DeleteObjects|cloud delete) holds": "delete hold",
    r"mongo commit hold": "hold",
    r"mongo findAndModify bucketwise_lease pause": "pause",
    r"mongo update bucketwise_lease resume": "resume",
    r"mongo update bucketwise_progress backfill": "reached",
    r"mongo update bucketwise_remodel begun": "task begun",
    r"mongo create other": "target made",
    r"mongo update bucketwise_remodel made": "task made",
    r"mongo insert other": "insert",
    r"mongo (find|aggregate) other": "read written",
    r"mongo update bucketwise_remodel reached": "reached",
    r"mongo update bucketwise_remodel done": "done",
    r"mongo update bucketwise_receipts begun": "begin",
    r"mongo update bucketwise_receipts due": "due",
    r"mongo update bucketwise_receipts dropped": "dropped",
    r"mongo commit (hourly|daily|expired|erased) summaries": "summaries",
    r"mongo commit receipt": "receipt, delete",  # of a delete, where all has changed meanwhile
    r"mongo commit exchange": "exchange",
    r"mongo commit delete": "delete, erase, merge",
    r"mongo commit erasure from the archive": "delete, erase archived",  # copies of what has changed
    r"mongo commit erasure of versions": "erase versions",
    r"mongo commit copy": "copy",
    r"mongo commit copy of versions": "copy late",
    r"mongo commit merged windows followed": "followed",
    r"mongo commit restore": "restore",
    r"mongo commit unpin": "unpin, erase",
    r"mongo commit tombstones": "tombstones",
    r"mongo commit noted end": "noted end",
    r"mongo commit end of a commit": "end",
    r"mongo commit end of buckets": "end buckets",
    r"mongo commit end of a day": "end day",
    r"mongo commit lifted tombstones": "lift",
    r"mongo insert bucketwise_receipts change of (data|buckets)": "begin change of file",
    r"mongo insert bucketwise_receipts change of manifests": "begin change of manifest",
    r"mongo insert bucketwise_receipts change of versions": "begin change of kept",
    r"mongo insert bucketwise_receipts change of superseded": "begin change of link",
    r"mongo delete bucketwise_receipts change of (data|buckets)": "end change of file, end changes",
    r"mongo delete bucketwise_receipts change of manifests": "end change of manifest, end changes",
    r"mongo delete bucketwise_receipts change of versions": "end change of kept, end changes",
    r"mongo delete bucketwise_receipts change of superseded": "end change of link, end changes",
    r"mongo delete bucketwise_receipts changes": "end changes",
    r"mongo update bucketwise_receipts copy": "filling",
    r"(file put|s3 PutObject) iceberg": "put table",
    r"mongo commit note of the table": "table",
    r"(file remove|s3 DeleteObjects) iceberg": "delete table",
    r"mongo commit schedule of moves": "schedule",
    r"s3 CopyObject data": "move",
    r"mongo commit move of parts": "moved",
}
#: What is beside the protocol: work in memory, what is read of MongoDB, listings, parts of what counts as one
#: step, and books of our own that decide nothing here.
_OTHERS = r"(iceberg|lineage|owner|marker|keyring|holds|checkpoints|receipts|\.tmp)"
_BESIDE = (
    r"read config|sort into what goes|encode|make .*|rebuild documents|report",
    r"mongo (find|getMore|aggregate|count|distinct|listIndexes|listCollections|createIndexes) .*",
    r"mongo replSetGetConfig stream|mongo findAndModify bucketwise_receipts",  # the marker of a store
    r"mongo .* in transaction|mongo abort .*",
    r"mongo (findAndModify|update) bucketwise_(lease|runs|progress|quarantine).*",
    r"mongo (insert|delete) bucketwise_(runs|quarantine).*",
    r"mongo commit (claim|checkpoint|entries (joined|compared)|question for holds|erasure (begun|ended))",
    r"mongo (create|createIndexes) it_archive\w*|mongo commit heads of collections",
    r"mongo commit (erased files counted|tombstones of summaries|held commits|move of receipts|heads)",
    r"mongo update bucketwise_receipts next move",  # when what is put back moves to another storage class
    r"mongo update bucketwise_receipts (store|lineage|owner|policy|known.*|compacted|damaged)",
    rf"(file \w+|file look at|s3 \w+|cloud \w+) {_OTHERS}",
    rf"mongo (insert|delete) bucketwise_receipts change of {_OTHERS}",
    r"file (place|make folder|remove folder|list) .*|(s3 List\w+|cloud list) .*",
    r"(file \w+|file look at|s3 \w+|cloud \w+) other",
)


class UnknownStep(AssertionError):
    """A run did what neither is a step of the model nor beside it."""


def words(labels: Iterator[str]) -> Iterator[frozenset[str]]:
    """Yields the words of each operation that is a step."""
    for label in labels:
        is_in_copy = label.startswith("copy ")  # the same, in the copy of a store
        known = label.replace("copy ", "file ", 1) if is_in_copy else label
        found = next((it for pattern, it in _STEPS.items() if re.fullmatch(pattern, known)), None)
        if found is not None:
            yield frozenset(f"copy {it}" if is_in_copy else it for it in found.split(", "))
        elif not any(re.fullmatch(it, known) for it in _BESIDE):
            raise UnknownStep(f"the model has no step {label!r}")


#: The programs of the model that verbs are.
_OFFLINE = {
    it: it
    for it in (
        *("archive", "run", "compact", "restore", "unpin", "erase", "undelete"),
        *("rollup", "backfill", "hold", "pause", "resume", "remodel"),
    )
}
_ONLINE = {
    **{"archive": "archive_online", "run": "archive_online", "erase": "erase_online"},
    "undelete": "undelete",
}
_BESIDE_A_COPY = {"archive": "archive", "run": "run_and_look", "copy": "fill", "repair": "repair"}
_WITH_A_TABLE = {"compact": "compact_and_sync", "run": "run_and_sync"}


def programs_of(text: str) -> Mapping[str, str]:
    """Returns the programs of the model that verbs are, of a policy with this text."""
    if is_online(text):
        return {**_ONLINE, "run": "run_online"} if ENDING in text else _ONLINE
    if LAKE in text:
        return _WITH_A_TABLE
    found = _BESIDE_A_COPY if COPY in text else _OFFLINE
    return {**found, "run": "run_and_move"} if MOVES in text or GLACIER in text else found


def is_modelled(text: str, *verbs: str) -> bool:
    """Returns whether the model has runs of a policy with this text, of whatever verbs there are."""
    return programs_of(text).keys() >= set(verbs)


def is_online(text: str) -> bool:
    return 'to = "online"' in text


def verb_of(command: Sequence[str]) -> str:
    """Returns the verb of a command, as the model calls it."""
    return "backfill" if "--slices" in command else command[0]


def follow(text: str, verb: str, log: Path) -> int:
    """Follows a run in the model, as far as it came. Returns how many steps it had. `text`: of its policy."""
    program, paths = programs_of(text)[verb], explored_beside_a_copy() if COPY in text else explored()
    done, steps = in_order([it for it in read_log(log) if it.mark == "<"]), 0
    for orders in (done.orders, *((it,) for it in done.unused)):
        traces = [list(words(it.label for it in order)) for order in orders]
        faults = [paths.fault(program, it) for it in traces]
        assert None in faults, faults[0]
        steps += len(traces[0])
    return steps


class Stretch(NamedTuple):
    """What threads did to copy a commit, and what the run did from when it came to that commit on."""

    copied: list[Logged]
    done: list[Logged]


class InOrder(NamedTuple):
    """What a run did, as if one thing had been done after another: with no copy made ahead, or with one.
    `unused`: what threads did for commits that the run did not come to."""

    orders: tuple[list[Logged], list[Logged]]
    unused: list[list[Logged]]


def in_order(steps: Sequence[Logged]) -> InOrder:
    """Returns what was done, in order. `steps`: of several threads, as they were done. Files that nobody else
    knows can be written and read at any time before the run comes to them."""
    copies = defaultdict[str | None, list[Logged]](list)
    known: set[str | None] = {None}  # commits that the run has come to; what is of none stays where it is
    stretches = [Stretch([], [])]
    for step in steps:
        if step.is_copy and step.commit not in known:
            copies[step.commit].append(step)
            continue
        if step.commit in copies:
            stretches.append(Stretch(copies.pop(step.commit), []))
        known.add(step.commit)
        stretches[-1].done.append(step)
    orders = _laid_out(stretches, ahead=0), _laid_out(stretches, ahead=1)
    return InOrder(orders, list(copies.values()))


def _laid_out(stretches: Sequence[Stretch], ahead: int) -> list[Logged]:
    """Returns all steps. `ahead`: how many copies are made before the one in hand is committed."""
    order, copied = list(stretches[0].done), 1
    for at, stretch in enumerate(stretches[1:], 1):
        for it in stretches[copied : at + ahead + 1]:
            order += it.copied
        copied = max(copied, at + ahead + 1)
        order += stretch.done
    return order
