"""Run in a process of the command line before it starts: its output has the width of a terminal."""

from __future__ import annotations

from bucketwise.jobs.output import tables


def install(width: int) -> None:
    tables._WIDTH_OF_FILES = width
