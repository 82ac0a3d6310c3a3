"""Runs the command line as processes of their own, cheaply: one process imports it, and forks for each call.

What a call gets is what a shell would give it: arguments, environment, working directory, no terminal.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from tests.once import read_s3_once

ROOT = Path(__file__).resolve().parents[2]
_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": str(ROOT),
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "TMPDIR": tempfile.gettempdir(),
    **{name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")},
}


Meddle = tuple[str, dict[str, Any]]


def _findings(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Codes and severities."""
    found = [report.get("findings", []), *(it.get("findings", []) for it in report["policies"])]
    return [(it["code"], it["severity"]) for some in found for it in some if "severity" in it]


@cache
def _declared(verb: str) -> set[tuple[str, str]]:
    """What jobs say that a command may find."""
    from bucketwise.jobs.suite import all_jobs

    codes = [it for job in all_jobs() for it in (job.audited if verb == "audit" else job.checked)]
    return {(it.code, severity) for it in codes for severity in it.severities}


@dataclass(frozen=True)
class Ran:
    """How a process ended, and what it wrote. `connected`: the addresses that it connected sockets to."""

    code: int
    out: str
    err: str
    connected: list[str]

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout."""
        lines = self.out.splitlines()
        assert len(lines) == 1, self
        found = json.loads(lines[0])
        assert isinstance(found, dict)
        assert found["schema"] == 1
        assert found["exit_code"] == self.code
        assert [it for it in _findings(found) if it not in _declared(found["command"])] == []
        return found

    def policy(self, name: str) -> dict[str, Any]:
        (found,) = [it for it in self.json["policies"] if it["policy"] == name]
        assert isinstance(found, dict)
        return found


class CommandLine:
    """`bucketwise("run", "--json", cwd=folder)`."""

    def __init__(self, driver: subprocess.Popen[str]) -> None:
        self.driver = driver

    def __call__(self, *arguments: str, cwd: Path, **environment: str) -> Ran:
        return self.meddled(None, *arguments, cwd=cwd, **environment)

    def meddled(self, meddle: Meddle | None, *arguments: str, cwd: Path, **environment: str) -> Ran:
        """`meddle` names a module whose `install(**given)` is called in the process before it starts."""
        self.begin(meddle, *arguments, cwd=cwd, **environment)
        return self.end()

    def piped(self, text: str, *arguments: str, cwd: Path, **environment: str) -> Ran:
        """`text` is what it reads from its standard input."""
        self._call({"text": text}, *arguments, cwd=cwd, **environment)
        return self.end()

    def begin(self, meddle: Meddle | None, *arguments: str, cwd: Path, **environment: str) -> None:
        """Start a process and don't wait; the next call is `end`."""
        self._call({"meddle": meddle}, *arguments, cwd=cwd, **environment)

    def _call(self, more: dict[str, Any], *arguments: str, cwd: Path, **environment: str) -> None:
        assert self.driver.stdin is not None
        call = more | {
            "arguments": arguments,
            "cwd": str(cwd),
            "environment": _ENVIRONMENT | environment,
            "test": os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0],
        }
        self.driver.stdin.write(json.dumps(call) + "\n")
        self.driver.stdin.flush()

    def end(self) -> Ran:
        """Wait for the process that was begun."""
        assert self.driver.stdout is not None
        return Ran(**json.loads(self.driver.stdout.readline()))


@contextmanager
def command_line() -> Iterator[CommandLine]:
    command = [sys.executable, "-m", "tests.jobs.command"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_ENVIRONMENT
    ) as driver:
        yield CommandLine(driver)
        assert driver.stdin is not None
        driver.stdin.close()


