"""Values written as text, words and booleans: what the policy says they count as, and nothing else."""

from __future__ import annotations

import math
import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from bson import Decimal128, Int64, encode
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.columns import NO_STATE, StateColumn, ValueKind
from bucketwise.buckets.decoding.decode import decode
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy, ValueField

_START = datetime(2024, 2, 29, tzinfo=UTC)
_COMMA: dict[str, Any] = {"text": True, "decimal": ",", "unit": "°C"}


def _policy(**field: Any) -> Policy:
    return make_policy(
        name="it", collection="it", model="reading", time_field="at", series_fields=("s",),
        value_fields=("v",), values={"v": ValueField(**field)},
    )  # fmt: skip


def _read(policy: Policy, values: list[Any]) -> list[tuple[ValueKind, float]]:
    documents = [
        encode({"_id": number, "s": 1, "at": _START + timedelta(seconds=number), "v": value})
        for number, value in enumerate(values)
    ]
    decoded = decode(Batch.of(Docs.of(documents)), policy)
    assert not decoded.quarantined
    (name,) = policy.value_names
    columns = decoded.columns
    return [
        (ValueKind(kind), value)
        for kind, value in zip(columns.kinds[name].tolist(), columns.values[name].tolist(), strict=True)
    ]


@pytest.mark.parametrize(
    ("field", "value", "number"),
    [
        (_COMMA, "21,5 °C", 21.5),
        (_COMMA, "-0,25°C", -0.25),
        (_COMMA, "  7 °C ", 7.0),
        (_COMMA, "7,", 7.0),
        (_COMMA, "1,5e3", 1500.0),
        (_COMMA, "21,5", 21.5),
        ({"text": True}, "12.5", 12.5),
        ({"text": True, "unit": "kWh"}, "3 kWh", 3.0),
        ({"map": {"ON": 1, "OFF": 0}}, "ON", 1.0),
        ({"map": {"true": 1, "false": 0}}, False, 0.0),
        ({"map": {"ON": 1}, "text": True}, "4", 4.0),
        ({"map": {"ON": 1}}, 4, 4.0),
    ],
)
def test_it_counts_as_this(field: dict[str, Any], value: Any, number: float) -> None:
    assert _read(_policy(**field), [value]) == [(ValueKind.FINITE, number)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (_COMMA, "21.5 °C"),
        (_COMMA, "1.234,5 °C"),
        (_COMMA, "21,5 °F"),
        (_COMMA, "1,2,3"),
        (_COMMA, "°C"),
        (_COMMA, ""),
        (_COMMA, "UNDEF"),
        ({"text": True}, "1_000"),
        ({"text": True}, "0x10"),
        ({"text": True}, "١٢"),
        ({"text": True}, "5\0"),
        ({"text": True}, True),
        ({"map": {"ON": 1}}, "on"),
        ({"map": {"ON": 1}}, "7"),
        ({"map": {"true": 1}}, False),
        ({"map": {"ON": 1}}, True),
        ({}, "7"),
    ],
)
def test_it_is_no_number(field: dict[str, Any], value: Any) -> None:
    ((kind, number),) = _read(_policy(**field), [value])
    assert kind == ValueKind.NONNUMERIC
    assert math.isnan(number)


@pytest.mark.parametrize("text", ["inf", "-Infinity", "NaN"])
def test_what_is_not_finite_is_told_apart(text: str) -> None:
    ((kind, number),) = _read(_policy(text=True), [text])
    assert kind == ValueKind.NONFINITE
    assert repr(number) == repr(float(text))


_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@given(
    st.lists(
        st.one_of(st.text("0123456789+-.eE, ", max_size=9), st.floats(), st.integers(0, 99)), max_size=20
    )
)
def test_mixed_with_numbers_each_is_read_alone(values: list[Any]) -> None:
    for value, (kind, number) in zip(values, _read(_policy(text=True), values), strict=True):
        if isinstance(value, str):
            is_number = _PLAIN.fullmatch(value.strip(" ")) is not None
            assert (kind in (ValueKind.FINITE, ValueKind.NONFINITE)) == is_number
            assert not is_number or number == float(value)
        else:
            assert kind == (ValueKind.FINITE if math.isfinite(value) else ValueKind.NONFINITE)
            assert repr(number) == repr(float(value))


