"""Tries a proposal on documents: what is read by it, and how well it fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import ValueKind
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.buckets.inferring.notes import Notes, quoted
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy

#: Optional keys of a policy, in the order in which they are given up.
_OPTIONAL = (("sum_fields",), ("count_field",), ("end_field",), ("sum_fields", "count_field"))


@dataclass(frozen=True)
class Trial:
    """A policy, what it reads of some documents, and the keys that it had to do without."""

    policy: Policy
    batch: Batch
    decoded: Decoded
    left_out: dict[str, Any]

    @property
    def finite(self) -> int:
        """Returns how many numbers were read."""
        return sum(int((kinds == ValueKind.FINITE).sum()) for kinds in self.decoded.columns.kinds.values())

    def note(self, what: str, documents: str, notes: Notes) -> None:
        """Notes what was read. `what`: how readings lie in a document; `documents`: which were read."""
        sound, readings = len(self.decoded.units), len(self.decoded.columns.time)
        notes.evidence["model"] = [
            f"{sound:,} of {len(self.batch):,} {documents}: {what}: {readings:,} readings"
        ]
        questions = [
            f"{key} = {quoted(str(value))} does not agree with all documents, so it was left out"
            for key, value in self.left_out.items()
        ]
        for key in self.left_out:
            notes.drop(key)
        if broken := self.decoded.quarantined:
            first = quoted(extended_json(broken[0].id))
            questions.append(
                f"{len(broken):,} of {len(self.batch):,} don't keep to it, such as _id "
                f"{first}, {quoted(broken[0].field)}: {broken[0].reason}"
            )
        notes.questions.pop("model", None)
        for text in questions:
            notes.add_question("model", text)

    def note_mixed(self, notes: Notes) -> None:
        """Asks about value fields that hold something else than numbers now and then."""
        for name, kinds in self.decoded.columns.kinds.items():
            if (count := int((kinds == ValueKind.NONNUMERIC).sum())) > 0:
                notes.add_question(
                    "value_fields",
                    f"{quoted(name)} holds text or the like in {count:,} of {len(kinds):,} readings; "
                    "they are counted as nonnumeric. If whole days may be so, write "
                    f"nonnumeric_ok = [{quoted(name)}]",
                )


def try_keys(keys: dict[str, Any], batch: Batch) -> Trial:
    """Returns what a policy with these keys reads. Optional keys that some documents contradict are
    left out."""
    best = _read(keys, {}, batch)
    for names in _OPTIONAL:
        if best.decoded.quarantined and all(it in keys for it in names):
            left_out = best.left_out | {it: keys[it] for it in names}
            again = _read(keys, left_out, batch)
            if len(again.decoded.units) > len(best.decoded.units):
                best = again
    return best


def _read(keys: dict[str, Any], left_out: dict[str, Any], batch: Batch) -> Trial:
    kept = {key: it for key, it in keys.items() if key not in left_out}
    lists = {key: tuple(it) if isinstance(it, list) else it for key, it in kept.items()}
    policy = make_policy(**lists)
    return Trial(policy, batch, decode(batch, policy), left_out)
