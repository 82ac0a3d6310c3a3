"""Values written as text, words and booleans: what the policy says they count as, and nothing else."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import encode
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.columns import ValueKind
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
