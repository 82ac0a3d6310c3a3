"""The identity of a process and its machine, for the holder of a lease and of a ledger entry."""

from __future__ import annotations

import getpass
import os
import socket
from datetime import datetime
from pathlib import Path
from typing import Any

from bucketwise.archivers.records.receipts import RunIdentity
from bucketwise.config import VERSION

Host = dict[str, Any]


def this_process() -> Host:
    """Returns what distinguishes this process from every other, even after its pid is reused: `{name,
    boot_id, pid_namespace, pid, pid_started}`. What comes from /proc is None where there is none."""
    return {
        "name": socket.gethostname(),
        "boot_id": machine_boot_id(),
        "pid_namespace": _pid_namespace(),
        "pid": os.getpid(),
        "pid_started": _started(os.getpid()),
    }


def user_name() -> str:
    """Returns the name of who runs this process; the number where there is no name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def this_user() -> str:
    """Returns who runs this process, as `user@host`."""
    return f"{user_name()}@{socket.gethostname()}"


def this_run(run: str, now_given: datetime | None) -> RunIdentity:
    """Returns the identity of a run in this process."""
    return RunIdentity(run, socket.gethostname(), user_name(), VERSION, now_given)


def is_known_dead(host: Host) -> bool:
    """Returns whether `host` is a process of this machine and pid namespace that has ended. Returns
    False if that cannot be known: then the lease is waited for until it expires."""
    boot_id, namespace = machine_boot_id(), _pid_namespace()
    if not boot_id or not namespace:
        return False
    here = (socket.gethostname(), boot_id, namespace)
    if (host.get("name"), host.get("boot_id"), host.get("pid_namespace")) != here:
        return False
    pid = host.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it runs as another user
    started = _started(pid)
    return started is not None and started != host.get("pid_started")


def machine_boot_id() -> str | None:
    """Returns the id of this boot of the machine; None where Linux does not tell it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _pid_namespace() -> int | None:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None


def _started(pid: int) -> int | None:
    """Returns the clock ticks from boot to the start of the process; -1 once it has ended and only awaits its
    parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before may hold spaces and brackets
    return -1 if fields[0] in "ZX" else int(fields[19])
