"""Memory that is free again, and who keeps it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

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
        timeout=60,
        capture_output=True,
        text=True,
    )
    return ran.stdout


_HEAPS = """
import ctypes, sys, threading
exec(sys.argv[2])
barrier = threading.Barrier(5)
def work():
    held = [bytearray(5000) for _ in range(100)]
    barrier.wait()
    barrier.wait()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
barrier.wait()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
barrier.wait()
"""


_KEEP = "from bucketwise.buckets import heap; heap.keep_freed_memory()"


@pytest.mark.parametrize(
    ("asked", "heaps"),
    [({}, 1), ({"MALLOC_ARENA_MAX": "3"}, 3), ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"}, 2)],
)
def test_threads_share_a_heap_unless_somebody_asked_for_more(
    tmp_path: Path, asked: dict[str, str], heaps: int
) -> None:
    info = tmp_path / "info.xml"
    _python(_HEAPS, str(info), _KEEP, **asked)
    assert info.read_text().count("<heap nr=") == heaps


def test_the_program_says_so_before_anything_starts_a_thread(tmp_path: Path) -> None:
    info = tmp_path / "info.xml"
    _python(_HEAPS, str(info), "import bucketwise.jobs.cli")
    assert info.read_text().count("<heap nr=") == 1


_OF_WORKER = """
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import Pipe
from bucketwise.jobs.execution import processes as workers
from bucketwise.jobs.core.workers import become_worker
ends = Pipe()
starts = {"initializer": become_worker, "initargs": ends[:1]}
with ProcessPoolExecutor(1, mp_context=workers._CONTEXT, **starts) as pool:
    pool.submit(exec, sys.argv[3], {}).result()
"""


def test_so_does_a_worker(tmp_path: Path) -> None:
    info = tmp_path / "info.xml"
    _python(_OF_WORKER, str(info), "pass", _HEAPS)
    assert info.read_text().count("<heap nr=") == 1


_WORK = """
import resource, sys
import numpy as np
exec(sys.argv[1])
def faults():
    some = [np.ones(300_000) for _ in range(6)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
faults()
print(-faults() + [faults() for _ in range(20)][-1])
"""
_PROGRAM = """
from contextlib import redirect_stdout, suppress
from bucketwise.jobs import cli
sys.argv = ["bucketwise", "--help"]
with suppress(SystemExit), redirect_stdout(sys.stderr):
    cli.main()
"""
_WORKER = """
from multiprocessing import Pipe
from bucketwise.jobs.core.workers import become_worker
ends = Pipe()
become_worker(ends[0])
"""


def _faults(how: str, **environment: str) -> int:
    return int(_python(_WORK, how, **environment))


@pytest.mark.parametrize("how", [_KEEP, _PROGRAM, _WORKER])
def test_memory_that_is_asked_for_again_is_kept(how: str) -> None:
    assert 10 * _faults(how) < _faults("import bucketwise.buckets")


@pytest.mark.parametrize("asked", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_who_wants_it_back_gets_it_back(asked: str) -> None:
    """One of the two says so: the other would keep it."""
    environment = {asked: "100000"}
    assert 2 * _faults(_KEEP, **environment) > _faults("pass", **environment) > 10_000


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
