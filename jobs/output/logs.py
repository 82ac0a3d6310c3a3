"""Log lines on stderr: key=value, a line an event, secrets hidden."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog
from structlog.typing import WrappedLogger

from config.secrets import hide_secrets


def configure(*, quiet: bool = False) -> None:
    """Send every line to stderr from now on; only warnings and errors where `quiet`."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
            _hide,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING if quiet else logging.INFO),
        logger_factory=_to_stderr,
        cache_logger_on_first_use=False,
    )
    # APScheduler logs through the standard library; what it has to say in normal times is noise.
    logging.basicConfig(stream=sys.stderr, level=logging.CRITICAL, force=True)


def _hide(_logger: WrappedLogger, _method: str, line: Any) -> str:
    return hide_secrets(line)


def _to_stderr(*_: object) -> structlog.PrintLogger:
    return structlog.PrintLogger(sys.stderr)