@contextmanager
def started(
    *arguments: str, cwd: Path, module: str = "bucketwise", **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """A process of its own, for what has to be met while it works; ended with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=cwd,
        env=_ENVIRONMENT | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


#: What a call imports on its way, some of it only where pandas is installed. Each fork would do it anew.
_ON_THE_WAY = (
    "bucketwise.archivers.stores.s3",
    "bucketwise.jobs.query.engine",
    "duckdb",
    "encodings.utf_8_sig",
    "importlib.readers",
    "numpy.ma",
    "numpy.random",
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.pandas_compat",
    "pydantic.type_adapter",
    "rich._emoji_codes",
)


def _serve() -> None:
    from bucketwise import archivers
    from bucketwise.jobs.cli import main, program
    from bucketwise.jobs.suite import ENTRIES

    read_s3_once()
    for name in _ON_THE_WAY:
        importlib.import_module(name)
    for found in pkgutil.walk_packages(archivers.__path__, f"{archivers.__name__}."):
        if ".lake" not in found.name:  # see `_import_for`
            importlib.import_module(found.name)
    for name in ENTRIES:  # so that no fork has to prepare its options anew
        with redirect_stdout(StringIO()):
            program().main([name, "--help"], standalone_mode=False)
    answers = os.fdopen(os.dup(1), "w")
    _warm_up(main)
    gc.freeze()
    for line in sys.stdin:
        call = json.loads(line)
        _import_for(Path(call["cwd"], "bucketwise.toml"))
        with tempfile.TemporaryDirectory() as folder:
            child = os.fork()
            if child == 0:
                _be(main, call, Path(folder))
            _, status = os.waitpid(child, 0)
            texts = [Path(folder, name).read_text() for name in ("out", "err", "connected")]
        code = os.waitstatus_to_exitcode(status)
        ran = Ran(code, texts[0], texts[1], texts[2].splitlines())
        answers.write(json.dumps(vars(ran)) + "\n")
        answers.flush()


def _warm_up(main: Callable[[], None]) -> None:
    """Has commands fail where no MongoDB is: patterns are compiled then, models and tables made, which each
    fork would do anew."""
    from tests.jobs.place import POLICIES

    own, errors = os.environ.copy(), os.dup(2)
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere:
        for number in (1, 2):
            os.dup2(nowhere.fileno(), number)
        mongodb = '[mongodb]\nuri = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=1"\ndatabase = "none"\n'
        config = Path(folder, "bucketwise.toml")
        config.write_text(f'{mongodb}[store]\nurl = "{config.parent.as_uri()}"\n{POLICIES}')
        for arguments in ("check", "run", "status --json"):
            sys.argv = ["bucketwise", *arguments.split(), "--quiet", "--config", str(config)]
            with suppress(SystemExit):
                main()
        sys.stderr.flush()
    os.dup2(errors, 2)
    os.environ.clear()
    os.environ.update(own)
    while threading.active_count() > 1:  # those of pymongo, which end by themselves
        time.sleep(0.01)


def _import_for(config: Path) -> None:
    """Tables take a second to import, and few calls have any."""
    if config.is_file() and b"[lake]" in config.read_bytes():
        importlib.import_module("bucketwise.archivers.lake.catalog")
        gc.freeze()


def _be(main: Any, call: dict[str, Any], folder: Path) -> None:
    """Turn the forked process into the one that was asked for; does not come back."""
    code = 70
    try:
        os.dup2(_stdin(call.get("text", "")), 0)
        for number, name in enumerate(("out", "err"), start=1):
            os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY), number)
        connected = (folder / "connected").open("w", buffering=1)

        def note(event: str, arguments: tuple[Any, ...]) -> None:
            if event == "socket.connect":
                connected.write(f"{arguments[1]}\n")

        sys.addaudithook(note)
        os.environ.clear()
        os.environ.update(call["environment"])
        os.chdir(call["cwd"])
        _count_for(call["test"])
        sys.argv = ["bucketwise", *call["arguments"]]
        if call.get("meddle"):
            module, given = call["meddle"]
            importlib.import_module(module).install(**given)
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001  # as the interpreter would
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _stdin(text: str) -> int:
    """A pipe with this text, which is not longer than one holds."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    assert os.write(writing, text.encode()) == len(text.encode())
    os.close(writing)
    return reading


def _count_for(test: str) -> None:
    """Lines that are reached count for that test, where somebody counts them."""
    if "coverage" in sys.modules and (measured := sys.modules["coverage"].Coverage.current()):
        measured.switch_context(test)


if __name__ == "__main__":
    _serve()
