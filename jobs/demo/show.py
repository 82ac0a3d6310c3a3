"""How the demo looks: a heading an act, aligned tables, one line where one is enough."""

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
from jobs.demo.checks import Checks
from jobs.demo.sizes import Size

_WIDEST = 108
_BARS = "▁▂▃▄▅▆▇█"
_INDENT = 4


def number(count: float) -> str:
    return f"{count:,}"


def size(count: float) -> str:
    """Bytes, in the unit that suits them."""
    return " ".join(_scaled(count, count))


def change(before: Size, after: Size) -> list[str]:
    """Of each figure: what it was, and what it is, in one unit."""
    figures = [f"{number(before.documents)} → {number(after.documents)}"]
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
    low, high = min(values), max(values)
    scale = (len(_BARS) - 1) / (high - low or 1)
    return "".join(_BARS[round((value - low) * scale)] for value in values)


class Show:
    """Writes to stdout: in colour on a terminal, in plain lines elsewhere, and not at all for --json."""

    def __init__(self, checks: Checks, *, silent: bool) -> None:
        self._console = Console(
            file=StringIO() if silent else sys.stdout, highlight=False, markup=False, emoji=False
        )
        self._console.width = min(self._console.width, _WIDEST) if self._console.is_terminal else _WIDEST
        self._checks = checks
        self._checked = self._failed = self._acts = 0
        self._began = self._act_began = clock.steady()

    def opening(self, lines: Sequence[str]) -> None:
        self._console.print(Text("\nbucketwise demo", style="bold cyan"))
        for line in lines:
            self.line(line)

    def act(self, title: str, about: str) -> None:
        self._acts += 1
        self._act_began = clock.steady()
        self._console.print(Text(f"\n{self._acts:>2}  ", style="cyan").append(title, style="bold"))
        self.line(about, style="dim")

    def line(self, text: str, style: str = "") -> None:
        self._console.print(Padding(Text(text, style=style), (0, 0, 0, _INDENT), expand=False))

    def blank(self) -> None:
        self._console.print()

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
        """The first `left` columns hold words, the others figures. A row of dashes sets off what follows."""
        table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
        for at, head in enumerate(heads):
            table.add_column(head, justify="left" if at < left else "right", no_wrap=True)
        for row in rows:
            if not any(row):
                table.add_section()
            else:
                table.add_row(*map(Text, row))
        self._console.print()
        self._console.print(Padding(table, (0, 0, 0, _INDENT), expand=False))

    def sql(self, text: str) -> None:
        self._console.print()
        shown = Syntax(text, "sql", theme="ansi_dark", background_color="default", word_wrap=True)
        self._console.print(Padding(shown, (0, 0, 0, _INDENT), expand=False))

    def verdict(self, claim: str) -> None:
        """Close an act: what was checked in it, or what was wrong."""
        made, failed = self._checks.made - self._checked, self._checks.failed[self._failed :]
        self._checked, self._failed = self._checks.made, len(self._checks.failed)
        self._console.print()
        if failed:
            for fault in failed[:5]:
                self.line(f"✗ {fault}", style="bold red")
            self.line(f"✗ {len(failed)} of {made} checks failed", style="bold red")
            return
        seconds = clock.steady() - self._act_began
        counted = "1 check" if made == 1 else f"{number(made)} checks"
        self.line(f"✓ {claim} ({counted}, {seconds:.1f} s)", style="green")

    def closing(self, lines: Sequence[str]) -> None:
        seconds = clock.steady() - self._began
        failed = len(self._checks.failed)
        made = f"{number(self._checks.made)} checks"
        verdict = f"{failed} of {made} failed" if failed else f"Everything adds up: {made}"
        style = "bold red" if failed else "bold green"
        self._console.print(Text(f"\n{verdict}, {seconds:.0f} seconds.", style=style))
        for line in lines:
            self._console.print(Text(" " * _INDENT + line if line else ""), soft_wrap=True)  # to be copied
        self.blank()
