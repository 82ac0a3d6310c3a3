"""Parts that the JSON of several commands has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict


@dataclass(frozen=True)
class Format:
    """The `format` of a text in a JSON Schema, as pydantic asks for it."""

    name: str

    def __get_pydantic_json_schema__(self, core: Any, schema_of: Any) -> dict[str, Any]:
        """Returns the schema of the text with its format."""
        return {**schema_of(core), "format": self.name}


#: ISO 8601, UTC.
Instant = Annotated[str, Format("date-time")]
#: A UTC day, such as 2018-06-30.
Day = Annotated[str, Format("date")]
#: The names and values of the fields that identify a series.
Series = dict[str, Any]
#: Counts of summaries, by the level.
ByLevel = dict[str, int]
Severity = Literal["ok", "warning", "error"]


class Finding(TypedDict):
    """A finding. `policy`: null where it concerns no single one."""

    code: str
    policy: str | None
    place: str
    severity: Severity
    message: str
    remedy: NotRequired[str]


class Quarantined(TypedDict):
    """A document that breaks its model. `id`: its `_id`, as extended JSON."""

    id: Any
    field: str | None
    reason: str


class Example(TypedDict):
    """A reading, as the policy understands it."""

    series: Series
    time: Instant
    values: dict[str, Any]


class Misfit(TypedDict):
    """Why a policy does not fit its documents."""

    code: str
    message: str


class LikelyKind(TypedDict):
    """What a value field may be: keys of its table, and what speaks for them."""

    keys: dict[str, str]
    why: str


class Fit(TypedDict):
    """How a policy understands a sample of its buckets."""

    sampled: int
    buckets: int
    quarantined: int
    readings: int
    readings_a_bucket: float | None
    finite: dict[str, float | None]
    series: int
    first: Instant | None
    last: Instant | None
    examples: list[Example]
    unused_fields: list[str]
    kinds: dict[str, LikelyKind]
    misfits: list[Misfit]


class Sizes(TypedDict):
    """Bytes: of documents, their indexes, summaries with their indexes, and files of the archive."""

    data_bytes: int
    index_bytes: int
    summary_bytes: int
    store_bytes: int


#: `with` and `without` the policy, in bytes a month.
Forecast = TypedDict("Forecast", {"with": int | None, "without": int | None})


class Worth(TypedDict):
    """Tells what a policy is worth."""

    before: Sizes
    now: Sizes
    removed_bytes: int
    forecast: Forecast | None


class Hold(TypedDict):
    """A hold on readings."""

    name: str
    series: Series
    since: Instant | None
    until: Instant | None
    reason: str
    placed_at: Instant
    by: str
    freeze: bool


class CopyStanding(TypedDict):
    """How far a copy of the store is. `behind`: objects that it lacks, or has too many; null before it was
    filled."""

    name: str
    url: str
    required: bool
    filled_at: Instant | None
    behind: int | None
    behind_since: Instant | None


class ReadsFromCopies(TypedDict):
    """Tells what was read from copies, since the store could not give it: how much, and the first of it, each
    with `key`, `copy` and `reason`."""

    count: int
    objects: list[dict[str, str]]
