"""Signals that stop a process: the first ends the run after the step in hand, the second at once."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from bucketwise.config.errors import InterruptedRun

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOW_CURSOR = b"\x1b[?25h\n"


class Stop:
    """A request to stop this process. Runs call `check` where they may stop."""

    # No threading.Event: a signal's handler calls `ask` in the midst of whatever the main thread does. If it
    # were waiting for the event, and held the event's lock, the handler would wait for the lock forever.
    is_requested = False

    def request(self) -> None:
        """Requests a stop at the next place where a run may stop."""
        self.is_requested = True

    def wait(self) -> None:
        """Sleeps until a stop is requested, and up to a second longer."""
        while not self.is_requested:
            time.sleep(1)

    def check(self) -> None:
        """Raises InterruptedRun if a stop was requested."""
        if self.is_requested:
            raise InterruptedRun("interrupted: the current step was finished; it is safe to run again")


_code = InterruptedRun.exit_code


def handle_signals() -> None:
    """Ends the process from now on at once at SIGINT, SIGTERM and SIGHUP where no `signals_to` is in force:
    with 130, or with the code that is settled."""
    for number in _handled():
        signal.signal(number, lambda _number, _frame: os._exit(_code))


def fix_exit_code(code: int) -> None:
    """Sets the exit code once everything is done and reported: whatever signal comes now, the process
    ends with it."""
    global _code
    _code = code


def ignore() -> None:
    """Ignores these signals from now on. Python's last act is to hand them back to the system, which would
    end the process with a code of its own."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # so that none comes while they change hands
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def signals_to(stop: Stop) -> Iterator[None]:
    """Makes SIGINT, SIGTERM and SIGHUP ask `stop` inside the block; a second one ends the process with 130.

    That end is as safe as a crash: what is half done is undone or finished by the next run. A signal that is
    ignored stays so, as `nohup` wants it."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        if stop.is_requested:
            if sys.stderr.isatty():
                os.write(sys.stderr.fileno(), _SHOW_CURSOR)  # a progress bar had hidden it
            os._exit(InterruptedRun.exit_code)
        stop.request()

    before = {number: signal.signal(number, handle) for number in _handled()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handled() -> list[signal.Signals]:
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def waking(interrupt: Callable[[], object]) -> Iterator[None]:
    """Makes a signal call `interrupt` at once inside the block, from a thread: for work in a library, in
    which Python sees no signal before it is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    woken, wake = socket.socketpair()
    wake.setblocking(False)

    def wait() -> None:
        while woken.recv(1) not in (b"", b"\0"):
            interrupt()

    thread = threading.Thread(target=wait, name="signals", daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        wake.send(b"\0")  # no signal has this number
        thread.join()
        woken.close()
        wake.close()


@contextmanager
def interruptible() -> Iterator[None]:
    """Makes SIGINT raise KeyboardInterrupt inside the block: for waiting for a person, with nothing to
    lose."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
