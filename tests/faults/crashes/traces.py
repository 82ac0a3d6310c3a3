"""Traces of real runs, in the words of the model that `tests/explore` explores.

Each operation that a run logs (`points.py`) is a step of the model, or is beside the protocol: it decides
nothing about what is kept and what goes. One that is neither fails.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.explore.paths import explored
from tests.faults.crashes.elsewhere import COPY, GLACIER, KEY, MOVES
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
    r"(file read|s3 GetObject|cloud read) superseded": "read link",
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
}
#: What is beside the protocol: work in memory, what is read of MongoDB, listings, parts of what counts as one
#: step, and books of our own that decide nothing here.
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
    r"mongo update bucketwise_receipts (store|lineage|owner|policy|known.*|compacted|damaged)",
    r"(file \w+|file look at|s3 \w+|cloud \w+) (lineage|owner|marker|holds|checkpoints|receipts|\.tmp)",
    r"file (place|make folder|remove folder|list) .*|(s3 List\w+|cloud list) .*",
    r"(file \w+|file look at|s3 \w+|cloud \w+) other",
)


class UnknownStep(AssertionError):
    """A run did what neither is a step of the model nor beside it."""


def words(labels: Iterator[str]) -> Iterator[frozenset[str]]:
    """Yields the words of each operation that is a step."""
    for label in labels:
        found = next((it for pattern, it in _STEPS.items() if re.fullmatch(pattern, label)), None)
        if found is not None:
            yield frozenset(found.split(", "))
        elif not any(re.fullmatch(it, label) for it in _BESIDE):
            raise UnknownStep(f"the model has no step {label!r}")


#: The verbs that the model has, and what policies have that it has not.
_VERBS = {
    *("archive", "run", "compact", "restore", "unpin", "erase", "undelete"),
    *("rollup", "backfill", "hold", "pause", "resume", "remodel"),
}
_VERBS_ONLINE = {"archive", "run", "erase", "undelete"}
_WITHOUT = (COPY, KEY, LAKE, MOVES, GLACIER)


def is_modelled(text: str, *verbs: str) -> bool:
    """Returns whether the model has runs of a policy with this text, of whatever verbs there are."""
    if any(it in text for it in _WITHOUT):
        return False
    return (_VERBS_ONLINE if is_online(text) else _VERBS).issuperset(verbs)


def is_online(text: str) -> bool:
    return 'to = "online"' in text


def verb_of(command: Sequence[str]) -> str:
    """Returns the verb of a command, as the model calls it."""
    return "backfill" if "--slices" in command else command[0]


def program_of(text: str, verb: str) -> str:
    """Returns the program of the model that does what a verb does. `text`: of its policy."""
    if not is_online(text) or verb == "undelete":
        return verb
    ends = verb == "run" and ENDING in text
    return "erase_online" if verb == "erase" else "run_online" if ends else "archive_online"


def follow(text: str, verb: str, log: Path) -> int:
    """Follows a run in the model, as far as it came. Returns how many steps it had. `text`: of its policy."""
    program = program_of(text, verb)
    done, steps = in_order([it for it in read_log(log) if it.mark == "<"]), 0
    for orders in (done.orders, *((it,) for it in done.unused)):
        traces = [list(words(it.label for it in order)) for order in orders]
        faults = [explored().fault(program, it) for it in traces]
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
