"""Hides passwords in every text that people or files get."""

from __future__ import annotations

import re

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
