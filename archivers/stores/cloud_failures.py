"""What the clients of Azure and Google tell of requests that failed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from obstore.exceptions import InvalidPathError

_TRANSIENT = {408, 429, 500, 502, 503, 504}


@dataclass(eq=False)
class Failure(Exception):
    """An attempt of a request that failed, and the error that its client raised."""

    error: Exception
    status: int | None = None  # None: there was no answer
    code: str = ""  # the server's word for it
    message: str = ""  # what is told besides
    wire: str | None = None  # how the connection failed; None: it did not
    is_of_credentials: bool = False
    #: Whether this attempt, or one before it, may have had an effect, and whether it still may.
    had_effect: bool = False
    may_still_happen: bool = False

    @classmethod
    def of_obstore(cls, error: Exception) -> Failure:
        """Returns what obstore tells of a failure, in nothing but a text."""
        text, _, details = str(error).partition("\n\nDebug source:")
        found = re.search(r"(?:status code|\(code): (\d{3})", text)
        status, code = int(found[1]) if found else None, _inside("Code", text)
        wire = re.search(r"\bkind: (Connect|Request|Timeout|Interrupted|Decode|Unknown)\b", details)
        if code:
            message = _inside("Message", text)
        elif wire and status is None:
            message = next(iter(re.findall(r'(?:message|error): "([^"]+)"', details)[-1:]), "")
        else:
            first = text.partition("\n")[0] or type(error).__name__
            message = re.sub(r"\S+://\S+", "…", re.sub(r"^Generic \w+ error: ", "", first))
        credentials = re.search("token re(quest|sponse)|federated token|get-access-token", text)
        return cls(
            error, status, code, message, wire[1] if wire and status is None else None, bool(credentials)
        )

    @property
    def is_transient(self) -> bool:
        """Returns whether the same request may do better the next time."""
        return self.status in _TRANSIENT if self.status else self.wire is not None

    @property
    def is_harmless(self) -> bool:
        """Returns whether this attempt certainly had no effect: it was refused, or never sent."""
        refused = self.status is not None and 400 <= self.status < 500
        unsendable = isinstance(self.error, ValueError | InvalidPathError)
        return refused or unsendable or self.is_of_credentials or self.is_unreachable

    @property
    def is_slow(self) -> bool:
        """Returns whether the server may still carry this attempt out: it was too slow to answer."""
        return self.wire == "Timeout" or self.status == 504

    @property
    def is_unreachable(self) -> bool:
        """Returns whether there was no connection."""
        return self.wire == "Connect"

    @property
    def reason(self) -> str:
        """Returns what is known, without URLs, in which there may be signatures."""
        if self.code:
            return f"{self.code}: {self.message or 'the server says no more'}"[:300]
        if self.status is not None:
            return f"the server answered with status {self.status}"
        if self.wire == "Timeout":
            return "no answer in time"
        if self.wire is not None:
            told = "the connection failed" if self.is_unreachable else "it broke off"
            return f"{told}: {self.message}" if self.message else told
        return self.message


def _inside(tag: str, text: str) -> str:
    """Returns the first line inside an XML element; empty where there is none."""
    found = re.search(rf"<{tag}>([^<\n]*)", text)
    return found[1].strip() if found else ""
