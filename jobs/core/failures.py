"""Turns any exception into an exit code and a message for people, secrets hidden."""

from __future__ import annotations

import errno
import os
import re
import threading
import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

from pymongo.errors import (
    ConnectionFailure,
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WTimeoutError,
)

from bucketwise.config.errors import BucketwiseError, InterruptedRun, hide_secrets
from bucketwise.jobs.core import logs

_AGAIN = "It is safe to run again"
_NO_THREAD = "can't start new thread"  # a plain RuntimeError
_NO_ROOM = f". Free some space on this machine's disk; TMPDIR says where temporary files go. {_AGAIN}"
_TOO_MANY_FILES = f". Raise the limit of open files (ulimit -n). {_AGAIN}"

_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _NO_ROOM),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), _TOO_MANY_FILES),
}

_WRITE_CONCERN_FAILED = 64
DEBUG_VARIABLE = "BUCKETWISE_DEBUG"
_UNAUTHORIZED = 13
_LOGIN_FAILED = 18

_LOGIN_REMEDY = (
    "Are user and password right? The user is looked for in the database that the URI names, or that its "
    "authSource names: most users are in admin, so add authSource=admin"
)

_REFUSED_COMMAND = re.compile(
    r"not authorized on (?P<database>\S+) to execute command "
    r'\{ (?P<command>\w+): (?:"(?P<collection>[^"]*)")?'
)


class Failure(NamedTuple):
    """How a command or run failed: its exit code, and a message for people."""

    exit_code: int
    message: str


def failure_of(error: BaseException, hosts: str = "") -> Failure:
    """Returns what to print of `error`. `hosts`: where MongoDB is, for errors that don't say so."""
    if os.environ.get(DEBUG_VARIABLE) == "1":
        logs.complain("".join(traceback.format_exception(error)).rstrip("\n"), "")
    if isinstance(error, BucketwiseError):
        return Failure(error.exit_code, hide_secrets(str(error)))
    if isinstance(error, KeyboardInterrupt):
        return Failure(InterruptedRun.exit_code, "interrupted")
    if isinstance(error, PyMongoError):
        return Failure(1, _one_line(_of_mongodb(error, hosts)))
    if type(error).__module__.startswith("botocore."):  # which takes long to import
        return Failure(1, _one_line(f"the S3 store failed: {error}"))
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError) or number == errno.ENOMEM or _NO_THREAD in str(error):
        return Failure(1, f"this machine gave no more memory or threads. Give this process more. {_AGAIN}")
    if isinstance(error, OSError):
        place = f" {error.filename}" if error.filename else ""
        remedy = _REMEDIES.get(number or 0, "")
        return Failure(1, _one_line(f"the system refused{place}: {error.strerror or error}{remedy}"))
    return Failure(
        1,
        _one_line(f"unexpected error: {type(error).__name__}: {error}")
        + f"\nThis is a defect of bucketwise. It is safe to run again. Run with {DEBUG_VARIABLE}=1 to see "
        "where it happened, and report that at the project's issue tracker",
    )


def log_thread_error(ended: threading.ExceptHookArgs) -> None:
    """Logs the error of a background thread instead of its traceback. Whatever needs the thread then
    fails by itself."""
    if ended.exc_value is not None:
        name = ended.thread.name if ended.thread else "unknown"
        logs.complain(f"the background thread {name} has ended: {failure_of(ended.exc_value).message}", "")


def _of_mongodb(error: PyMongoError, hosts: str) -> str:
    where = f"MongoDB at {hosts}" if hosts else "MongoDB"
    if isinstance(error, ServerSelectionTimeoutError):
        reason = str(error).partition(" (configured timeouts")[0].partition(", Timeout: ")[0]
        return f"cannot reach {where}: {reason}. Is it up, and is the URI right?"
    details = _details(error)
    reply = details.get("errmsg") or str(error).partition(", full error:")[0]
    number = details.get("code", getattr(error, "code", None))
    if isinstance(error, WTimeoutError) or number == _WRITE_CONCERN_FAILED:
        return f"{where} took too long: {reply}. Can a majority of its nodes be reached? {_AGAIN}"
    if isinstance(error, ExecutionTimeout | NetworkTimeout):
        return f"{where} took too long: {reply}. {_AGAIN}"
    if isinstance(error, ConnectionFailure):
        return f"lost the connection to {where}: {reply}. {_AGAIN}"
    if isinstance(error, OperationFailure):
        if number == _UNAUTHORIZED and (refused := _REFUSED_COMMAND.search(reply)):
            return f"{where} refused: {_refusal(refused)}. `bucketwise check` tells which rights are missing"
        if number == _LOGIN_FAILED:
            return f"{where} refused the login: {reply.rstrip('.')}. {_LOGIN_REMEDY}"
        name = details.get("codeName", "")
        code = " ".join(str(part) for part in (number, name) if part not in (None, ""))
        return f"{where} refused: {reply}" + (f" ({code})" if code else "")
    return f"{where}: {reply}"


def _details(error: PyMongoError) -> Mapping[str, Any]:
    """Returns what the server said; of a bulk write, of the first statement that failed."""
    details: Mapping[str, Any] = (error.details if isinstance(error, OperationFailure) else None) or {}
    inner = [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]
    return inner[0] if inner else details


def _refusal(refused: re.Match[str]) -> str:
    """Returns the server's refusal without the arguments of the command, since the server quotes all of
    them, filters included."""
    place = ".".join(filter(None, refused.group("database", "collection")))
    return f"the user may not {refused['command']} in {place}"


def _one_line(text: str) -> str:
    return hide_secrets(" ".join(text.split()))
