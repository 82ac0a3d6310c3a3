"""How the demo looks: a heading an act, aligned tables, and whether all that was shown is right."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import StringIO

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from jobs import clock

_WIDEST, _INDENT = 116, 4


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

    def act(self, title: str, about: str) -> None:
        """Prints the heading of the next act, and starts its clock."""
        self._acts, self._made_before, self._act_began = self._acts + 1, self.made, clock.steady()
        self._console.print(Text(f"\n{self._acts:>2}  ", style="cyan").append(title, style="bold"))
        self.line(about, style="dim")

    def verdict(self, claim: str) -> None:
        """Closes an act: prints what was checked in it, or what was wrong."""
        made = self.made - self._made_before
        self._console.print()
        for fault in self.failed[:5]:
            self.line(f"✗ {fault}", style="bold red")
        if self.failed:
            self.line(f"✗ {len(self.failed)} of {made} checks failed", style="bold red")
        else:
            took = f"{made:,} checks, {clock.steady() - self._act_began:.1f} s"
            self.line(f"✓ {claim} ({took})", style="green")

    def line(self, text: str, style: str = "") -> None:
        """Prints an indented line."""
        self._print(Text(text, style=style))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> None:
        """Prints a table. The first `left` columns hold words, the others figures. An empty row separates
        what follows."""
        table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
        for at, head in enumerate(heads):
            table.add_column(head, justify="left" if at < left else "right", no_wrap=True)
        for row in rows:
            cells = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row)
            table.add_row(*map(Text, cells)) if row else table.add_section()
        self._console.print()
        self._print(table)

    def sql(self, text: str) -> None:
        """Prints a query, highlighted."""
        self._console.print()
        self._print(Syntax(text, "sql", theme="ansi_dark", background_color="default", word_wrap=True))

    def _print(self, shown: RenderableType) -> None:
        self._console.print(Padding(shown, (0, 0, 0, _INDENT), expand=False))

    def opening(self, about: str) -> None:
        """Prints the heading of the demo."""
        self._console.print(Text("\nbucketwise demo", style="bold cyan"))
        self.line(about)

    def closing(self, lines: Sequence[str]) -> None:
        """Prints whether all checks held, how long the demo took, and lines below."""
        failed, made = len(self.failed), f"{self.made:,} checks"
        verdict = f"{failed} of {made} failed" if failed else f"Everything adds up: {made}"
        style = "bold red" if failed else "bold green"
        self._console.print(Text(f"\n{verdict}, {clock.steady() - self._began:.0f} seconds.", style=style))
        for line in lines:
            self._console.print(Text(" " * _INDENT + line if line else ""), soft_wrap=True)  # to be copied
        self._console.print()
