"""Tables that fit the width of a terminal, and never split a value over lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from bucketwise.jobs.output.text import printable

#: What stands in cells without a value.
NONE = "–"
#: Columns of sentences, which may be broken between words.
_PROSE = frozenset({"error", "evidence", "message", "reason", "what", "cost", "remedy", "why"})
#: Columns that stay to the end as they are; the first one of a table stays as well.
_KEPT = frozenset({"policy", "outcome"})
_INSTANT = re.compile(r"\d{4,}-\d\d-\d\dT(\d\d:\d\d)(:\d\d(?:\.\d+)?)Z")
#: Characters of an instant until its day, its minute and its second.
_DAY, _MINUTE, _SECOND = 10, 16, 19
_CUT = re.compile(r"\d{4,}-\d\d-\d\d( \d\d:\d\d(:\d\d)?)?")
_ONE = r"[-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?(?: (?:[kMGT]?B|bytes))?"
#: A number, two of them, or none.
_NUMBER = re.compile(rf"{_ONE}(?: (?:→|of) {_ONE})?|–|\?|NULL|")
#: Cut texts, and lines of sentences, keep so many characters where they have as many.
_LEAST = 16


@dataclass(frozen=True)
class Column:
    """A column of a table: its head, its cells, and what may be done to them. `width`: what its cells have
    room for; 0: each as much as it needs."""

    head: str
    cells: tuple[Text, ...] = ()
    width: int = 0
    is_minor: bool = False

    @property
    def texts(self) -> list[str]:
        """Returns the cells without their styles."""
        return [it.plain for it in self.cells]

    @property
    def is_empty(self) -> bool:
        """Returns whether no cell has a value."""
        return all(it in ("", NONE) for it in self.texts)

    @property
    def is_number(self) -> bool:
        """Returns whether its cells are numbers, which stand at the right."""
        return all(map(_NUMBER.fullmatch, self.texts))

    @property
    def is_prose(self) -> bool:
        """Returns whether its cells are sentences."""
        return self.head in _PROSE

    @property
    def needed(self) -> int:
        """Returns the width that shows it as it is to be shown."""
        return self.width or max(map(_cells, [self.head, *self.texts]))

    @property
    def least(self) -> int:
        """Returns the width below which a value would be split, or too little of it left."""
        if self.is_prose:
            words = [word for text in self.texts for word in text.split()]
            return min(self.needed, max(_LEAST, *map(_cells, [self.head, *words])))
        if self.head in _KEPT or self.is_number or any(map(_is_instant, self.texts)):
            return self.needed
        return min(self.needed, max(_LEAST, _cells(self.head)))

    @property
    def coarser(self) -> Column:
        """Returns the column with instants as fine as all of them need, to the second at most."""
        found = [_INSTANT.fullmatch(it) for it in self.texts if it not in ("", NONE)]
        if not found or not all(found):
            return self
        fine = {(it[1], float(it[2][1:])) for it in found if it}
        if any(seconds for _, seconds in fine):
            return self._until(_SECOND)
        return self._until(_DAY if all(clock == "00:00" for clock, _ in fine) else _MINUTE)

    @property
    def coarsest(self) -> Column:
        """Returns the column with instants to the minute at most."""
        is_fine = any(len(it) == _SECOND and _is_instant(it) for it in self.texts)
        return self._until(_MINUTE) if is_fine else self

    def _until(self, end: int) -> Column:
        """Returns the column with so many characters of each instant."""
        cells = (
            Text(it.plain[:end].replace("T", " "), it.style) if _is_instant(it.plain) else it
            for it in self.cells
        )
        return replace(self, cells=tuple(cells))

    @property
    def shown(self) -> list[Text]:
        """Returns its cells, cut in the middle where they have too little room."""
        if self.is_prose or not self.width:
            return list(self.cells)
        return [Text(cut(it.plain, self.width), it.style) for it in self.cells]


@dataclass(frozen=True)
class Layout:
    """How a table is shown: these columns, without those `left_out`; or each row as a list."""

    columns: Sequence[Column]
    left_out: Sequence[str] = ()
    is_list: bool = False


def layout(columns: Sequence[Column], width: int, *, keeps_all: bool = False) -> Layout:
    """Returns how a table is shown in so many characters. Columns without a value are left out. Where there
    is too little room, instants are made coarser, then sentences are broken and texts cut, then the last
    columns go, and then each row becomes a list. `keeps_all`: no column goes."""
    kept = range(len(columns) if keeps_all else 1)
    found = [it for at, it in enumerate(columns) if at in kept or it.head in _KEPT or not it.is_empty]
    if _width(found) <= width:
        return Layout(found)
    found, left_out = [it.coarser for it in found], list[str]()
    if not _fits(found, width):
        found = [it.coarsest for it in found]
    while not _fits(found, width):
        least = [it for it in found[len(kept) :] if it.head not in _KEPT and not it.is_prose]
        if not least:
            return Layout([it for it in columns if keeps_all or not it.is_empty], is_list=True)
        least = [it for it in least if it.is_minor] or least
        found.remove(least[-1])
        left_out.insert(0, least[-1].head)
    return Layout(_narrowed(found, width), left_out)


def cut(text: str, width: int) -> str:
    """Returns a text of at most so many characters: its ends, and … for what is between them."""
    if _cells(text) <= width:
        return text
    left = _begin(text, width // 2)
    right = _begin(text[::-1], width - 1 - _cells(left))[::-1]
    return f"{left}…{right}"


def _begin(text: str, width: int) -> str:
    """Returns the longest beginning of a text that takes at most so many places of a terminal."""
    end = min(len(text), width)
    while _cells(text[:end]) > width:
        end -= 1
    return text[:end]


class Attention(Text):
    """A line on what needs attention, which is printed with --quiet as well."""

    needs_attention = True

    def __init__(self, text: str, style: str = "yellow") -> None:
        super().__init__(printable(text), style=style)


@dataclass
class Grid:
    """A table for people. Where there is too little room, columns go from the last one on, and those in
    `minor` before all others. Without rows it shows nothing."""

    title: str
    heads: Sequence[str]
    minor: Collection[str] = ()
    keeps_all: bool = False  # no column may go, also without rows
    needs_attention: bool = False  # printed with --quiet as well
    rows: list[list[Text]] = field(default_factory=list)

    def add_row(self, *cells: str | Text, style: str | None = None) -> None:
        """Adds a row."""
        self.rows.append([it if isinstance(it, Text) else Text(it, style or "") for it in cells])

    @property
    def columns(self) -> list[Column]:
        """Returns its columns."""
        cells = list(zip(*self.rows, strict=True)) or [()] * len(self.heads)
        return [Column(head, cells[at], is_minor=head in self.minor) for at, head in enumerate(self.heads)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if not self.rows and not self.keeps_all:
            return
        found = layout(self.columns, options.max_width, keeps_all=self.keeps_all)
        if found.is_list:
            yield _list(self.title, found.columns)
            return
        table = Table(title=self.title or None, title_justify="left", box=box.SIMPLE_HEAD)
        for it in found.columns:
            table.add_column(
                it.head,
                justify="right" if it.is_number else "left",
                no_wrap=not it.is_prose,
                width=it.width or None,
                overflow="fold",
            )
        for row in zip(*(it.shown for it in found.columns), strict=True):
            table.add_row(*row)
        yield table
        if found.left_out:
            yield Text(f"Not shown in this width: {', '.join(found.left_out)}. --json has all.\n", "dim")


def _list(title: str, columns: Sequence[Column]) -> Text:
    """Returns the rows one below the other, each as a list of its values."""
    heads = max(_cells(it.head) for it in columns)
    lines = [Text(title, "italic")] if title else []
    for row in zip(*(it.cells for it in columns), strict=True):
        lines += [Text()] if lines else []
        pairs = zip(columns, row, strict=True)
        lines += [Text(f"{it.head:<{heads}}  ").append_text(value) for it, value in pairs if value.plain]
    return Text("\n", no_wrap=True, overflow="ignore", end="\n\n").join(lines)


def _narrowed(columns: Sequence[Column], width: int) -> list[Column]:
    """Returns columns that fill the width: each has its least, and the widest one of what is more."""
    wanted = [it.needed for it in columns]
    given = [it.least for it in columns]
    spare = width - _width([replace(it, width=least) for it, least in zip(columns, given, strict=True)])
    while spare > 0 and given != wanted:
        # The ones with the least room first.
        open_ones = [at for at, it in enumerate(given) if it < wanted[at]]
        at = min(open_ones, key=given.__getitem__)
        given[at] += 1
        spare -= 1
    return [replace(it, width=room) for it, room in zip(columns, given, strict=True)]


def _fits(columns: Sequence[Column], width: int) -> bool:
    """Returns whether columns have room where each has its least."""
    return _width([replace(it, width=it.least) for it in columns]) <= width


def _width(columns: Sequence[Column]) -> int:
    """Returns the width of a table: each column has a space at its sides and an edge."""
    return sum(it.needed + 3 for it in columns) + 1


def _cells(text: str) -> int:
    return Text(text).cell_len


def _is_instant(text: str) -> bool:
    return bool(_INSTANT.fullmatch(text)) or bool(_CUT.fullmatch(text))
