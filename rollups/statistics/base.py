"""What a statistic is: what it keeps of a value field in a window, how that merges, what a summary shows."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.columns import Columns

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
#: Count, sum, sum of squares, least and greatest finite number: see `statistics.moments`. None: unknown.
MomentsState = tuple[int, int | None, int | None, float | None, float | None]
#: Milliseconds; the bucket's `_id`, as bytes that sort as BSON does; the value with its own bits: -0.0 stays.
#: Of the value None: unknown.
Edge = tuple[int, bytes, float | None]
EdgesState = tuple[Edge, Edge] | tuple[()]  # the first and the last
#: What a summary's value field holds, if its policy keeps it: bit n of `lacks` says that it doesn't.
PARTS = ("sum", "squares", "min", "max", "first", "last", "bins", "nonfinite", "nonnumeric")
S = TypeVar("S", bound=Sized)
_DOUBLE = struct.Struct("<d")


class Column(NamedTuple):
    """A key of a value field in a summary, and a column in SQL. `is_derived`: merging doesn't need it.
    `has_silent_zero`: a summary doesn't write a zero. Of kind `seconds` is a document of a number each, or
    null."""

    key: str
    kind: Literal["whole", "number", "instant", "flag", "seconds"]
    is_derived: bool = False
    has_silent_zero: bool = False


@dataclass(frozen=True)
class Kept:
    """What a policy keeps of a value field. `names`: of the statistics; None: all. `parts`: those of PARTS
    that summaries hold for them."""

    names: frozenset[str] | None = None
    parts: frozenset[str] = frozenset(PARTS)

    def shows(self, key: str) -> bool:
        """Returns whether summaries tell a key: of an instant where they tell what was read then."""
        return self.names is None or key.removesuffix("_at") in self.names


#: Keeps everything.
ALL = Kept()
#: Readings of which a column stays in the processor's cache.
PIECE = 1 << 15


@dataclass
class Stored:
    """A value field of a summary, while it is read."""

    document: Mapping[str, Any]
    reader: VarintReader
    version: int  # of the state
    lacks: int = 0
    edges: EdgesState = ()  # once they are read

    def holds(self, part: str) -> bool:
        """Returns whether it holds one of PARTS."""
        return not self.lacks >> PARTS.index(part) & 1


class Statistic(ABC, Generic[S]):
    """A kind of statistic, with its settings.

    Its state of one value field in one window is a tuple or a dict: small, and quickly pickled. The same
    readings give the same state, to the bit, however they were split and in whatever order they merge. A
    state is never changed in place.
    """

    #: The keys that it adds to a value field, in their order.
    columns: Sequence[Column]
    #: Those of its keys that tables show, in their order; and which statistics come before it there.
    table: Sequence[str] = ()
    table_place: ClassVar[int] = 5
    #: The state without any finite number.
    empty: ClassVar[Any]
    #: Whether it needs all readings of a series in a slice at once, in the order of time; and whether a state
    #: tells of the reading after its own.
    is_ordered: ClassVar[bool] = False
    looks_ahead: ClassVar[bool] = False
    #: Whether it counts texts beside finite numbers.
    has_texts: ClassVar[bool] = False
    kept: Kept = ALL
    #: Those of PARTS that it keeps.
    parts: Sequence[str] = ()

    def states(self, readings: FieldReadings) -> list[S]:
        """Returns the state of each cell."""
        if readings.numbers is None:
            return [self.empty] * readings.cells
        found = self.build(readings, readings.numbers)
        if len(found) == readings.cells:
            return found
        states = [self.empty] * readings.cells
        for cell, state in zip(readings.filled.tolist(), found, strict=True):
            states[cell] = state
        return states

    @abstractmethod
    def build(self, readings: FieldReadings, numbers: Numbers) -> list[S]:
        """Returns the state of each group of finite numbers."""

    @abstractmethod
    def merge(self, one: S, other: S) -> S:
        """Returns the state of both together. Associative and commutative."""

    def close(self, state: S, window: tuple[int, int]) -> S:  # noqa: ARG002
        """Returns what is shown of a state in a window (milliseconds): what reaches over its edges is cut."""
        return state

    @abstractmethod
    def shown(self, state: S, moments: MomentsState) -> Mapping[str, Any]:
        """Returns the value of each key; null where it takes a finite number and there is none. `moments`: of
        the same field and window."""

    def told(self, state: S, moments: MomentsState) -> dict[str, Any]:
        """Returns the value of each key; null also where the policy leaves it out."""
        found = self.shown(state, moments)
        return {key: value if self.kept.shows(key) else None for key, value in found.items()}

    def lacks(self, state: S, count: int) -> Iterator[str]:  # noqa: ARG002
        """Yields those of PARTS that are its own and that the summary of a state does not hold. `count`: how
        many finite numbers it is of."""
        yield from ()

    @abstractmethod
    def pack(self, state: S, writer: VarintWriter, lacks: Set[str]) -> None:
        """Writes what merging needs and the keys don't carry; nothing where there is no finite number.
        `lacks`: what the summary does not hold."""

    @abstractmethod
    def unpack(self, stored: Stored) -> S:
        """Returns the state of a summary's value field. Reads what `pack` wrote. Raises ValueError where the
        summary was made with other settings, and lacks something."""


@dataclass(frozen=True)
class FieldReadings:
    """The readings of one value field, in cells. A cell is a series in a window."""

    columns: Columns
    cells: int
    numbers: Numbers | None  # the finite ones, in groups; None: there is none
    order: Integers | None  # the reading of each number; None: all readings, as they lie
    filled: Integers  # the cell of each group
    nonfinite: Sequence[int]  # of each cell
    nonnumeric: Sequence[int]
    states: StateReadings | None = None  # where texts are states


@dataclass(frozen=True)
class StateReadings:
    """The readings of one value field that tell a state, in cells, as the places of these in `names`."""

    places: FieldReadings
    names: Sequence[str]


@dataclass(frozen=True)
class Numbers:
    """n values, at least one; r runs, none of them empty; groups 0 to g - 1, none of them without a run."""

    values: Doubles  # n
    starts: Integers  # r: where each run starts
    group: Integers  # r: of each run

    @classmethod
    def of(cls, values: Doubles, starts: Integers) -> Numbers:
        """Returns values of which each run is a group."""
        return cls(values, starts, np.arange(len(starts)))

    def cut(self, size: int) -> Numbers:
        """Returns the same groups with runs of so many values at most: what lies near one another has mostly
        much in common."""
        starts = np.union1d(self.starts, np.arange(0, len(self.values), size))
        return Numbers(self.values, starts, self.group[np.searchsorted(self.starts, starts, "right") - 1])

    @cached_property
    def group_starts(self) -> Integers:
        """Returns where each group starts, where its runs lie one behind the other, (g,)."""
        found: Integers = self.starts[np.flatnonzero(np.diff(self.group, prepend=-1))]
        return found

    @cached_property
    def groups(self) -> int:
        """Returns how many groups there are."""
        return int(self.group.max()) + 1

    @cached_property
    def lengths(self) -> Integers:
        """Returns how many values each run has, (r,)."""
        return np.diff(self.starts, append=len(self.values))

    @cached_property
    def low(self) -> Doubles:
        """Returns the least value of each run, (r,)."""
        return np.minimum.reduceat(self.values, self.starts)

    @cached_property
    def high(self) -> Doubles:
        """Returns the greatest value of each run, (r,)."""
        return np.maximum.reduceat(self.values, self.starts)


class VarintWriter:
    """Builds bytes from unsigned varints (7 bits a byte, low first), signed integers and byte strings."""

    def __init__(self) -> None:
        self.data = bytearray()

    def number(self, value: int) -> None:
        """Writes a number that is not negative."""
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def signed(self, value: int) -> None:
        """Writes a number of either sign."""
        self.number(2 * value if value >= 0 else -2 * value - 1)

    def wide(self, value: int) -> None:
        """Writes an integer of any size, most of whose low bits are zero."""
        zeros = (value & -value).bit_length() - 1 if value else 0
        self.number(zeros)
        kept = value >> zeros
        self.string(kept.to_bytes(kept.bit_length() // 8 + 1, "little", signed=True))

    def double(self, value: float) -> None:
        """Writes a double, with its own bits."""
        self.data += _DOUBLE.pack(value)

    def string(self, value: bytes) -> None:
        """Writes bytes, with their length in front."""
        self.number(len(value))
        self.data += value


class VarintReader:
    """Reads back what a Writer wrote, in the same order. Raises ValueError where the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        """Returns the next number, one that is not negative."""
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def signed(self) -> int:
        """Returns the next number of either sign."""
        value = self.number()
        return -((value + 1) >> 1) if value & 1 else value >> 1

    def wide(self) -> int:
        """Returns the next wide number."""
        zeros = self.number()
        return int.from_bytes(self.string(), "little", signed=True) << zeros

    def double(self) -> float:
        """Returns the next double."""
        found: float = _DOUBLE.unpack(self._take(_DOUBLE.size))[0]
        return found

    def string(self) -> bytes:
        """Returns the next bytes."""
        return self._take(self.number())

    def finish(self) -> None:
        """Raises ValueError where bytes are left over."""
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes too many")

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise ValueError("the bytes end too early")
        self._at, begin = end, self._at
        return self._data[begin:end]
