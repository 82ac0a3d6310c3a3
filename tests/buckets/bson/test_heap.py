"""Memory that is free again, and who keeps it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import NamedTuple

import pytest

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that gives memory back"),
]


def _python(script: str, *arguments: str, **environment: str) -> str:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=plain | environment,
        check=True,
        timeout=600,
        capture_output=True,
        text=True,
    )
    return ran.stdout


#: What a process tells of itself, once it has executed its argument: the heaps of its threads, and the faults
#: of work that asks again for what it has freed.
_TELLS = """
import ctypes, os, resource, sys, threading
exec(sys.argv[1])
barrier = threading.Barrier(5)
def work():
    held = [bytearray(5000) for _ in range(100)]
    barrier.wait()
    barrier.wait()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
barrier.wait()
libc = ctypes.CDLL(None)
read, write = os.pipe()
libc.fdopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fdopen(write, b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
heaps = open(read).read().count("<heap nr=")
barrier.wait()
import numpy as np
def faults():
    some = [np.ones(300_000) for _ in range(6)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
faults()
print(heaps, -faults() + [faults() for _ in range(20)][-1], flush=True)
"""
_KEEP = "from bucketwise.buckets import heap; heap.keep_freed_memory()"
_PROGRAM = "import bucketwise.jobs.cli"
_IN_WORKER = """
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import Pipe
from bucketwise.jobs.core import workers
from bucketwise.jobs.core.workers import become_worker
ends = Pipe()
starts = {"initializer": become_worker, "initargs": ends[:1]}
with ProcessPoolExecutor(1, mp_context=workers._CONTEXT, **starts) as pool:
    pool.submit(exec, sys.argv[1], {}).result()
"""


class Told(NamedTuple):
    heaps: int
    faults: int


def _told(how: str = "pass", script: str = _TELLS, **environment: str) -> Told:
    return Told(*map(int, _python(script, how, **environment).split()))


@pytest.mark.parametrize(
    ("asked", "heaps"),
    [({"MALLOC_ARENA_MAX": "3"}, 3), ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"}, 2)],
)
def test_threads_share_a_heap_unless_somebody_asked_for_more(asked: dict[str, str], heaps: int) -> None:
    assert _told(_KEEP, **asked).heaps == heaps


@pytest.fixture(scope="module")
def usual() -> Told:
    """What a process tells that has not asked for anything."""
    return _told()


@pytest.mark.parametrize("how", [_KEEP, _PROGRAM])
def test_threads_share_a_heap_and_memory_that_is_asked_for_again_is_kept(usual: Told, how: str) -> None:
    """The program says so before anything starts a thread."""
    found = _told(how)
    assert found.heaps == 1
    assert 10 * found.faults < usual.faults


@pytest.mark.proof
def test_so_it_is_in_a_worker(usual: Told) -> None:
    found = _told(_TELLS.replace("exec(sys.argv[1])", ""), _IN_WORKER)
    assert found.heaps == 1
    assert 10 * found.faults < usual.faults


@pytest.mark.proof
@pytest.mark.parametrize("asked", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_who_wants_it_back_gets_it_back(asked: str) -> None:
    """One of the two says so: the other would keep it."""
    environment = {asked: "100000"}
    assert 2 * _told(_KEEP, **environment).faults > _told(**environment).faults > 10_000


_FREED = """
import numpy as np
from bucketwise.buckets import heap
heap.keep_freed_memory()
def held():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
before = held()
some = [np.ones(300_000) for _ in range(40)]
del some
kept = held()
heap.release_memory()
print(kept - before, held() - before)
"""


def test_memory_is_given_back_on_request() -> None:
    kept, left = map(int, _python(_FREED).split())
    assert kept > 90_000 and left < 10_000
