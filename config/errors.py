"""All errors that a user can meet, one class for each outcome, which has the exit code; and what hides
passwords in texts.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

HIDDEN = "***"

# What stands between `scheme://` and the last `@` of a word. A password may hold any sign that its owner
# forgot to escape, so this rather hides too much. A quote that closes a JSON or Python string ends it.
_IN_WORD = r"""(?:[^\s"']|["'](?![,:;)}\]\s]|$))*"""
_USERINFO = re.compile(rf"(?i)\b([a-z][a-z0-9+.-]*://)(?=[^/\s]*[:@]){_IN_WORD}@")
# A user and a password with the host forgotten: what follows the colon is no port.
_UNFINISHED = re.compile(
    r"(?i)\b(mongodb(?:\+srv)?://)[^\s/?@,:\"'\[]+:(?![0-9]{1,5}(?![^\s/?,\"')\]}.;]))[^\s@]+"
)
_HOSTS = re.compile(r"[^:/?]*(:[0-9]{0,5}(,[^:/?]*)?)*([/?].*)?|\[.*", re.DOTALL)
_OPTIONS = re.compile(r"(?i)\b(tlsCertificateKeyFilePassword=|AWS_SESSION_TOKEN:|proxyPassword=)[^&,;\s\"']+")
# Python's HTTP client quotes a header with a line break in it: a token read from a file has one soon.
_HEADER = re.compile(r"""(Invalid header value )b?("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")


def hide_secrets(text: str) -> str:
    """Returns `text` with `***` for the userinfo of every URL in it, and for the secret options of MongoDB
    URIs."""
    text = _USERINFO.sub(rf"\1{HIDDEN}@", text)
    text = _UNFINISHED.sub(rf"\1{HIDDEN}", text)
    text = _HEADER.sub(rf"\1{HIDDEN}", text)
    return _OPTIONS.sub(rf"\1{HIDDEN}", text)


def hide_in_url(url: str) -> str:
    """Returns `url`, which is a URL or was meant to be one, without its secrets. Blanks do not end it."""
    scheme, separator, rest = url.rpartition("://") if url.count("://") == 1 else ("", "", url)
    if "@" in rest:
        rest = f"{HIDDEN}@{rest.rpartition('@')[2]}"
    elif not _HOSTS.fullmatch(rest):
        rest = HIDDEN
    return hide_secrets(f"{scheme}{separator}{rest}")


class BucketwiseError(Exception):
    """A command failed. It is safe to run it again."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        # Those made from more than their text can't be made from it again where they were pickled.
        return _rebuild, (type(self), self.args, vars(self))


def _rebuild(kind: type[BucketwiseError], args: tuple[Any, ...], state: dict[str, Any]) -> BucketwiseError:
    error = kind.__new__(kind, *args)
    vars(error).update(state)
    return error


class UsageError(BucketwiseError):
    """The command line is invalid. Nothing was changed."""

    exit_code = 2


class HaltedError(BucketwiseError):
    """An integrity check failed. Nothing was deleted, and a person must look."""

    exit_code = 5


class LeaseHeldError(BucketwiseError):
    """Another run holds the policy's lease."""

    exit_code = 11


class LeaseLostError(BucketwiseError):
    """The lease went to another run while this one worked; it stopped before its next step."""

    exit_code = 11


class InterruptedRun(BucketwiseError):
    """A signal asked the run to stop. It finished the current step and ended."""

    exit_code = 130


class PausedError(InterruptedRun):
    """The policy is paused. `paused`: its `reason`, `since` and `by`. A run that is under way ends as if
    interrupted; one that would begin has nothing to do."""

    def __init__(self, message: str, paused: dict[str, Any]) -> None:
        super().__init__(message)
        self.paused = paused


class WindowOverError(InterruptedRun):
    """The window in which runs may work is over; the next one begins at `opens_at`. A run that is under
    way ends as if interrupted, and has not failed."""

    def __init__(self, message: str, opens_at: datetime) -> None:
        super().__init__(message)
        self.opens_at = opens_at
