"""Seals: a JSON file that vouches for others ends with the SHA-256 of its own bytes, and a signature of that.

The last two fields of such a model are `sha256` and `signature`. The seal covers all before them: it is
computed with zeros in its own place, and null in place of the signature.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TypeVar

from pydantic import BaseModel

UNSEALED = "0" * 64
_SEALED = re.compile(
    rb'\n "sha256": "(?P<seal>[0-9a-f]{64})"'
    rb',\n "signature": (?P<signature>null|"[0-9a-f]{8}:[0-9a-f]{64}")\n}\Z'
)
Model = TypeVar("Model", bound=BaseModel)


def sealed(model: Model) -> Model:
    """Returns a model with its seal: one flipped bit could hide a commit, or have it deleted too early."""
    unsealed = model.model_copy(update={"sha256": UNSEALED, "signature": None})
    return model.model_copy(update={"sha256": hashlib.sha256(encoded(unsealed)).hexdigest()})


def encoded(model: BaseModel) -> bytes:
    """Returns the bytes of a model's file."""
    return model.model_dump_json(indent=1).encode()


def signed(data: bytes, signature: str | None) -> bytes:
    """Returns the bytes of a file with another signature, which the seal does not cover."""
    found = _SEALED.search(data)
    assert found is not None
    return data[: found.start("signature")] + json.dumps(signature).encode() + b"\n}"


def seal_of(data: bytes) -> str | None:
    """Returns the seal that a file's own bytes have; None where they don't end as such a file does."""
    found = _SEALED.search(data)
    if found is None:
        return None
    unsealed = signed(data[: found.start("seal")] + UNSEALED.encode() + data[found.end("seal") :], None)
    return hashlib.sha256(unsealed).hexdigest()
