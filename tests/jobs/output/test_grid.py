"""Tables in the width there is: what does not fit is cut, left out and named, or listed; nothing is split."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from bucketwise.jobs.output.grid import Grid, cut

HEADS = ("policy", "place", "at", "count", "reason", "outcome")
WORDS = st.text("abcxyz_é世", min_size=1, max_size=30)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["ticks", "sensors-of-the-roof"]),
        WORDS.map(lambda it: f"market.{it}"),
        st.datetimes().map(lambda it: f"{it:%Y-%m-%d}T00:00:00Z"),
        st.integers(0, 10**12).map(lambda it: f"{it:,}"),
        st.lists(WORDS, max_size=12).map(" ".join),
        st.sampled_from(["done", "something was left"]),
    ),
    min_size=1,
    max_size=4,
)


def drawn(grid: Grid, width: int) -> str:
    console = Console(width=width, color_system=None, markup=False, highlight=False)
    with console.capture() as capture:
        console.print(grid, crop=False)
    return capture.get()


def filled(rows: Iterable[Iterable[str]], heads: Iterable[str] = HEADS) -> Grid:
    grid = Grid("Runs", tuple(heads))
    for row in rows:
        grid.add_row(*row)
    return grid


def is_whole(token: str, cells: list[str]) -> bool:
    """Whether it is a value, a word of one, a date, or its ends with … between."""
    if "…" in token:
        begin, end = token.split("…")
        return any(it.startswith(begin) and it.endswith(end) for it in cells)
    return any(token in it.split() or it.startswith(f"{token}T00:00:00") for it in cells)


@given(ROWS, st.integers(20, 160))
def test_no_value_is_split_and_what_is_not_shown_is_named(rows: list[tuple[str, ...]], width: int) -> None:
    text = drawn(filled(rows), width)
    body, _, rest = text.partition("Not shown")
    left_out = " ".join(rest.split()).removeprefix("in this width: ").partition(". --json")[0].split(", ")
    cells = [cell for row in rows for cell in row]
    tokens = [it for it in body.split() if not set(it) <= set("─ ")]
    assert tokens[0] == "Runs"
    assert all(it in HEADS or is_whole(it, cells) for it in tokens[1:])
    is_list = "─" not in body
    if not is_list:
        assert all(Text(it).cell_len <= width for it in text.splitlines())
    for at, head in enumerate(HEADS):
        values = [row[at] for row in rows]
        is_shown = re.search(rf"(^|\s){head}(\s|$)", body) is not None
        assert is_shown or head in left_out or not any(values)
        if is_shown and head in ("policy", "count", "outcome"):
            assert all(re.search(rf"(^|\s){re.escape(it)}(\s|$)", body, re.MULTILINE) for it in values)
    assert not {"policy", "outcome"} & {*left_out}


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (
            87,
            """
  policy    at                     documents   commit                       outcome
 ─────────────────────────────────────────────────────────────────────────────────────
  ticks     2018-09-01T10:30:00Z      47,861   2018-06-30_f000003_fec2e17   done
  sensors   –                              3   2018-07-01_f000003_b47be43   attention
""",
        ),
        (
            75,
            """
  policy    at                 documents   commit               outcome
 ─────────────────────────────────────────────────────────────────────────
  ticks     2018-09-01 10:30      47,861   2018-06-3…_fec2e17   done
  sensors   –                          3   2018-07-0…_b47be43   attention
""",
        ),
        (
            60,
            """
  policy    at                 documents   outcome
 ────────────────────────────────────────────────────
  ticks     2018-09-01 10:30      47,861   done
  sensors   –                          3   attention
Not shown in this width: commit. --json has all.
""",
        ),
        (
            20,
            """
policy     ticks
at         2018-09-01T10:30:00Z
documents  47,861
commit     2018-06-30_f000003_fec2e17
outcome    done
policy     sensors
at         –
documents  3
commit     2018-07-01_f000003_b47be43
outcome    attention
""",
        ),
    ],
)
def test_what_goes_first(width: int, expected: str) -> None:
    rows = [
        ("ticks", "2018-09-01T10:30:00Z", "47,861", "2018-06-30_f000003_fec2e17", "–", "done"),
        ("sensors", "–", "3", "2018-07-01_f000003_b47be43", "–", "attention"),
    ]
    text = drawn(filled(rows, ("policy", "at", "documents", "commit", "left", "outcome")), width)
    lines = [it.rstrip() for it in text.splitlines()]
    assert lines[0] == "Runs"
    assert [it for it in lines[1:] if it] == [it for it in expected.splitlines() if it]


def test_minor_columns_go_before_others() -> None:
    grid = Grid("", ("policy", "by", "documents", "outcome"), minor=("by",))
    grid.add_row("ticks", "root@host", "47,861", "done")
    assert "by" not in drawn(grid, 40).split("Not shown")[0]
    assert "47,861" in drawn(grid, 40)


def test_columns_that_must_stay_make_a_list() -> None:
    grid = Grid("", ("a", "b"), keeps_all=True)
    grid.add_row("1" * 30, "–")
    assert drawn(grid, 20).split() == ["a", "1" * 30, "b", "–"]


def test_without_rows_there_is_no_table() -> None:
    assert drawn(Grid("Runs", HEADS), 80).strip() == ""


@given(st.text(max_size=40), st.integers(3, 60))
def test_a_text_that_is_cut_keeps_its_ends(text: str, width: int) -> None:
    found = cut(text, width)
    assert Text(found).cell_len <= width
    begin, mark, end = found.partition("…") if found != text else (text, "", "")
    assert text.startswith(begin) and text.endswith(end) and bool(mark) == (found != text)
