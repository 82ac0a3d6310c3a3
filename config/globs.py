"""Globs: `*` is any text, `?` any character, `[a-z]` one of some, `[!a-z]` none of them."""

from __future__ import annotations

import re

_WILD = re.compile(r"[*?\[]")
#: The end of a text, in the expressions of Python and of MongoDB alike.
_END = r"(?![\s\S])"


def is_literal(glob: str) -> bool:
    """Returns whether a glob matches one text alone."""
    return _WILD.search(glob) is None


def glob_pattern(glob: str) -> str:
    """Returns a regular expression for Python and MongoDB, for use with the flag `s`. It begins with the text
    that the glob begins with, so that an index finds what it matches."""
    rest = glob.rstrip("*")
    found, at = ["^"], 0
    while at < len(rest):
        character, close = rest[at], rest.find("]", at + (3 if rest[at + 1 : at + 2] == "!" else 2))
        if character == "[" and close > 0:
            held = rest[at + 1 : close]
            chosen = "".join(rf"\{it}" if it in r"\[]^" else it for it in held.removeprefix("!"))
            found.append(f"[{'^' if held.startswith('!') else ''}{chosen}]")
            at = close
        else:
            found.append({"*": ".*", "?": "."}.get(character, re.escape(character)))
        at += 1
    return "".join(found) + (_END if rest == glob else "")
