"""Output on stderr beside results: log lines, complaints and other lines for people. A line an event, as text
or as a JSON object, secrets hidden."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from bucketwise.config.errors import hide_secrets

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger

VARIABLE = "BUCKETWISE_LOG_FORMAT"
OPTION = "--log-format"
#: The value of `--log-format`.
LogFormat = Literal["text", "json"]
_FORMAT: LogFormat = "text"


def configure(*, quiet: bool = False, form: LogFormat = "text", verb: str | None = None) -> None:
    """Sends every line to stderr from now on; where `quiet`, only warnings and errors. Lines of JSON say
    which `verb` wrote them."""
    global _FORMAT
    _FORMAT = form
    log.configure(quiet=quiet, form=form, verb=verb)
    # APScheduler logs through the standard library; what it has to say in normal times is noise.
    logging.basicConfig(stream=sys.stderr, level=logging.CRITICAL, force=True)


class _Log:
    """The log. Importing structlog takes a third of a short command's time, and most log nothing: it is
    imported with the first line."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {"quiet": True, "form": "text", "verb": None}
        self._wrapping: dict[str, Any] | None = None  # how structlog wraps a logger; None: as settings say

    def configure(self, **settings: Any) -> None:
        """Takes other settings."""
        self._settings, self._wrapping = settings, None

    def __getattr__(self, level: str) -> Callable[..., None]:
        import structlog

        if self._wrapping is None:
            self._wrapping = _wrapping(**self._settings)
        # Not configured for the process: an application that calls the suite may use structlog as well.
        logger = structlog.wrap_logger(structlog.PrintLogger(sys.stderr), **self._wrapping)
        method: Callable[..., None] = getattr(logger, level)
        return method


log = _Log()


def _wrapping(*, quiet: bool, form: LogFormat, verb: str | None) -> dict[str, Any]:
    import structlog

    shown: list[Any] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
    ]
    if form == "json":
        shown = [structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"), partial(_as_json, verb)]
    return {
        "processors": [
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            *shown,
            _hide,
        ],
        "wrapper_class": structlog.make_filtering_bound_logger(logging.WARNING if quiet else logging.INFO),
    }


def is_json() -> bool:
    """Returns whether lines are JSON objects."""
    return _FORMAT == "json"


def requested_format(arguments: Sequence[str]) -> LogFormat:
    """Returns the log format that a command line asks for, if its options could not be parsed."""
    words = [os.environ.get(VARIABLE, ""), *(it.removeprefix(f"{OPTION}=") for it in arguments)]
    return "json" if "json" in words else "text"


def complain(line: str, prefix: str = "bucketwise: ", **fields: Any) -> None:
    """Logs an error or a warning. Text lines have a prefix and no fields."""
    if is_json():
        log.error(line, **fields)
    else:
        sys.stderr.write(hide_secrets(f"{prefix}{line}\n"))


def _as_json(verb: str | None, _logger: WrappedLogger, _method: str, event: EventDict) -> str:
    first = {key: event.pop(key) for key in ("time", "level", "event")}
    said = {**first, **({} if verb is None else {"verb": verb}), **event}
    # Before quotes are escaped: they tell where a secret ends.
    plain = {key: hide_secrets(it) if isinstance(it, str) else it for key, it in said.items()}
    return json.dumps(plain, ensure_ascii=False, default=lambda it: hide_secrets(str(it)))


def _hide(_logger: WrappedLogger, _method: str, line: Any) -> str:
    return line if is_json() else hide_secrets(line)
