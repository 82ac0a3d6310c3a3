"""A policy that may fit some documents, and what all bucket models have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bucketwise.buckets.inferring import series
from bucketwise.buckets.inferring.fields import Fields
from bucketwise.buckets.inferring.notes import Notes, listed
from bucketwise.buckets.inferring.times import Time, times_in
from bucketwise.buckets.inferring.values import Columns, offset_field, zone_fields

#: Share of documents that need to have a field for it to count as always there: some may be broken.
NEARLY_ALL = 0.9


@dataclass
class Proposal:
    """Keys of a policy, with the reasons for them. `what`: how readings lie in a document; `timezone`:
    of days, if documents name one."""

    keys: dict[str, Any]
    what: str
    notes: Notes = field(default_factory=Notes)
    timezone: str | None = None


@dataclass(frozen=True)
class Evidence:
    """What is known of a collection: some of its documents, and the fields of each of its indexes."""

    fields: Fields
    indexes: Sequence[Sequence[str]] = ()

    @cached_property
    def single(self) -> dict[str, list[Any]]:
        """Returns the fields of one value that nearly all documents have."""
        return self.fields.in_most(NEARLY_ALL)

    @cached_property
    def times(self) -> list[Time]:
        """Returns the fields of times, the likeliest first."""
        return times_in(self.single, self._first_of_indexes)

    @property
    def _first_of_indexes(self) -> list[str]:
        return [it[0] for it in self.indexes if it]

    def indexed_with(self, time: str) -> list[str]:
        """Returns the other fields of the indexes that contain this time field."""
        return [it for index in self.indexes if time in index for it in index if it != time]


def names_of(evidence: Evidence, used: Sequence[str]) -> dict[str, list[Any]]:
    """Returns the fields that may distinguish series: not times, and not used otherwise."""
    times = {it.path for it in evidence.times}
    zones = zone_fields(evidence.single)
    taken = {*times, *zones, *used}
    return {path: it for path, it in evidence.single.items() if path not in taken and path != "_id"}


def choose_series(
    columns: Columns, times: Sequence[int | None], evidence: Evidence, time: str, proposal: Proposal
) -> None:
    """Puts the series fields into the proposal."""
    proposal.keys["series_fields"] = series.choose_fields(
        columns, times, evidence.indexed_with(time), proposal.notes
    )


def choose_clock(columns: Columns, proposal: Proposal) -> None:
    """Puts offset and time zone into the proposal, if the documents have any."""
    offset = offset_field(columns)
    if offset is not None:
        proposal.keys["local_offset_field"] = offset
        proposal.notes.add_question(
            "local_offset_field",
            "Is this UTC minus local time, in minutes (Kolkata: -330)? If it is the opposite, take it out",
        )
        return
    for path, zones in zone_fields(columns).items():
        if len(zones) == 1:
            proposal.timezone = next(iter(zones))
            proposal.notes.add_evidence("timezone", f"it is in {listed([path])} of all sampled documents")
        else:
            text = f"{listed([path])} names {listed(sorted(zones)[:5])}. In which zone do days begin?"
            proposal.notes.add_question("timezone", text)


def ask_of_other_times(chosen: Time, times: Sequence[Time], notes: Notes, key: str) -> None:
    """Asks whether another field of times is meant."""
    rivals = [it.path for it in times if it.path != chosen.path and it.rank >= chosen.rank]
    others = [it.path for it in times if it.path != chosen.path and it.rank < chosen.rank]
    if rivals:
        notes.add_question(
            key, f"{listed(rivals)} may be the time of a reading just as well. Which one is it?"
        )
    if others:
        notes.add_evidence(key, f"other times: {listed(others)}")
