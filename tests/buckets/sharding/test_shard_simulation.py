"""Where documents come to lie on shards, against a plain model that places and moves them one by one."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.sharding.study import SimulationInput, simulate

Document = tuple[int, int]  # which value of the key, bytes
CELLS, RANGE = 12, 10


class Plain:
    """Chunks as lists of documents: [first value, behind, shard]."""

    def __init__(self, cuts: list[int], shards: int) -> None:
        bounds = [0, *cuts, CELLS]
        self.chunks = [[low, high, n % shards] for n, (low, high) in enumerate(itertools.pairwise(bounds))]
        self.stored: list[Document] = []
        self.shards, self.moves = shards, 0

    def owner(self, value: int) -> int:
        return next(shard for low, high, shard in self.chunks if low <= value < high)

    def weight(self, low: int, high: int) -> int:
        return sum(size for value, size in self.stored if low <= value < high)

    def sizes(self) -> list[int]:
        found = [0] * self.shards
        for value, size in self.stored:
            found[self.owner(value)] += size
        return found

    def insert(self, documents: list[Document]) -> list[int]:
        writes = [0] * self.shards
        for document in documents:
            writes[self.owner(document[0])] += 1
            self.stored.append(document)
        return writes

    def balance(self) -> None:
        while self.move_one():
            self.moves += 1

    def move_one(self) -> bool:
        sizes = self.sizes()
        to = sizes.index(min(sizes))
        for shard in sorted(range(self.shards), key=lambda it: (-sizes[it], it)):
            if sizes[shard] - sizes[to] < 3 * RANGE:
                return False
            if self.move_from(shard, to):
                return True
        return False

    def move_from(self, shard: int, to: int) -> bool:
        for chunk in sorted(self.chunks):
            low, end, owner = chunk
            while owner == shard and low < end:
                high = low
                while high < end and self.weight(low, high + 1) <= RANGE:
                    high += 1
                if high == low:  # one value that is too large
                    self.split(low, low + 1)
                    low += 1
                elif self.weight(low, high):
                    self.split(low, high)
                    next(it for it in self.chunks if it[0] == low)[2] = to
                    return True
                else:
                    self.split(low, high)
                    low = high
        return False

    def split(self, low: int, high: int) -> None:
        chunk = next(it for it in self.chunks if it[0] <= low < it[1])
        start, end, shard = chunk
        self.chunks.remove(chunk)
        bounds = sorted({start, low, high, end})
        self.chunks += [[one, other, shard] for one, other in itertools.pairwise(bounds)]


windows = st.lists(
    st.lists(st.tuples(st.integers(0, CELLS - 1), st.integers(1, 14)), max_size=25), min_size=1, max_size=5
)


@given(windows, st.integers(2, 5), st.lists(st.integers(1, CELLS - 1), unique=True, max_size=4).map(sorted))
def test_it_is_what_a_document_at_a_time_comes_to(
    arriving: list[list[Document]], shards: int, cuts: list[int]
) -> None:
    plain = Plain(cuts, shards)
    writes, sizes = [], []
    for documents in arriving:
        writes.append(plain.insert(documents))
        plain.balance()
        sizes.append(plain.sizes())
    counted, data = np.zeros((2, len(arriving), CELLS))
    for window, documents in enumerate(arriving):
        for value, size in documents:
            counted[window, value] += 1
            data[window, value] += size

    found = simulate(SimulationInput(counted, data, np.ones(CELLS, dtype=bool), cuts), shards, RANGE)

    assert found.writes.tolist() == writes
    assert found.data.tolist() == sizes
    if data.sum() <= RANGE * 5000:
        assert found.migrations == plain.moves
    assert found.jumbo == sum(plain.weight(it, it + 1) > RANGE for it in range(CELLS))
    for value in range(CELLS):
        assert found.shards_of(value, value + 1) == {plain.owner(value)}


@given(st.integers(2, 6), st.integers(1, 8), st.integers(1, 10**6))
def test_what_ascends_is_written_to_one_shard_and_spread_by_the_balancer(
    shards: int, count: int, scale: int
) -> None:
    """Cells that can be split: as fine as the ranges, whatever there is in them."""
    data = np.eye(count) * scale * RANGE

    found = simulate(SimulationInput(data, data, np.zeros(count, dtype=bool)), shards, RANGE)

    assert found.hottest == 1
    assert found.data[-1].sum() == data.sum() or abs(found.data[-1].sum() / data.sum() - 1) < 1e-9
    assert np.ptp(found.data[-1]) <= 3 * max(RANGE, data.sum() / 5000) * (1 + 1e-9)


def test_as_much_as_can_be_is_simulated_with_as_few_steps() -> None:
    """A million million readings of 100 bytes: ranges beyond some thousands are moved together."""
    cells = 2000
    data = np.kron(np.eye(20), np.ones(cells // 20)) * 1e14 / cells

    found = simulate(SimulationInput(data, data, np.zeros(cells, dtype=bool)), 10)

    assert 0.85e14 < found.migrations * (128 << 20) < 1e14
    assert np.ptp(found.data[-1]) < 0.01 * 1e14
