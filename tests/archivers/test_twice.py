"""A bucket that one run meets again, since it has grown after its copy was made."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from archivers import archive as sweep
from config.policies import Store
from tests.archivers.builders import DAY0, LATER, Case, encode, samples
from tests.archivers.harness import Cycle

Document = dict[str, Any]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def bucket(name: str, *moments: datetime) -> Document:
    return {
        "_id": name, "deviceid": 1, "sensorid": 3, "nsamples": len(moments), "sum": 1.0 * len(moments),
        "first": moments[0], "last": moments[-1],
        "samples": [{"val": 1.0, "time": at} for at in moments],
    }  # fmt: skip


@pytest.mark.parametrize("ending", [{"grace": 2 * DAY}, {"delete": False}, {}], ids=str)
def test_a_bucket_that_grows_after_its_copy(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch, ending: Any
) -> None:
    """Nothing is double, while its copy waits or once it has gone, whichever commit comes first by name."""
    base = samples("dates")
    first = [bucket(f"a{i}", DAY0 + i * HOUR, DAY0 + (i + 0.5) * HOUR) for i in range(4)]
    second = [bucket("b0", DAY0 - DAY, DAY0 + DAY), bucket("b1", DAY0 + DAY + HOUR)]
    grown = bucket("a1", DAY0 + HOUR, DAY0 + 1.5 * HOUR, DAY0 + DAY + 2 * HOUR)
    case = Case(base.name, base.policy, [encode(it) for it in [*first, *second]], []).with_archive(**ending)
    cycle = Cycle(database, case, file_store).load()
    inner = sweep._Sweep._flush

    def flush(self: Any) -> None:
        moves = bool(self._pending)
        inner(self)
        if moves:
            database["iot"].replace_one({"_id": "a1"}, grown)

    monkeypatch.setattr(sweep, "MAX_READINGS", 4)
    monkeypatch.setattr(sweep._Sweep, "_flush", flush)
    report = cycle.run()
    monkeypatch.setattr(sweep._Sweep, "_flush", inner)
    moments = [it["time"] for one in [first[0], grown, *first[2:], *second] for it in one["samples"]]
    expected = Counter((1, 3, at, 1.0) for at in moments)
    assert report.changed == 1
    assert not cycle.rows() - expected
    if ending:
        assert report.left == len(cycle.live()) == 6
    for days in (3, 6):
        cycle.run(LATER + days * DAY)
    assert cycle.rows() == expected
    assert len(cycle.live()) == (6 if "delete" in ending else 0)
