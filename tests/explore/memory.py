"""What a program remembers: where it stands, and the values that it may still read.

Two programs that remember the same do the same from here on, whatever they were told before. That is why a
state that is explored holds this, and not the replies that led to it.
"""

from __future__ import annotations

import dis
import gc
from collections.abc import Callable, Generator, Hashable, Iterator
from dataclasses import is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache, partial
from itertools import count
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GeneratorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
    SimpleNamespace,
)
from typing import Any, NamedTuple

from bucketwise.archivers.markers import BindingRecord, Deployment, Lineage, OwnerFile, Step
from tests.explore.copied import Change
from tests.explore.world import Doc, Frozen, Manifest, Pin, Receipt, Summary


def remembered(value: Any) -> Hashable:
    """Returns what is equal for values with which a program does the same: itself, of a value that never
    changes; else what it is made of. Raises TypeError for what it has no rule for."""
    rule = _rule(type(value))  # type: ignore[arg-type]  # types have a hash
    return value if rule is None else (type(value).__name__, rule(value))


@cache
def _rule(kind: type) -> Callable[[Any], Hashable] | None:
    """Returns how values of a type are told apart; None where they tell that themselves."""
    if issubclass(kind, _VALUES):
        return None
    found = next((it for base, it in _RULES.items() if issubclass(kind, base)), None)
    if found is not None:
        return found
    if is_dataclass(kind) or kind is SimpleNamespace or kind.__module__.startswith("tests.explore."):
        return lambda it: _mapping(vars(it))
    if hasattr(kind, "__next__"):  # what it has yet to give
        return lambda it: remembered(it.__reduce__()[1:])
    raise TypeError(f"nothing tells what a {kind.__qualname__} remembers")


#: What never changes, and has a hash of what it is made of.
_VALUES = (
    *(int, str, bytes, float, NoneType, datetime, timedelta, frozenset, range, Enum),
    *(
        Change,
        Doc,
        Frozen,
        Manifest,
        Pin,
        Receipt,
        Summary,
        Step,
        Deployment,
        BindingRecord,
        OwnerFile,
        Lineage,
    ),
)


def _mapping(value: dict[Any, Any]) -> Hashable:
    """A mapping in the order of its keys, which is that in which a program meets them."""
    return tuple((remembered(key), remembered(it)) for key, it in value.items())


def _generator(steps: Generator[Any, Any, Any]) -> Hashable:
    """Where it stands, and what it may still read of its variables, of the iterators of its loops, and of the
    programs that work for it."""
    assert isinstance(steps, GeneratorType)
    frame, code = steps.gi_frame, steps.gi_code
    if frame is None:
        return None
    held = gc.get_referents(steps)  # its variables in their order, and then what lies on its stack
    held = held[max(i for i, it in enumerate(held) if it is code) + 1 :]
    shape, bound = _shape(code), frame.f_locals
    live = shape.after[frame.f_lasti]
    there = [it for it in code.co_varnames if it in bound or it in code.co_cellvars]
    names = tuple(it for it in there if it in live or it in code.co_cellvars)
    held = [held[i] for i, it in enumerate(there) if it in names] + held[len(there) :]
    return shape.name, frame.f_lasti, names, tuple(map(remembered, held))


def _function(value: FunctionType) -> Hashable:
    given = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    return _shape(value.__code__).name, tuple(map(remembered, (*given, *(value.__closure__ or ()))))


def _cell(value: CellType) -> Hashable:
    try:
        return remembered(value.cell_contents)
    except ValueError:
        return None


_RULES: dict[type, Callable[[Any], Hashable]] = {
    dict: _mapping,
    tuple: lambda it: tuple(map(remembered, it)),
    list: lambda it: tuple(map(remembered, it)),
    set: frozenset,
    GeneratorType: _generator,
    FunctionType: _function,
    MethodType: lambda it: (remembered(it.__func__), remembered(it.__self__)),
    BuiltinFunctionType: lambda it: (
        it.__name__,
        isinstance(it.__self__, ModuleType) or remembered(it.__self__),
    ),
    MethodDescriptorType: lambda it: it.__qualname__,
    partial: lambda it: tuple(map(remembered, (it.func, it.args, it.keywords))),
    CellType: _cell,
    count: repr,
    type: lambda it: it.__qualname__,
    Exception: lambda it: tuple(map(remembered, it.args)),
}


class _Shape(NamedTuple):
    """A code object: its name, and after each of its instructions the variables that may still be read."""

    name: str
    after: dict[int, frozenset[str]]


@cache
def _shape(code: CodeType) -> _Shape:
    found = list(dis.get_instructions(code))
    place = {it.offset: i for i, it in enumerate(found)}
    further = [list(_further(found, place, i)) for i in range(len(found))]
    for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]
        for i, it in enumerate(found):
            if entry.start <= it.offset < entry.end:
                further[i].append(place[entry.target])
    before: list[frozenset[str]] = [frozenset()] * len(found)
    after: list[frozenset[str]] = [frozenset()] * len(found)
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(found))):
            after[i] = frozenset[str]().union(*(before[j] for j in further[i]))
            now = _before(found[i], after[i])
            changed, before[i] = changed or now != before[i], now
    name = f"{code.co_filename}:{code.co_firstlineno}:{code.co_name}"
    return _Shape(name, {it.offset: after[i] for i, it in enumerate(found)})


def _further(found: list[dis.Instruction], place: dict[int, int], i: int) -> Iterator[int]:
    """Yields the places of the instructions that may follow one."""
    it = found[i]
    if it.opcode in dis.hasjrel or it.opcode in dis.hasjabs:
        yield place[it.argval]
    if i + 1 < len(found) and it.opname not in _GOES_AWAY:
        yield i + 1


_GOES_AWAY = frozenset(
    {
        *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
        *("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"),
    }
)


def _before(it: dis.Instruction, after: frozenset[str]) -> frozenset[str]:
    """Returns what may be read from an instruction on. One that does two things at once is taken to read all
    that it names."""
    if it.opname in ("STORE_FAST", "DELETE_FAST"):
        return after - {it.argval}
    if "_FAST" in it.opname:
        return after.union(it.argval if isinstance(it.argval, tuple) else (it.argval,))
    return after
