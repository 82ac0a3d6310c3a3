from __future__ import annotations

import ast

from tests.mutants import chosen, mutants_of

_SOURCE = """
if TYPE_CHECKING:
    import held
def late(at, end, held, count):
    if at >= end and not held:
        return "é" if count < 3 else None
    return at is not end
"""


def test_each_token_of_a_decision_is_changed_once() -> None:
    source = _SOURCE.encode()
    found = [it.within(source).decode() for it in mutants_of("late.py", source)]
    lines = _SOURCE.splitlines()
    changed = [
        (number, new.strip())
        for text in found
        for number, (old, new) in enumerate(zip(lines, text.splitlines(), strict=True))
        if old != new
    ]
    assert changed == [
        (4, "if False:"),
        (4, "if at > end and not held:"),
        (4, "if at >= end or not held:"),
        (4, "if at >= end and held:"),
        (5, 'return "é" if False else None'),
        (5, 'return "é" if count <= 3 else None'),
        (5, 'return "é" if count < 4 else None'),
        (6, "return at is end"),
    ]
    for text in found:
        ast.parse(text)


def test_code_that_was_moved_has_the_same_mutants() -> None:
    other = "\n\ndef early(at):\n    return at < 3 or not at\n"
    before = {"late.py": _SOURCE.encode(), "early.py": other.encode()}
    after = {"all.py": ("import os\n" + other + _SOURCE).encode()}
    told = [
        [it.place(files[it.path]) for it in chosen(files, 6, seed)]
        for files in (before, after)
        for seed in (1, 2)
    ]
    assert told[:2] == told[2:]
    assert told[0] != told[1]
