"""Being asked to stop: the first signal ends the run after the step in hand, the second at once."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from config.errors import InterruptedRun

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOW_CURSOR = b"\x1b[?25h\n"


class Stop:
    """Whether this process was asked to stop; `check` is for the places where a run may."""

    # No threading.Event: a signal's handler asks, in the midst of whatever the main thread does. Were that
    # waiting for the event, with the event's lock in its hand, the handler would wait for the lock for good.
    asked = False

    def ask(self) -> None:
        self.asked = True

    def wait(self) -> None:
        """Sleep until asked, and up to a second more."""
        while not self.asked:
            time.sleep(1)

    def check(self) -> None:
        """Raise InterruptedRun once asked."""
        if self.asked:
            raise InterruptedRun("interrupted: the step in hand was finished; it is safe to run again")


@contextmanager
def signals_to(stop: Stop) -> Iterator[None]:
    """In the block, SIGINT, SIGTERM and SIGHUP ask `stop`; a second one ends the process with 130.

    That end is as safe as a crash: what is half done is undone or finished by the next run. A signal that
    is ignored stays so, as `nohup` wants it.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        if stop.asked:
            if sys.stderr.isatty():
                os.write(sys.stderr.fileno(), _SHOW_CURSOR)  # a progress bar had hidden it
            os._exit(InterruptedRun.exit_code)
        stop.ask()

    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interruptible() -> Iterator[None]:
    """In the block, SIGINT raises KeyboardInterrupt: for waiting for a person, who has nothing to lose."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
