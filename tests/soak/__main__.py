"""Has an application write, and runs archive it, for hours: `python -m tests.soak --minutes 120 --seed 1`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.conftest import serve_folder
from tests.faults.mongods import servers
from tests.faults.s3_proxy import s3_proxy
from tests.jobs.command import command_line
from tests.reliability import keep
from tests.soak.seen import Broken
from tests.soak.world import World


def main() -> int:
    """Soaks as the arguments say. Returns 1 where a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120, help="for how long (120)")
    parser.add_argument("--rounds", type=int, help="the most runs")
    parser.add_argument("--seed", type=int, default=1, help="of what happens (1)")
    parser.add_argument("--every", type=int, default=20, help="runs between two checks of everything (20)")
    parser.add_argument("--record", action="store_true", help="keep what came of it")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bucketwise-soak-")))
        world = stack.enter_context(placed(folder, given.seed))
        failed = soak(world, given.minutes, given.rounds, given.every)
        figures = {**world.figures(), "lost": 0, "doubled": 0}
    told = ", ".join(f"{number:,} {what}" for what, number in figures.items())
    tell(f"seed {given.seed}: {told}, {failed} failed")
    if given.record and not failed:
        keep("soak", {"long soak": figures})
    return failed


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextmanager
def placed(folder: Path, seed: int) -> Iterator[World]:
    """A world with servers of its own."""
    (folder / "mongod").mkdir()
    (folder / "s3").mkdir()
    (folder / "work").mkdir()
    with (
        servers(folder / "mongod") as mongods,
        contextmanager(serve_folder)(folder / "s3") as s3,
        s3_proxy(s3.endpoint_url) as proxy,
        command_line() as command,
    ):
        yield World(folder / "work", mongods, s3, folder / "s3", proxy, command, random.Random(seed))


def soak(world: World, minutes: float, rounds: int | None, every: int) -> int:
    """Lets time pass. Tells what happened before a promise was broken, and returns 1 then."""
    end, number = time.monotonic() + 60 * minutes, 0
    try:
        while time.monotonic() < end and (rounds is None or number < rounds):
            number += 1
            world.hour()
            if number % every == 0:
                world.check()
                tell(f"{world.now:%Y-%m-%d}: {world.figures()}")
        world.check()
    except Broken as broken:
        tell("\n".join(world.journal[-60:]))
        tell(f"broken: {broken}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
