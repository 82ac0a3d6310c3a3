"""A real dask cluster on this machine: a scheduler and its workers, processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from distributed import Client

from tests.conftest import free_port
from tests.jobs.command import ROOT
from tests.jobs.processes import wait_until

Process = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Cluster:
    url: str  # as --executor takes it
    scheduler: Process
    workers: list[Process]
    folder: Path

    def has_given(self, number: int) -> bool:
        """Whether this worker has a task that it has not done."""
        with Client(self.url.replace("dask:", "tcp:"), set_as_default=False) as client:  # type: ignore[no-untyped-call]
            there = {str(it["name"]): address for address, it in client.scheduler_info(-1)["workers"].items()}
            return bool(client.processing()[there[str(number)]])

    def logs(self) -> str:
        """All that scheduler and workers have written."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


@contextmanager
def cluster(folder: Path, scheme: str = "dask", workers: str = "01", **more: str) -> Iterator[Cluster]:
    """What they log, they log in full. `workers`: a letter for each. `more`: of their environment."""
    folder.mkdir()
    port, protocol = free_port(), {"dask": "tcp", "tls": "tls"}[scheme]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "DASK_LOGGING__DISTRIBUTED": "debug",
        "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "spawn",
        **more,
    }
    with ExitStack() as stack:

        def start(name: str, module: str, *arguments: str) -> Process:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            command = [sys.executable, "-m", f"distributed.cli.{module}", *arguments, "--no-dashboard"]
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            stack.callback(_end, process)
            return process

        address = ["--host", f"{protocol}://127.0.0.1", "--port", str(port)]
        scheduler = start("scheduler", "dask_scheduler", *address)
        there = [f"{protocol}://127.0.0.1:{port}", "--host", f"{protocol}://127.0.0.1"]
        there += ["--nthreads", "1", "--no-nanny"]
        there += ["--local-directory", str(folder)]
        started = [start(f"worker {name}", "dask_worker", *there, "--name", name) for name in workers]
        it = Cluster(f"{scheme}://127.0.0.1:{port}", scheduler, started, folder)
        wait_until(
            lambda: it.logs().count("Registered to:") == len(workers), "the workers have found no scheduler"
        )
        yield it


def certificate(folder: Path) -> dict[str, str]:
    """One for all of a cluster, as dask's settings name it: who has it is let in, and nobody else."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cluster")])
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, secret = folder / "cluster.pem", folder / "cluster.key"
    pem.write_bytes(signed.public_bytes(Encoding.PEM))
    secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    tls = "DASK_DISTRIBUTED__COMM__TLS__"
    found = {f"{tls}CA_FILE": str(pem)}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        found |= {f"{tls}{role}__CERT": str(pem), f"{tls}{role}__KEY": str(secret)}
    return found


def _end(process: Process) -> None:
    process.kill()
    process.wait()
