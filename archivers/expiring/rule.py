"""Decides by `retain.archive`, at one instant, what is past its time and what a tombstone means. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Literal

from bucketwise.buckets.decoding.decode import Decoded
from bucketwise.buckets.fields.times import DAY_MS, as_date, as_ms, later
from bucketwise.buckets.rules import NEVER, SeriesRules
from bucketwise.config.policies import Policy
from bucketwise.config.times import format_duration
from bucketwise.rollups.standing import LIFTED_FOR

_MS = timedelta(milliseconds=1)


@dataclass
class Amount:
    """How much of an archive. `days`: UTC days since 1970. `bytes`: in the store; online, of BSON."""

    days: set[int] = field(default_factory=set)
    buckets: int = 0
    bytes: int = 0

    def add(self, days: Iterable[int], buckets: int, size: int) -> None:
        """Counts something more."""
        self.days.update(days)
        self.buckets += buckets
        self.bytes += size


@dataclass
class ExpiryReport:
    """Counts of an expiry: what got a tombstone (`tombstoned`), already had one (`standing`), was removed
    (`expired`), or is kept by `undelete` (`lifted`). And how many buckets stay: by the name of the hold that
    keeps them (`held`), or since their originals are live (`live`)."""

    tombstoned: Amount = field(default_factory=Amount)
    standing: Amount = field(default_factory=Amount)
    expired: Amount = field(default_factory=Amount)
    lifted: Amount = field(default_factory=Amount)
    held: Counter[str] = field(default_factory=Counter)
    live: int = 0


#: `none`: there is no tombstone, or one that no longer counts.
Stage = Literal["none", "standing", "due", "lifted"]
Document = dict[str, Any]


@dataclass(frozen=True)
class RetentionRule:
    """How long archived readings stay, and how long a tombstone stands before they go."""

    keep: timedelta
    grace: timedelta
    now: datetime
    after: timedelta = timedelta()  # how old readings are that a run archives
    scope: str = ""  # of which series it is: see `SeriesRules.scope`

    @classmethod
    def of(cls, policy: Policy, now: datetime, scope: str = "") -> RetentionRule | None:
        """Returns the rule of a policy; None where its archive stays forever."""
        retain = policy.retain
        if retain is None or retain.archive is None:
            return None
        after = policy.archive.after if policy.archive is not None else None
        return cls(retain.archive, retain.archive_grace, now, after or timedelta(), scope)

    @property
    def stay(self) -> timedelta:
        """Returns how long what is archived stays at least, whatever its times say: as long as readings that
        are archived in time. So what a wrong clock dates far back does not go at once."""
        return max(self.keep - self.after, timedelta())

    @property
    def archived_by(self) -> datetime:
        """Returns the instant by which something was archived that has stayed for long enough."""
        return self.now - self.stay

    @property
    def end(self) -> int:
        """Returns the instant (milliseconds) before which readings are past their time, the start of a UTC
        day."""
        edge = as_ms(self.now - self.keep)
        return edge - edge % DAY_MS

    @property
    def text(self) -> str:
        """Returns how long archived readings stay, as the policy file writes it."""
        return format_duration(self.keep)

    @property
    def said(self) -> str:
        """Returns what a tombstone says of the rule: how long, and of which series."""
        return f"{self.text}, rule {self.scope}" if self.scope else self.text

    @property
    def tombstone(self) -> Document:
        """Returns a new tombstone, as it is recorded."""
        return {"at": self.now, "due": later(self.now, self.grace), "keep": self.said}

    def stage(self, tombstone: Mapping[str, Any] | None) -> Stage:
        """Returns the stage of a recorded tombstone. One made under another `retain.archive` no longer
        counts, nor does one of which no receipt tells."""
        if tombstone is None:
            return "none"
        if "until" in tombstone:
            return "lifted" if self.now < tombstone["until"] else "none"
        if tombstone["keep"] != self.said or "receipt" not in tombstone:
            return "none"
        return "due" if self.now >= tombstone["due"] else "standing"

    def due(self, tombstone: Mapping[str, Any] | None, archived: datetime | None) -> datetime | None:
        """Returns when what is under a tombstone that counts goes; None where there is none. `archived`: when
        the last of it was archived; None: not known, which counts as now."""
        if tombstone is None or self.stage(tombstone) not in ("standing", "due"):
            return None
        due: datetime = tombstone["due"]
        return max(due, self._stays_until(archived))

    def _stays_until(self, archived: datetime | None) -> datetime:
        return later(self.now if archived is None else archived, self.stay)

    def expires_at(
        self, last_ms: int, archived: datetime | None, tombstone: Mapping[str, Any] | None
    ) -> datetime:
        """Returns the instant after which a run removes what has this last reading (milliseconds), and was
        archived then, as `due` takes it."""
        if (due := self.due(tombstone, archived)) is not None:
            return due
        past = later(as_date((last_ms // DAY_MS + 1) * DAY_MS), self.keep)
        begun = max(past, self._stays_until(archived), self.now)
        if tombstone is not None and self.stage(tombstone) == "lifted":
            begun = max(begun, tombstone["until"])
        return later(begun, self.grace)


class RetentionRules:
    """How long archived readings stay, by the rules of a policy. `rules`: one a number; None: forever."""

    def __init__(self, policy: Policy, now: datetime) -> None:
        self.series = SeriesRules(policy)
        self.rules = [
            RetentionRule.of(it, now, self.series.scope(number))
            for number, it in enumerate(self.series.policies)
        ]
        #: The rule that keeps longest has the smallest.
        self.limits = [NEVER if it is None else -(it.keep // _MS) for it in self.rules]

    @property
    def is_single(self) -> bool:
        """Returns whether one rule is for all series."""
        return len(self.rules) == 1

    def longest(self, numbers: Iterable[int]) -> int:
        """Returns the number of the rule that keeps longest, of these."""
        return min(sorted(numbers), key=self.limits.__getitem__)

    def up_to(self, number: int) -> set[int]:
        """Returns the numbers of the rules that keep no longer than this one. What it keeps longest may hold
        series of each."""
        return {it for it, limit in enumerate(self.limits) if limit >= self.limits[number]}

    def of_buckets(self, decoded: Decoded) -> list[int]:
        """Returns for each bucket the number of the rule that keeps it longest, of all its series'."""
        return self.series.governing(decoded.columns, self.limits)

    @property
    def void(self) -> Document:
        """Returns the query for records with tombstones of a rule or a length that is no more."""
        said = [it.said for it in self.rules if it is not None]
        return {"tombstone.keep": {"$exists": True, "$nin": said}}

    @property
    def digest(self) -> str:
        """Returns 16 hex digits that change whenever other series may come under a rule, or a rule keeps for
        another time."""
        said = [(self.series.scope(number), it and it.text) for number, it in enumerate(self.rules)]
        return sha256(repr(said).encode()).hexdigest()[:16]


def lifted(now: datetime) -> Document:
    """Returns the record that takes the place of a tombstone when it is lifted."""
    return {"lifted": now, "until": later(now, LIFTED_FOR)}
