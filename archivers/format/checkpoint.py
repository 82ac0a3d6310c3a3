"""Checkpoints: a file that lists the commits that stand, and vouches for the chain of manifests before it.

Verification goes back along the chain to the last checkpoint, instead of to the first manifest: the manifests
of commits that were merged or dropped long ago need not be read again. MongoDB keeps its number and its seal.
So a checkpoint that is missing, damaged, or from another state of the store or another store is recognized.
No run relies on it, and it can be made again from the chain.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import SCHEMA_VERSION, DamagedError, LastReceipt, Link
from bucketwise.archivers.format.names import checkpoint_key
from bucketwise.archivers.format.seals import UNSEALED, seal_of
from bucketwise.archivers.stores.base import Corrupt, NotFound, ObjectStore

_REMEDY = (
    "Find out what happened to it, and remove the file if it is there: the next run goes through the whole "
    "chain of manifests, and makes another checkpoint if nothing is wrong"
)


class CheckpointRecord(NamedTuple):
    """The record of the last checkpoint in MongoDB. `commits`: how many it lists."""

    sequence: int
    sha256: str
    commits: int


class Checkpoint(BaseModel):
    """The state of an archive at one number of its chain."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    policy: str
    sequence: int  # the largest of the manifests' numbers
    heads: tuple[Link, ...]  # of the chain
    commits: tuple[Link, ...]  # that stand, or that others have replaced and that are still there
    receipt: LastReceipt | None  # the last one then
    created: datetime
    sha256: str = UNSEALED
    signature: str | None = None

    @property
    def links(self) -> frozenset[Link]:
        """Returns the links of all commits and heads that it names."""
        return frozenset((*self.heads, *self.commits))

    @property
    def key(self) -> str:
        """Returns the key of its file in the store."""
        return checkpoint_key(self.policy, self.sequence, self.sha256)

    @property
    def record(self) -> CheckpointRecord:
        """Returns the record of it that MongoDB keeps."""
        return CheckpointRecord(self.sequence, self.sha256, len(self.commits))


def read_checkpoint(
    store: ObjectStore, policy: str, record: CheckpointRecord, keys: Keys | None
) -> Checkpoint:
    """Returns the checkpoint. Raises DamagedError where it is not the one that was recorded. Without `keys`
    its signature is not verified."""
    key = checkpoint_key(policy, record.sequence, record.sha256)
    place = f"{store.url}/{key}"
    try:
        data = store.get_bytes(key)
        found = Checkpoint.model_validate_json(data)
    except NotFound:
        what = "the checkpoint is missing, though the database names it"
        raise DamagedError("checkpoint-missing", place, what, _REMEDY) from None
    except Corrupt as error:
        raise DamagedError("checkpoint-differs", place, error.reason, _REMEDY) from None
    except ValidationError as error:
        what = f"the checkpoint can't be read: {error.errors()[0]['msg']}"
        raise DamagedError("checkpoint-differs", place, what, _REMEDY) from None
    if not (seal_of(data) == found.sha256 == record.sha256) or found.policy != policy:
        what = "it is not the checkpoint that was written: the database names another seal"
        raise DamagedError("checkpoint-differs", place, what, _REMEDY)
    if keys is not None:
        keys.check(found.sha256, found.signature, place)
    return found
