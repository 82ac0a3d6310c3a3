"""How the demo looks: a heading an act, aligned tables, and whether all that was shown is right."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import StringIO

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from jobs import clock

_WIDEST, _INDENT = 108, 4
_BARS = "▁▂▃▄▅▆▇█"


def number(count: float) -> str:
    """Returns a number with commas between thousands."""
    return f"{count:,}"


def size(count: float) -> str:
    """Returns bytes as text, in the unit that suits them."""
    return " ".join(_scaled(count, count))


def change(before: Sequence[int], after: Sequence[int]) -> list[str]:
    """Returns the cells of a row: documents, then figures in bytes, each before and after, in one unit."""
    figures = [f"{number(before[0])} → {number(after[0])}"]
    for one, two in zip(before[1:], after[1:], strict=True):
        shown, unit = _scaled(two, max(one, two))
        figures.append(f"{_scaled(one, max(one, two))[0]} → {shown} {unit}")
    return figures


def _scaled(count: float, largest: float) -> tuple[str, str]:
    for power, unit in ((3, "GB"), (2, "MB"), (1, "kB")):
        if largest >= 1000**power:
            return f"{count / 1000**power:,.1f}", unit
    return f"{count:,.0f}", "B"


def sparkline(values: Sequence[float]) -> str:
    """Returns a bar of one character for each value. At least one."""
    low, high = min(values), max(values)
    scale = (len(_BARS) - 1) / (high - low or 1)
    return "".join(_BARS[round((value - low) * scale)] for value in values)


class Show:
    """Writes to stdout: in colour on a terminal, in plain lines elsewhere, and not at all for --json. Counts
    the checks of what it shows."""

    def __init__(self, *, silent: bool) -> None:
        out = StringIO() if silent else sys.stdout
        self._console = Console(file=out, highlight=False, markup=False, emoji=False)
        self._console.width = min(self._console.width, _WIDEST) if self._console.is_terminal else _WIDEST
        self.made, self.failed = 0, list[str]()
        self._acts = self._made_before = 0
        self._began = self._act_began = clock.steady()

    def equal(self, what: str, got: object, wanted: object) -> None:
        """Checks that two values are equal."""
        self.holds(f"{what}: {got!r:.200}, and it should be {wanted!r:.200}", got == wanted)

    def holds(self, claim: str, held: bool) -> None:
        """Checks a claim. `claim`: what to print where it doesn't hold."""
        self.made += 1
        if not held:
            self.failed.append(claim)

    def opening(self, lines: Sequence[str]) -> None:
        """Prints the heading of the demo, and lines below it."""
        self._console.print(Text("\nbucketwise demo", style="bold cyan"))
        for line in lines:
            self.line(line)

    def act(self, title: str, about: str) -> None:
        """Prints the heading of the next act, and starts its clock."""
        self._acts, self._made_before, self._act_began = self._acts + 1, self.made, clock.steady()
        self._console.print(Text(f"\n{self._acts:>2}  ", style="cyan").append(title, style="bold"))
        self.line(about, style="dim")

    def line(self, text: str, style: str = "") -> None:
        """Prints an indented line."""
        self._console.print(Padding(Text(text, style=style), (0, 0, 0, _INDENT), expand=False))

    def blank(self) -> None:
        """Prints an empty line."""
        self._console.print()

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
        """Prints a table. The first `left` columns hold words, the others figures. An empty row separates
        what follows."""
        table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
        for at, head in enumerate(heads):
            table.add_column(head, justify="left" if at < left else "right", no_wrap=True)
        for row in rows:
            table.add_row(*map(Text, row)) if row else table.add_section()
        self.blank()
        self._console.print(Padding(table, (0, 0, 0, _INDENT), expand=False))

    def sql(self, text: str) -> None:
        """Prints a query, highlighted."""
        self.blank()
        shown = Syntax(text, "sql", theme="ansi_dark", background_color="default", word_wrap=True)
        self._console.print(Padding(shown, (0, 0, 0, _INDENT), expand=False))

    def verdict(self, claim: str) -> None:
        """Closes an act: prints what was checked in it, or what was wrong. An act with a fault is the
        last."""
        made = self.made - self._made_before
        self.blank()
        for fault in self.failed[:5]:
            self.line(f"✗ {fault}", style="bold red")
        if self.failed:
            self.line(f"✗ {len(self.failed)} of {made} checks failed", style="bold red")
            return
        counted = "1 check" if made == 1 else f"{number(made)} checks"
        self.line(f"✓ {claim} ({counted}, {clock.steady() - self._act_began:.1f} s)", style="green")

    def closing(self, lines: Sequence[str]) -> None:
        """Prints whether all checks held, how long the demo took, and lines below."""
        failed, made = len(self.failed), f"{number(self.made)} checks"
        verdict = f"{failed} of {made} failed" if failed else f"Everything adds up: {made}"
        style = "bold red" if failed else "bold green"
        self._console.print(Text(f"\n{verdict}, {clock.steady() - self._began:.0f} seconds.", style=style))
        for line in lines:
            self._console.print(Text(" " * _INDENT + line if line else ""), soft_wrap=True)  # to be copied
        self.blank()
