"""Whatever stands where a time should: the bucket is archived, not due yet, or told of; never passed by."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bson import Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS

from tests.jobs.command import CommandLine
from tests.jobs.place import NOW, Db, Place

#: By time_unit: those that have not expired.
FUTURE: dict[str, list[Any]] = {
    "date": [],
    "s": [253_402_300_799, 253_402_300_799.5],
    "ns": [Int64(2**63 - 1)],
    "iso": ["9999-12-31", "9999-12-31T23:59:59.999999999Z"],
}
TEXTS = [
    "", "x", ":", "/", "0001", "2018", "20180630", "2018-6-30", "2018-06-31", "2018-02-29", "2018-06-30T",
    "2018-06-30T1:00", "2018-06-30T10", "2018-06-30t10:00:00z", "2018-06-30T10:00:00 Z", "2018-W26-6",
    "2018-06-30T10:00:00+24:00", "2018-06-30T24:00:00Z", "2018-06-30T10:00:00.1234567891Z", "2018-06-30",
    "10000-01-01", "0000-12-31", "0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00", "1530316800",
    "2018-06-30 10:00", "2016-02-29T10:00:00.5-0530", "٢018-06-30",
]  # fmt: skip
NUMBERS: list[Any] = [
    0, -1, 1.5, float("nan"), float("inf"), Int64(-(2**63)), 1_530_316_800, Decimal128("1530316800"),
    253_402_300_800, -62_135_596_801, Int64(1_530_316_800_000_000_000), Decimal128("1E+6000"),
]  # fmt: skip
DATES: list[Any] = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(2018, 6, 30, tzinfo=UTC),
    DatetimeMS(-1),
    DatetimeMS(-(2**63)),
]
DATES += [DatetimeMS(253_402_300_800_000), DatetimeMS(-62_135_596_800_001)]
OTHERS: list[Any] = [
    None,
    True,
    [],
    DATES[:1],
    {},
    {"a": 1},
    ObjectId(),
    Timestamp(1, 1),
    Regex("a"),
    Code("x"),
    b"x",
]
OTHERS += [MinKey(), MaxKey()]
POLICY = """
[policies.odd]
collection = "odd"
model = "reading"
time_field = "at.d"
time_unit = "{unit}"
series_fields = []
value_fields = ["p"]
[policies.odd.rollup]
daily = "odd_daily"
[policies.odd.archive]
after = "30d"
to = "offline"
"""


@pytest.mark.proof
@pytest.mark.parametrize("unit", FUTURE)
def test_none_is_passed_by(
    tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine, unit: str
) -> None:
    place = Place(tmp_path, database, mongodb_uri, bucketwise)
    place.write_config(POLICY.format(unit=unit))
    expected = [*FUTURE[unit], datetime(9999, 12, 31, tzinfo=UTC)]
    times = [*TEXTS, *NUMBERS, *DATES, *OTHERS, *expected]
    missing = len(times)
    documents = [{"_id": i, "at": {"d": time}, "p": 1.5} for i, time in enumerate(times)]
    database.odd.insert_many([*documents, {"_id": missing, "p": 1.5}])
    ran = place("run", "--json")
    assert ran.code == 3, ran
    told = {json.dumps(it["id"]) for it in ran.policy("odd")["archive"]["quarantine"]}
    left = {it["_id"] for it in database.odd.find({}, {"_id": 1})}
    assert str(missing) in told and missing in left
    assert [time for i, time in enumerate(times) if i in left and str(i) not in told] == expected
    audited = place("audit", "--json", now=NOW).policy("odd")["findings"]
    assert sum(it["code"] == "quarantined" for it in audited) == len(told)
