"""Buckets of which each lacks something else, or holds something of another type: a layout of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any
from unittest.mock import patch

from bucketwise.buckets.layouts import groups
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Overflow
from tests.buckets import handmade as bson_of
from tests.buckets.handmade import Field, Value
from tests.buckets.oracle import Bucket

_COMMON: dict[str, Any] = {"name": "it", "collection": "it", "series_fields": ("symbol",)}
_MORE: dict[str, Any] = {"flag_field": "more", "collection": "extra", "ref_field": "of"}
SLOTS = make_policy(
    **_COMMON, value_fields=("p",), nonnumeric_ok=("p",), model="slots", slot="second", time_field="d"
)
_TWO = ("v.x", "v.y")
_NESTED, _BIDS = ("v.*.x", "v.*.y"), ("val", "bid")
TWO_SLOTS = SLOTS.model_copy(update={"value_fields": _TWO, "nonnumeric_ok": _TWO, "slot": "minute"})
MORE_SLOTS = SLOTS.model_copy(update={"overflow": Overflow(**_MORE, samples_field="xs")})
SAMPLES = make_policy(
    **_COMMON, value_fields=("val", "q.bid"), nonnumeric_ok=("val", "q.bid"), model="samples",
    samples_field="in.samples",
    sample_time_field="time", start_field="first", end_field="last", count_field="n",
)  # fmt: skip
MORE_SAMPLES = SAMPLES.model_copy(
    update={
        "sample_time_field": "t.at",
        "count_field": None,
        "overflow": Overflow(**_MORE, samples_field="xs"),
    }
)
NESTED = SLOTS.model_copy(
    update={
        "slot": None,
        "slot_levels": ("minute", "second"),
        "value_fields": _NESTED,
        "nonnumeric_ok": _NESTED,
    }
)
PAIRS = SAMPLES.model_copy(update={"samples_as": "pairs", "value_fields": _BIDS, "nonnumeric_ok": _BIDS})
SEVERAL = SAMPLES.model_copy(
    update={"series_fields": ("symbol", "in.samples.*.sensor"), "sample_time_unit": "iso"}
)
POLICIES = [SLOTS, TWO_SLOTS, MORE_SLOTS, SAMPLES, MORE_SAMPLES, NESTED, PAIRS, SEVERAL]

START = 1_535_530_380


class Writer:
    """Writes buckets as chance has it. What may differ differs rarely or often, by the writer."""

    def __init__(self, chance: Random, policy: Any) -> None:
        self.chance = chance
        self.policy = policy
        self.missing = chance.choice([0.0, 0.1, 0.5])
        self.odd = chance.choice([0.0, 0.05, 0.3])
        self.plain = chance.sample([self._double, self._int, self._long, self._decimal], chance.randint(1, 2))
        self.texts = chance.choice([["ok"], ["", "low", "high"], ["a" * i for i in range(12)]])
        self.times: list[Callable[[int], Value]] = chance.choice(
            [[bson_of.int32], [bson_of.int32, bson_of.int64], [self._date]]
        )
        if getattr(policy, "sample_time_unit", None) == "iso":
            self.times = chance.choice([[self._iso], [self._iso, self._date]])
        self.size = chance.choice([3, 12])
        self.named = chance.random() < 0.5
        self.shuffled = chance.choice([0.0, self.odd / 4, 1.0])  # slots, as $set writes them
        self.bad = 0.0  # how often something breaks the model

    def buckets(self, count: int) -> list[Bucket]:
        return [self._bucket(number) for number in range(count)]

    def _bucket(self, number: int) -> Bucket:
        identity = bson_of.text("a" * number) if self.named else bson_of.int32(number)
        name = ("symbol", bson_of.text(self.chance.choice(["MDB", "XYZ\0", "X", "", "LONGER"])))
        front: list[Field] = [("_id", identity), name]
        if self.policy.model == "slots":
            minute = 60_000 if self.policy.slot == "second" else 900_000
            front.append(("d", bson_of.date(minute * number + self._is_bad())))
            extras = self._extras(identity, [("xs", self._slots())])
            return Bucket(bson_of.document(*front, *self._slotted(), *self._flag(extras)), extras)
        samples = self._samples()
        front += [("first", bson_of.int64(START)), ("last", bson_of.double(START + 100.5))]
        count = len(samples) + self._is_bad()
        front += [("n", bson_of.int32(count))] if self.policy.count_field else []
        extras = self._extras(identity, [("xs", bson_of.array(*self._samples()))])
        held = ("in", bson_of.sub(("samples", bson_of.array(*samples))))
        return Bucket(bson_of.document(*front, held, *self._flag(extras)), extras)

    def _extras(self, of: Value, held: list[Field]) -> tuple[bytes, ...]:
        if self.policy.overflow is None or self.chance.random() < 0.3:
            return ()
        return (bson_of.document(("_id", bson_of.sub(("of", of))), ("of", of), *held),)

    def _flag(self, extras: tuple[bytes, ...]) -> list[Field]:
        return [("more", bson_of.boolean(bool(extras) or self._is_bad()))] if self.policy.overflow else []

    def _slotted(self) -> list[Field]:
        if self.policy.value_fields == ("p",):
            return [("p", self._slots())]
        if self.policy.slot_levels:
            minutes = [minute for minute in range(3) if self.chance.random() >= self.missing]
            return [("v", bson_of.sub(*((str(minute), self._slots()) for minute in minutes)))]
        return [("v", bson_of.sub(("x", self._slots()), ("note", self._text()), ("y", self._slots())))]

    def _slots(self) -> Value:
        slots = [str(8 + slot) for slot in range(self.size) if self.chance.random() >= self.missing]
        if self.chance.random() < self.shuffled:
            self.chance.shuffle(slots)
        if self._is_bad():
            slots.append(self.chance.choice(["60", "08", "x", "8"]))
        return bson_of.sub(*((slot, self._in_slot()) for slot in slots))

    def _in_slot(self) -> Value:
        if not self.policy.slot_levels:
            return self._value()
        if self.chance.random() < self.odd:
            return bson_of.null
        names = [name for name in ("x", "z", "y") if self.chance.random() >= self.missing]
        return bson_of.sub(*((name, self._value()) for name in names))

    def _samples(self) -> list[Value]:
        count = self.size - (self.chance.randint(0, 3) if self.missing else 0)
        return [self._sample(number) for number in range(count)]

    def _sample(self, number: int) -> Value:
        time = self.chance.choice(self.times)(START + number - 1000 * self._is_bad())
        if self._is_bad():
            time = self.chance.choice([bson_of.null, bson_of.text("noon"), bson_of.double(math.nan)])
        if self.policy.samples_as == "pairs":
            count = sum(self.chance.random() >= self.missing for _ in range(2))
            return bson_of.array(time, *(self._value() for _ in range(count)))
        fields: list[Field] = [("t", bson_of.sub(("at", time))) if self.policy.overflow else ("time", time)]
        if self.chance.random() >= self.missing:
            fields.append(("val", self._value()))
        if self.chance.random() >= self.missing:
            inner = [("ask", self._value())] if self.chance.random() < 0.5 else []
            fields.append(("q", bson_of.sub(*inner, ("bid", self._value()))))
        if self.policy.sample_series:
            fields.insert(0, ("sensor", self.chance.choice([self._text(), bson_of.int32(number % 3)])))
        if self.chance.random() < self.odd:
            fields.append(("note", self._text()))
        if self.chance.random() < self.odd:
            fields.append(("tags", bson_of.array(*(self._text() for _ in range(self.chance.randint(0, 3))))))
        return bson_of.sub(*fields)

    def _is_bad(self) -> bool:
        return self.bad > 0 and self.chance.random() < self.bad

    def _value(self) -> Value:
        if self.chance.random() >= self.odd:
            return self.chance.choice(self.plain)()
        odd = [bson_of.null, bson_of.boolean(True), bson_of.bits(0x7FF8DEADBEEF0001), bson_of.double(-0.0)]
        odd += [bson_of.int64(2**53 + 1), bson_of.sub(("a", bson_of.null)), bson_of.date(7), self._text()]
        return self.chance.choice(odd)

    def _double(self) -> Value:
        return bson_of.double(self.chance.randint(0, 4000) / 8)

    def _int(self) -> Value:
        return bson_of.int32(self.chance.randint(-9, 9))

    def _long(self) -> Value:
        return bson_of.int64(self.chance.randint(-9, 9))

    def _decimal(self) -> Value:
        return bson_of.decimal(f"{self.chance.randint(0, 99)}.10")

    def _text(self) -> Value:
        return bson_of.text(self.chance.choice(self.texts))

    def _iso(self, seconds: int) -> Value:
        text = datetime.fromtimestamp(seconds, UTC).isoformat(
            timespec=self.chance.choice(["seconds", "milliseconds"])
        )
        return bson_of.text(text)

    @staticmethod
    def _date(seconds: int) -> Value:
        return bson_of.date(seconds * 1000)


@contextmanager
def eager() -> Iterator[None]:
    """Unions of two documents already, and tried before anything else."""
    with patch.multiple(groups, _MIN_UNION=2, _MIN_ORDERED=2, _MIN_ALIKE=10**9, _MIN_SHARE=0):
        yield
