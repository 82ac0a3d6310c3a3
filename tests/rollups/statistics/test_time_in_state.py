"""Time in a state: more states than are kept, and what is stored of them."""

from __future__ import annotations

import math

import pytest

from bucketwise.rollups.statistics.base import VarintReader, VarintWriter
from bucketwise.rollups.statistics.time_in_state import MOST_STATES, TimeInState

STATES = TimeInState(60_000)
#: As many as are kept, a second each.
MANY = {float(number): 1000 for number in range(MOST_STATES)}


def packed(amount: tuple[int, dict[float, int] | None]) -> bytes:
    writer = VarintWriter()
    STATES.pack_amount(amount, writer)
    return bytes(writer.data)


@pytest.mark.parametrize(
    "amount", [(0, {}), (3, {1.5: 10, -2.0: 7}), (7, MANY), (9, None), (1, {math.inf: 1, 0.0: 2})]
)
def test_what_is_stored_of_states_comes_back(amount: tuple[int, dict[float, int] | None]) -> None:
    reader = VarintReader(packed(amount))
    assert STATES.unpack_amount(reader) == amount
    reader.finish()


def test_more_states_than_are_kept_are_told_as_such_and_their_changes_count() -> None:
    both = STATES.add((2, MANY), (3, {0.0: 500, 1.0: 1}))
    assert both == (5, {**MANY, 0.0: 1500, 1.0: 1001})
    over = STATES.add(both, (1, {-1.0: 5}))
    assert over == (6, None)
    assert STATES.add(over, (1, {})) == STATES.add((1, {}), over) == (7, None)


def test_a_state_of_other_bytes_is_refused() -> None:
    data = packed((1, {1.5: 10}))
    with pytest.raises(ValueError, match="a state of 7 bytes"):
        STATES.unpack_amount(VarintReader(data.replace(b"\x08", b"\x07", 1)))
