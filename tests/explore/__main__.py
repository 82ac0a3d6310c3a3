"""Explores the protocol: `make explore ARGS="--schedules 20000 --seed 7"`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

from tests.explore.actors import PROGRAMS
from tests.explore.breadth import Search, exhaustive
from tests.explore.explorer import Failure, Scope, shortest
from tests.explore.put_back import FAULTS, put_back
from tests.explore.schedules import random_schedule
from tests.explore.world import HOUR, Frozen
from tests.reliability import keep

#: Schedules that a process explores at a time.
CHUNK = 100


def main() -> int:
    """Explores as the arguments say. Returns 1 where a promise is broken."""
    parser = argparse.ArgumentParser(prog="make explore", description=__doc__)
    parser.add_argument("--schedules", type=int, default=2000, help="how many random schedules (2000)")
    parser.add_argument("--depth", type=int, help="events of each (100), or turns of --exhaustive (6)")
    parser.add_argument("--seed", type=int, default=1, help="of the first schedule (1)")
    parser.add_argument("--put-back", choices=FAULTS, metavar="NAME", help="with this fault of the past")
    parser.add_argument("--list", action="store_true", help="the faults of the past")
    parser.add_argument("--exhaustive", action="store_true", help="all schedules, breadth-first")
    parser.add_argument("--with", dest="verbs", choices=(*PROGRAMS, *_KINDS, HOLD), nargs="*", default=[],
                        metavar="VERB", help="beside archive runs, with --exhaustive")  # fmt: skip
    parser.add_argument("--writes", type=int, default=3, help="of the writer, with --exhaustive (3)")
    parser.add_argument("--size", type=int, default=28, help="bits of how many hashes --exhaustive has room "
                        "for: states, steps and runs that follow (28: 2 GiB)")  # fmt: skip
    parser.add_argument("--record", action="store_true", help="keep what came of it")
    given = parser.parse_args()
    if given.list:
        for name, fault in FAULTS.items():
            print(f"{name:20} {fault.what}")
        return 0
    if given.record and given.put_back:
        parser.error("--record and --put-back exclude each other")
    with put_back(given.put_back) if given.put_back else nullcontext():
        if given.exhaustive:
            search = partial(_search, given.verbs, given.writes, given.size)
            found = breadth_first(search, given.depth or 6)
            if found is not None and given.record:
                keep("explore", found.outcome(given.verbs))
            return 1 if found is None else 0
        return at_random(given.schedules, given.depth or 100, given.seed, given.record)


def at_random(schedules: int, depth: int, seed: int, record: bool) -> int:
    """Explores random schedules, and tells of the first that fails."""
    states, failed, first = set[int](), 0, None
    for found, some in explored(schedules, depth, seed):
        states |= some
        failed += len(found)
        first = first or next(iter(found), None)
    if first is not None:
        tell(shortest(first))
    print(f"{schedules} schedules, {len(states)} states, {failed} failed")
    if record:
        keep(
            "explore", {"random schedules": {"schedules": schedules, "states": len(states), "failed": failed}}
        )
    return 1 if failed else 0


def explored(schedules: int, depth: int, seed: int) -> Iterator[tuple[list[Failure], set[int]]]:
    """Yields what fails, and the states, some schedules at a time, by as many processes as there are
    processors."""
    seeds = range(seed, seed + schedules)
    chunks = [seeds[at : at + CHUNK] for at in range(0, schedules, CHUNK)]
    with ProcessPoolExecutor(os.cpu_count(), get_context("fork")) as pool:
        yield from pool.map(partial(_explore, depth), chunks)


def _explore(depth: int, seeds: range) -> tuple[list[Failure], set[int]]:
    states = set[int]()
    found = [random_schedule(seed, depth, states) for seed in seeds]
    return [it for it in found if it is not None], states


def _search(verbs: list[str], writes: int, size: int, grace: int) -> Search:
    """Returns the search through all schedules of a writer, two runs, one crash and an hour that passes; with
    `adopt`, of a clone of the database as well; with `run`, of an archive that ends."""
    kind = next((kind for verb, kind in _KINDS.items() if verb in verbs), "offline")
    programs = [it for it in verbs if it != HOLD]
    scope = Scope(
        ("archive", *programs),
        (0,),
        (1,),
        holds=HOLD in verbs,
        is_faulty=False,
        kind=kind,
        most=Frozen({**LIMITS, "write": writes}),
    )
    return Search(scope, grace, size=size)


class Explored(NamedTuple):
    """How many states there were, and of how many turns."""

    states: int
    turns: int

    def outcome(self, verbs: list[str]) -> Mapping[str, Mapping[str, int]]:
        """Returns what is kept of this, by its subject."""
        if not verbs:
            return {"all schedules": {"states": self.states, "turns": self.turns, "failed": 0}}
        subject = f"further actors, {self.turns} turns/{', '.join(verbs)}"
        return {subject: {"actors": len(verbs), "states": self.states, "failed": 0}}


def breadth_first(search_of: Callable[[int], Search], depth: int) -> Explored | None:
    """Explores all schedules of so many turns, or fewer where nothing more may happen. Returns None where one
    of them fails."""
    known, deepest = 0, 0
    for grace in (0, HOUR):
        states, began = 0, time.monotonic()
        for level, states, memory, failure in exhaustive(search_of(grace), depth, os.cpu_count() or 1):
            seconds = time.monotonic() - began
            print(
                f"grace {grace // HOUR} h, depth {level}: {states:,} states, {seconds:,.0f} s, "
                f"{memory / 2**20:,.0f} MiB a process",
                flush=True,
            )
            if failure is not None:
                tell(failure)
                print(f"{known + states} states, 1 failed")
                return None
        known, deepest = known + states, max(deepest, level)
    print(f"{known} states, 0 failed")
    return Explored(known, deepest)


LIMITS = Frozen({"start": 2, "kill": 1, "late": 1, "tick": 1, "write": 3, "elsewhere": 1, "hold": 2})
#: With the one the database may be cloned, with the other days are held.
ADOPT, HOLD = "adopt", "hold"
#: The kind of the archive, where a verb needs another one.
_KINDS = {ADOPT: "shared", "run": "ending"}


def tell(failure: Failure) -> None:
    """Prints a schedule as a story."""
    print(f"the archive: {failure.kind}, grace {failure.grace // HOUR} h:")
    for line in "\n".join(failure.story).split("\n"):
        print(f"  {line}")
    print(f"  -> {failure.wrong}")


if __name__ == "__main__":
    sys.exit(main())
