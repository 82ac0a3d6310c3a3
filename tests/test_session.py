"""What a killed session leaves behind: nothing. And who may start something."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.jobs.processes import descendants, is_alive, wait_until

#: Each worker of the killed session has some of what tests start, and waits with it.
_INNER = """
import os, subprocess, sys, tempfile, time
from pathlib import Path
import pytest
from tests.jobs.clusters import cluster
from tests.jobs.conftest import bucketwise
from tests.jobs.page.conftest import started_browser
from tests.ops.watched import prometheus
from tests.redis_servers import redis_server

pytestmark = pytest.mark.process

def meet(name, told):
    aside = Path(os.environ["TOLD"], f"{name}.part")
    aside.write_text(f"{os.getpid()} {tempfile.gettempdir()} {' '.join(map(str, told))}")
    aside.rename(aside.with_suffix(""))
    time.sleep(600)

def test_servers(mongod, asking_mongod, moto_server, rclone_server, tmp_path):
    with redis_server() as redis, prometheus(tmp_path, 9, 9) as watched:
        urls = (moto_server.endpoint_url, rclone_server.endpoint_url, watched.url)
        ports = [it.rpartition(":")[2] for it in urls]
        meet("servers", [mongod.port, asking_mongod.address[1], redis.port, *ports])

def test_programs(mongod, bucketwise, started_browser, tmp_path):
    hanging = [sys.executable, "-c", "import os, signal; os.fork(); os.kill(os.getpid(), signal.SIGSTOP)"]
    subprocess.Popen(hanging, start_new_session=True)
    with cluster(tmp_path / "dask") as dask:
        meet("programs", [mongod.port, dask.url.rpartition(":")[2]])
"""


def _pytest(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """A session of the tests in a folder, with the fixtures of all."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    command += [f"--rootdir={folder}", "-c", str(ROOT / "pyproject.toml"), str(folder)]
    environment = os.environ | {"TOLD": str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A session of pytest with two workers that have all servers up."""
    (tmp_path / "test_inner.py").write_text(_INNER)
    with _pytest(tmp_path, "-n", "2", "--max-worker-restart=0") as process:
        try:
            yield process
        finally:
            process.kill()


def _told(folder: Path, name: str, session: subprocess.Popen[bytes]) -> tuple[int, str, list[int]]:
    """The worker's process, its folder, and the ports of what it has started."""
    wait_until(lambda: (folder / name).exists() or session.poll() is not None, f"no {name}")
    pid, temporary, *ports = (folder / name).read_text().split()
    return int(pid), temporary, [int(it) for it in ports]


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.proof
def test_a_killed_session_leaves_nothing(session: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """A worker that is killed leaves nothing either, while the others go on."""
    killed, folder, ports = _told(tmp_path, "servers", session)
    other, other_folder, other_ports = _told(tmp_path, "programs", session)
    its, others = descendants(killed), descendants(other)
    assert all(map(_is_open, ports + other_ports))
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, its)), "what the killed worker started is still there")
    assert not Path(folder).exists() and not any(map(_is_open, ports))
    assert all(map(is_alive, others)) and all(map(_is_open, other_ports))
    session.kill()
    others.add(other)
    wait_until(lambda: not any(map(is_alive, others)), "what the killed session started is still there")
    wait_until(lambda: not Path(other_folder).parent.exists(), "its files are still there")
    assert not any(map(_is_open, other_ports))


_GUARDED = """
import socket, subprocess, sys
import pytest

def start():
    subprocess.run([sys.executable, "-c", ""], check=True)

def test_starts():
    start()

def test_hides_that_it_connects():
    with pytest.raises(AssertionError), socket.socket() as probe:
        probe.connect(("127.0.0.1", 9))

@pytest.mark.process
def test_says_so():
    start()

def test_writes_a_file(file_store):
    pass
"""


@pytest.mark.process
def test_who_starts_a_process_says_so(tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(_GUARDED)
    with _pytest(tmp_path, "-p", "no:xdist") as process:
        told = process.communicate(timeout=300)[0].decode()
    assert "2 failed, 2 passed" in told, told
    assert told.count("in a test that is not marked `process`") >= 2
