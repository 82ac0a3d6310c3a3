"""The program: `bucketwise`, or `python -m bucketwise`. It hears signals before it imports
what takes long."""

from __future__ import annotations

import atexit

from bucketwise.jobs.core import stopping


def main() -> None:
    """Ends the process with the exit code of the command line."""
    stopping.handle_signals()
    atexit.register(stopping.ignore)  # first of all, and so called last of all
    from bucketwise.jobs import cli

    cli.main()


if __name__ == "__main__":
    main()
