"""Asks whether whole numbers name what is measured, where the times of documents speak for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from bucketwise.buckets.inferring.fields import (
    SERIES,
    hints,
    is_text,
    is_whole,
    listed,
    non_null,
    quoted,
    words_of,
)
from bucketwise.buckets.inferring.proposal import Alternative, Proposal, grouped, repeated
from bucketwise.buckets.inferring.values import Columns
from bucketwise.buckets.sampling.fit import STATES, longest_step
from bucketwise.config.times import format_duration

_NAMES = words_of(
    "state status mode phase event position alarm level activity "
    "zustand modus betriebsart stufe etat état estado modo stato toestand tila stan"
)
#: Texts of one kind, on average, from which on they are no names of what happened once.
_TIMES_EACH = 3
#: Share of the rows that may come to have series and time of another one, where a state names no series.
_FEW = 0.02


def choose_states(
    rows: Columns, times: Sequence[int | None], names: Mapping[str, str], proposal: Proposal
) -> None:
    """Puts texts of few kinds into the proposal as values, in place of series. `rows`: what may tell series
    apart; `times`: of each row; `names`: those of rows that may be values, as `value_fields` has them. Where
    several could be the state, each is an alternative, unless some are called like one. Beside prose, as in a
    log, nothing is a state."""
    series = proposal.keys["series_fields"]
    if any(path in rows and path not in series and _is_prose(rows[path]) for path in names):
        return
    allowed = repeated(series, rows, times) + _FEW * len(times)
    possible = [
        path
        for path in names
        if path in rows and _comes_and_goes(rows[path]) and not hints(path, SERIES)
        if repeated([it for it in series if it != path], rows, times) <= allowed
    ]
    called = [path for path in possible if hints(path, _NAMES)]
    ways = [
        _way(it, [one for one in series if one not in it], rows, times, names)
        for it in ([called] if called else [[path] for path in possible])
    ]
    if len(ways) == 1:
        proposal.notes.add_evidence("value_fields", ways[0].why)
    if ways:
        proposal.keys |= ways[0].keys
        proposal.combine(ways)


def _is_prose(held: Sequence[Any]) -> bool:
    return all(map(is_text, held)) and 2 * len(set(held)) > len(held) > STATES


def _comes_and_goes(held: Sequence[Any]) -> bool:
    texts = non_null(held)
    return all(map(is_text, texts)) and 1 < len(set(texts)) <= min(STATES, len(texts) // _TIMES_EACH)


def _way(
    paths: list[str],
    series: list[str],
    rows: Columns,
    times: Sequence[int | None],
    names: Mapping[str, str],
) -> Alternative:
    steps = [
        later - at
        for some in grouped(series, rows, times).values()
        for at, later in pairwise(sorted(non_null(some)))
    ]
    gap = format_duration(timedelta(milliseconds=longest_step(steps)))
    fields = [names[path] for path in paths]
    keys = {
        "series_fields": series,
        "value_fields": fields,
        "nonnumeric_ok": fields,
        "values": {it: {"kind": "state", "max_gap": gap} for it in fields},
    }
    counts = ", ".join(f"{len(set(non_null(rows[it]))):,} of {quoted(names[it])}" for it in paths)
    return Alternative(keys, f"texts that come and go are states: {counts}")


#: Rows that a thing has to have, on average; how many rows are looked at, and how many fields are tried.
_EACH, _ROWS, _TRIED = 4, 10_000, 6
#: Share of steps that have to be alike, how much more of them than without the fields, and by how much a
#: step may differ.
_EVEN, _MORE, _ABOUT = 0.6, 0.2, 0.1
#: Names of numbers that a calendar or a clock makes.
_OF_CALENDAR = words_of("year quarter month week weekday dow day hour minute second")
#: Share of neighbours that are of another thing where things take turns.
_IN_TURN = 0.9


def ask_of_things(rows: Columns, times: Sequence[int | None], proposal: Proposal) -> None:
    """Offers whole numbers as series where readings of each come in even steps, and all together don't, or
    take turns. `rows`: what may tell series apart; `times`: of each row."""
    series, values = proposal.keys["series_fields"], proposal.keys["value_fields"]
    found = _things({path: held[:_ROWS] for path, held in rows.items()}, times[:_ROWS], series)
    own = [it for it in values if it.rpartition("*.")[2] not in {path.rpartition("*.")[2] for path in found}]
    if not found or not own:
        return
    words = f"readings of each {listed(found)} come in even steps"
    proposal.combine(
        [
            Alternative(
                {"series_fields": [*series, *found], "value_fields": own}, f"{words}: it names a thing"
            ),
            Alternative({"series_fields": series, "value_fields": values}, f"{listed(found)} names no thing"),
        ]
    )


def _things(rows: Columns, times: Sequence[int | None], series: list[str]) -> list[str]:
    """Returns the fewest whole numbers that part documents into such as come in even steps; none where they
    do anyway."""
    possible = [path for path, held in rows.items() if path not in series and _may_name(path, held)][:_TRIED]
    alone = _evenness(rows, times, series)
    for found in (list(it) for count in (1, 2) for it in combinations(possible, count)):
        even = _evenness(rows, times, [*series, *found])
        if even >= max(_EVEN, alone + _MORE) or (even >= _EVEN and _are_in_turn(rows, times, series, found)):
            return found
    return []


def _may_name(path: str, held: Sequence[object]) -> bool:
    if hints(path, _OF_CALENDAR):
        return False
    found = non_null(held)
    return (
        len(found) == len(held) and all(map(is_whole, found)) and 1 < len(set(found)) <= len(found) // _EACH
    )


def _evenness(rows: Columns, times: Sequence[int | None], fields: Sequence[str]) -> float:
    """Returns the share of the steps from one row to the next of its series that are about as long as most:
    those that are missing in a sample are longer."""
    even = count = 0
    for found in grouped(fields, rows, times).values():
        steps = np.diff(np.sort(np.array(non_null(found), dtype=np.float64)))
        if len(steps):
            usual = np.quantile(steps, 0.25, method="nearest")
            even += int((np.abs(steps - usual) <= _ABOUT * usual).sum()) if usual > 0 else 0
            count += len(steps)
    return even / count if count else 0.0


def _are_in_turn(
    rows: Columns, times: Sequence[int | None], series: Sequence[str], found: Sequence[str]
) -> bool:
    """Returns whether nearly each row of a series is followed by one of another thing."""
    names = [repr([rows[it][i] for it in found]) for i in range(len(times))]
    others = count = 0
    for of_series in grouped(
        series, rows, [i if at is not None else None for i, at in enumerate(times)]
    ).values():
        ordered = sorted(non_null(of_series), key=lambda i: times[i] or 0)
        others += sum(names[a] != names[b] for a, b in pairwise(ordered))
        count += max(0, len(ordered) - 1)
    return others >= _IN_TURN * count > 0
