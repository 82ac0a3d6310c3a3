"""Finds the line of a TOML file on which a key stands, near enough to find it by eye."""

from __future__ import annotations

import re
from collections import Counter

from config.problems import Key

_NAME = r"""(?:[A-Za-z0-9_-]+|"[^"\\]*"|'[^']*')"""
_PATH = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_PATH})\s*\]\]?\s*(?:#.*)?")
_ASSIGNMENT = re.compile(rf"\s*({_PATH})\s*=")
_LONG_STRING = re.compile(r'"""|\'\'\'')


def lines_of(text: str) -> dict[Key, int]:
    """Returns the line, from 1, of every table and key that begins one. Keys inside `{…}` have none. Tables
    of a list are counted from 1."""
    lines: dict[Key, int] = {}
    counted: Counter[Key] = Counter()
    table: Key = ()
    in_string = False
    for number, line in enumerate(text.splitlines(), start=1):
        if not in_string:
            if header := _HEADER.fullmatch(line):
                table = _names(header[1])
                lines.setdefault(table, number)
                if line.lstrip().startswith("[["):
                    counted[table] += 1
                    table = (*table, str(counted[table]))
                    lines.setdefault(table, number)
            elif assignment := _ASSIGNMENT.match(line):
                lines.setdefault((*table, *_names(assignment[1])), number)
        in_string ^= len(_LONG_STRING.findall(line)) % 2 == 1
    return lines


def _names(path: str) -> Key:
    return tuple(name.strip("\"'") for name in re.findall(_NAME, path))