@given(
    st.lists(
        st.dictionaries(
            st.integers(0, 59).map(str), st.sampled_from(["1,5 °C", "-20,25 °C", "n/a", 3, None]), min_size=1
        ),
        min_size=1,
        max_size=40,
    )
)
def test_in_slots_of_any_length_it_is_the_same(held: list[dict[str, Any]]) -> None:
    policy = make_policy(
        name="it", collection="it", model="slots", slot="second", time_field="at", series_fields=("s",),
        value_fields=("v",), values={"v": ValueField(**_COMMA)},
    )  # fmt: skip
    documents = [
        encode({"_id": number, "s": 1, "at": _START + timedelta(minutes=number), "v": slots})
        for number, slots in enumerate(held)
    ]
    columns = decode(Batch.of(Docs.of(documents)), policy).columns
    assert not columns.states
    numbers = {"1,5 °C": 1.5, "-20,25 °C": -20.25, 3: 3.0}
    wanted = [
        (number, int(slot), numbers.get(value))
        for number, slots in enumerate(held)
        for slot, value in slots.items()
        if value is not None
    ]
    found = [
        (bucket, (time // 1000) % 60, value if kind == ValueKind.FINITE else None)
        for bucket, time, value, kind in zip(
            columns.bucket.tolist(),
            columns.time.tolist(),
            columns.values["v"].tolist(),
            columns.kinds["v"].tolist(),
            strict=True,
        )
    ]
    assert sorted(found, key=lambda it: it[:2]) == sorted(wanted, key=lambda it: it[:2])


_STATES: list[Any] = ["idle", "a.b", "", "1", "é\0", "x" * 251, "x" * 252, 1, -0.0, 0.5, 1e22, True, None]
_STATES += [Int64(2**53 + 1), Decimal128("2.50"), math.nan, _START, b"raw", {"a": 1}]


def _state(value: Any) -> str | None:
    """A number is named by its shortest text; longer texts than 251 bytes, and other types, are no states."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value if len(value.encode()) <= 251 else None
    if isinstance(value, Decimal128):
        return "2.5"
    if isinstance(value, int | float) and math.isfinite(value):
        number = float(value)
        return f"{int(number):d}" if abs(number) < 1e16 and number == int(number) else repr(number)
    return None


@given(
    st.lists(
        st.dictionaries(st.integers(0, 59).map(str), st.sampled_from(_STATES), min_size=1),
        min_size=1,
        max_size=40,
    ),
    st.randoms(use_true_random=False),
)
def test_texts_are_states_beside_numbers(held: list[dict[str, Any]], source: random.Random) -> None:
    policy = make_policy(
        name="it", collection="it", model="slots", slot="second", time_field="at", series_fields=("s",),
        value_fields=("v",), nonnumeric_ok=("v",),
        values={"v": ValueField(kind="state", max_gap=timedelta(minutes=1))},
    )  # fmt: skip
    documents = [
        encode({"_id": number, "s": 1, "at": _START + timedelta(minutes=number), "v": slots})
        for number, slots in enumerate(held)
    ]
    columns = decode(Batch.of(Docs.of(documents)), policy).columns
    wanted = {
        (number, int(slot)): _state(value)
        for number, slots in enumerate(held)
        for slot, value in slots.items()
        if value is not None
    }
    places = list(zip(columns.bucket.tolist(), ((columns.time // 1000) % 60).tolist(), strict=True))
    some = np.array(source.sample(range(len(places)), source.randint(0, len(places))), dtype=np.int64)
    others = np.setdiff1d(np.arange(len(places)), some)
    cut = [columns.states["v"].take(it) for it in (some, others)]
    codes, names = StateColumn.together(cut)
    for which, at, part in ((some, codes[0], cut[0]), (others, codes[1], cut[1])):
        told = [names[code] if code != NO_STATE else None for code in at.tolist()]
        assert told == [wanted[places[it]] for it in which.tolist()]
        assert set(part.names) == {it for it in told if it is not None}  # and no others
