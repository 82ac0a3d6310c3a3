"""The plan of a union: what may stand in each place, as a template with flags and the steps through it."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from bucketwise.buckets.bson.types import ARRAY, DOCUMENT
from bucketwise.buckets.layouts.layout import ALWAYS, Flags, Path, Variants
from bucketwise.buckets.layouts.steps import Choice, Close, Each, MatchStep, Open, Skip, Test, Text, words_of

_DOCUMENTS = (DOCUMENT, ARRAY)
#: With more flags than these, the length of a document does not tell what is in it.
_MAX_FLAGS = 6


class Alternative(NamedTuple):
    """A type of value that an element may have."""

    kind: int
    value: bytes  # zeros in its holes; of a text of any length the longest
    fields: tuple[Field, ...]  # of a document
    is_text: bool = False  # of any length
    alike: bool = False  # are its fields the same but for their names?

    @property
    def varies(self) -> bool:
        """Returns whether documents may differ in which bytes they have here, not only in values."""
        return self.is_text or any(it.is_choice or it.alternatives[0].varies for it in self.fields)

    @property
    def is_each(self) -> bool:
        """Returns whether it is an array of documents of one kind."""
        if self.kind != ARRAY or not self.alike or not self.fields:
            return False
        names = [it.name for it in self.fields]
        kinds = [it.kind for it in self.fields[0].alternatives]
        return kinds in ([DOCUMENT], [ARRAY]) and names == [b"%d" % number for number in range(len(names))]


class Field(NamedTuple):
    """A field of a union: the types of value it may have, and whether it may be absent."""

    name: bytes
    alternatives: tuple[Alternative, ...]
    optional: bool

    @property
    def is_choice(self) -> bool:
        """Returns whether documents may differ in this field's presence or type, so that it takes flags."""
        return self.optional or len(self.alternatives) > 1


def _text_of(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


class UnionPlan:
    """A union written down: the template, the flags, and the steps through a document."""

    def __init__(self, whole: Alternative) -> None:
        self.template = bytearray()
        self.steps: list[MatchStep] = []
        self._flag: list[int] = []  # of each byte
        self._marks: list[tuple[int, bool]] = [(ALWAYS, whole.varies)]
        self._count = 0
        self._optional: set[Path] = set()
        self._several: set[Path] = set()
        self._document(whole, ALWAYS, ())

    @property
    def variants(self) -> Variants:
        """Returns which flag each byte of the template depends on."""
        return Variants(self._marks, np.array(self._flag, dtype=np.int32), self._count, self._optional)

    def _document(self, alternative: Alternative, flag: int, path: Path) -> None:
        start = len(self.template)
        self._put(bytes(4), flag)
        if alternative.varies:
            self.steps.append(Open())
        if alternative.is_each:
            self._each(alternative.fields, flag, path)
        else:
            for field in alternative.fields:
                self._field(field, flag, path)
        self._put(b"\0", flag)
        if alternative.varies:
            self.steps.append(Close(flag))
        self.template[start : start + 4] = (len(self.template) - start).to_bytes(4, "little")

    def _field(self, field: Field, parent: int, above: Path) -> None:
        path = (*above, _text_of(field.name))
        flags = []
        if field.optional or above in self._several:
            self._optional.add(path)
        if len(field.alternatives) > 1:
            self._several.add(path)
        for alternative in field.alternatives:
            header = bytes([alternative.kind]) + field.name + b"\0"
            flag = parent
            if field.is_choice:
                flag, self._count = self._count, self._count + 1
                flags.append(flag)
                self.steps.append(Test(flag, parent, words_of(header), 0))
            self._marks.append((flag, alternative.varies))
            self._put(header, flag)
            if alternative.kind in _DOCUMENTS:
                self._document(alternative, flag, path)
            elif alternative.is_text:
                self._text(alternative, flag)
            else:
                self._put(alternative.value, flag)
        if len(flags) > 1:
            self.steps.append(Choice(parent, flags, not field.optional))

    def _each(self, fields: tuple[Field, ...], parent: int, above: Path) -> None:
        """Adds an array of documents of one kind: the steps of one are written once, the flags once for
        each."""
        (alternative,), optional = fields[0].alternatives, fields[0].optional
        kind = bytes([alternative.kind])
        inside, headers = UnionPlan(alternative), [kind + field.name + b"\0" for field in fields]
        below = inside.steps, inside._count, inside.by_length()
        self.steps.append(Each(parent, self._count, optional, headers, *below))
        for field, header in zip(fields, headers, strict=True):
            path = (*above, _text_of(field.name))
            if optional or above in self._several:
                self._optional.add(path)
            self._optional.update((*path, *rest) for rest in inside._optional)
            flag = self._count if optional else parent
            self._count += optional
            base = self._count

            def outer_flag(number: int, flag: int = flag, base: int = base) -> int:
                return flag if number == ALWAYS else base + number

            self._marks += [(outer_flag(number), varies) for number, varies in inside._marks]
            self.template += header + inside.template
            self._flag += [flag] * len(header) + [outer_flag(number) for number in inside._flag]
            self._count += inside._count

    def by_length(self) -> Flags | None:
        """Returns the flags of a document by its length, as `Each` uses them. None where two would be as
        long, or where too many might be."""
        parents = {step.flag: step.parent for step in self.steps if isinstance(step, Test)}
        choices = [step for step in self.steps if isinstance(step, Choice)]
        if len(parents) < self._count or self._count > _MAX_FLAGS:
            return None
        widths = np.bincount(np.array(self._flag) - ALWAYS, minlength=self._count + 1)
        table = np.zeros((1 + self._count, len(self.template) + 2), dtype=np.bool_)
        for flags in itertools.product((False, True), repeat=self._count):
            is_set = (*flags, True)  # ALWAYS
            counts = [
                (sum(flags[flag] for flag in it.flags), it.certain and is_set[it.parent]) for it in choices
            ]
            if any(count > 1 or count < certain for count, certain in counts):
                continue
            if all(is_set[parents[flag]] for flag, is_wanted in enumerate(flags) if is_wanted):
                size = int(widths[1:] @ flags + widths[0])
                if table[0, size]:
                    return None
                table[:, size] = (True, *flags)
        return table

    def _text(self, alternative: Alternative, flag: int) -> None:
        longest = len(alternative.value) - 5
        self.steps.append(Text(flag, self._count, longest))
        self.template += alternative.value
        self._flag += [flag] * 4 + list(range(self._count, self._count + longest)) + [flag]
        self._count += longest

    def _put(self, data: bytes, flag: int) -> None:
        self.template += data
        self._flag += [flag] * len(data)
        last = self.steps[-1] if self.steps else None
        if isinstance(last, Test | Skip) and last.flag == flag:
            self.steps[-1] = last._replace(width=last.width + len(data))
        else:
            self.steps.append(Skip(flag, len(data)))
