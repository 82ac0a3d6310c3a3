"""Draws docs/demo.svg from what the demo prints: `bucketwise demo | python docs/draw_demo.py`.

Three of its acts are drawn, line by line as they are, and its last line without the seconds that it took.
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

PICTURE = Path(__file__).with_name("demo.svg")
_ACTS = ("Load", "bucketwise run", "bucketwise restore")
_CHARACTER, _LINE, _MARGIN = 7.8, 19, 20
_STYLE = {"heading": "#e6edf3;font-weight:bold", "verdict": "#3fb950", "rule": "#484f58", "plain": "#adbac7"}


def drawn(output: str) -> list[str]:
    """Returns the lines of the acts, from heading to verdict, and the last line of the demo."""
    found: list[str] = []
    for title in _ACTS:
        act = re.search(rf"^ \d  {title}\n.*?^    ✓ [^\n]*$", output, re.MULTILINE | re.DOTALL)
        if act is None:
            raise ValueError(f"the demo's output has no act {title!r} that ends well")
        lines = [line.rstrip() for line in act[0].splitlines()]
        if title == "bucketwise restore":  # the table is enough
            lines = [*lines[: lines.index("", 3)], "", lines[-1]]
        found += [*lines, ""]
    end = re.search(r"^(Everything adds up: [\d,]+ checks), ", output, re.MULTILINE)
    if end is None:
        raise ValueError("the demo's output does not end with `Everything adds up`")
    return [re.sub(r", [\d.]+ s\)$", ")", line) for line in found] + [f"{end[1]}."]


def svg(lines: list[str]) -> str:
    """Returns the lines as an SVG picture."""
    width = max(map(len, lines)) * _CHARACTER + 2 * _MARGIN
    height = len(lines) * _LINE + 2 * _MARGIN
    texts = [_text(number, line) for number, line in enumerate(lines) if line]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
            "<title>What the demo prints: load, run, restore; every number is checked</title>",
            '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>',
            '<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="13"'
            ' xml:space="preserve">',
            *texts,
            "</g>",
            "</svg>\n",
        ]
    )


def _text(number: int, line: str) -> str:
    """Each piece between wide gaps has its own place, so that columns align in any font."""
    style, y = _STYLE[_kind(line)], _MARGIN + 13 + number * _LINE
    pieces = [
        f'<tspan x="{_MARGIN + piece.start() * _CHARACTER:.1f}"'
        f' textLength="{len(piece[0]) * _CHARACTER:.1f}">{escape(piece[0])}</tspan>'
        for piece in re.finditer(r"\S+(?: \S+)*", line)
    ]
    return f'<text y="{y}" style="fill:{style}">{"".join(pieces)}</text>'


def _kind(line: str) -> str:
    if re.match(r" \d  ", line) or line.startswith("Everything"):
        return "heading"
    if "✓" in line:
        return "verdict"
    return "rule" if "───" in line else "plain"


if __name__ == "__main__":
    PICTURE.write_text(svg(drawn(sys.stdin.read())), encoding="utf-8")
