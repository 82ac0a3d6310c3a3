"""Options of answers on an even grid: how long its steps are, and what fills them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal

import typer

from bucketwise.config.errors import UsageError
from bucketwise.config.problems import InvalidValueError
from bucketwise.config.times import parse_duration

Every = Annotated[
    str | None,
    typer.Option("--every", metavar="DURATION", help="Answer on an even grid of such steps: 15m, 1d."),
]


Filled = Annotated[
    Literal["previous", "linear", "null"] | None,
    typer.Option("--fill", help="What steps without readings show: the value before, one between, or null."),
]


@dataclass(frozen=True)
class Steps:
    """The options that ask for an even grid."""

    every: Every = None
    fill: Filled = None

    def length(self) -> timedelta | None:
        """Returns the length of the steps; None where no grid is asked for. Raises UsageError where it is no
        length, or where there is something to fill and no grid."""
        if self.every is None:
            if self.fill is not None:
                raise UsageError(
                    f"--fill {self.fill} fills steps: say how long they are with --every, such as --every 15m"
                )
            return None
        try:
            length = parse_duration(self.every)
        except InvalidValueError as error:
            raise UsageError(f"--every {self.every}: {error.fault.message}; {error.fault.remedy}") from None
        if not length:
            raise UsageError(f"--every {self.every}: write a length such as 15m, 1h or 1d")
        return length


#: No grid.
NO_STEPS = Steps()
