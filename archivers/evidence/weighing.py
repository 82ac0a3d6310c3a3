"""How many readings of each row are archived, and how many there are in all: decided from counts.

Manifests count the readings of a commit by UTC day, of all series together. For an hour, or for some series,
summaries are used, if those of the whole day agree with the manifests and with what is live. What is not
known exactly is None."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bucketwise.archivers.evidence.grid import Counts, Flags


@dataclass(frozen=True)
class Day:
    """What is known of one UTC day, offline; arrays are by its rows.

    `held` copies of readings: in commits of which nothing is live (`closed`), in commits all of whose
    originals may be live (`copied`), and in others.
    """

    live: Counts  # of the series asked for
    live_all: int
    by_manifest: Counts  # readings in parts of one row
    is_spread: Flags  # parts of several rows may hold more here
    is_part: bool  # only some series are asked for
    may_hold: bool  # copies of what is asked for
    held: int
    closed: int
    copied: int
    summarised: Counts  # readings in summaries, of the series asked for
    summarised_all: int
    is_summarised: Flags

    @property
    def archived(self) -> list[int | None]:
        """Returns how many readings have a copy in the archive."""
        if not self.may_hold:
            return [0] * len(self.live)
        derived = self._derived
        return [
            int(self.by_manifest[row]) if self._is_exact(row) else None if derived is None else derived[row]
            for row in range(len(self.live))
        ]

    @property
    def readings(self) -> list[int | None]:
        """Returns how many readings there are, live or archived, each once."""
        return [self._readings(row, archived) for row, archived in enumerate(self.archived)]

    def _readings(self, row: int, archived: int | None) -> int | None:
        live, summarised = int(self.live[row]), int(self.summarised[row])
        if not self.may_hold:
            return live
        if not self._is_mixed and not self.copied:
            return None if archived is None else live + archived
        if not self._is_mixed and self.live_all == self.copied and (not self.closed or self._is_whole):
            return live + self.closed  # all other copies are of live buckets
        most = live + archived if archived is not None else summarised
        return (
            summarised if self.is_summarised[row] and max(live, archived or 0) <= summarised <= most else None
        )

    @property
    def _is_mixed(self) -> bool:
        return self.held > self.closed + self.copied

    @property
    def _is_whole(self) -> bool:
        """Returns whether the day is one row, and all of it is asked for."""
        return len(self.live) == 1 and not self.is_part

    def _is_exact(self, row: int) -> bool:
        return not self.is_part and not self.is_spread[row]

    @property
    def _derived(self) -> list[int] | None:
        """Returns counts derived from summaries; None where they don't agree with the rest."""
        if not self.is_summarised.all():
            return None
        if self.held == self.summarised_all:  # all is archived
            found = self.summarised
        elif self.held == self.closed and self.summarised_all == self.live_all + self.closed:
            found = np.asarray(self.summarised - self.live)
        else:
            return None
        return [int(it) for it in found] if (found >= 0).all() else None
