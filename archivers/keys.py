"""Signatures of manifests and receipts: HMAC-SHA-256 under keys that the policy file alone knows.

What is signed is the SHA-256 seal: the 64 digits that stand for every other byte. A signature is
`<key id>:<64 hex digits>`; the id tells keys apart, and nothing of the key.
"""

from __future__ import annotations

import hashlib
import hmac

from archivers.manifest import DamagedError
from config.policies import Store


class Keys:
    """The first signs, all verify. Without any, nothing may be signed: nobody could tell whether rightly."""

    def __init__(self, *secrets: str) -> None:
        self._keys = {key_id(secret): secret for secret in secrets}

    @classmethod
    def of(cls, store: Store | None) -> Keys:
        return cls(*(key.get_secret_value() for key in store.signing_key)) if store else cls()

    def sign(self, seal: str) -> str | None:
        """By the first key; None where there is none."""
        for name, secret in self._keys.items():
            return f"{name}:{_hmac(secret, seal)}"
        return None

    def check(self, seal: str, signature: str | None, place: str) -> None:
        """Raises DamagedError where the signature is wrong, can't be checked, or is missing."""
        name, _, digits = (signature or "").partition(":")
        if name in self._keys:
            if not hmac.compare_digest(_hmac(self._keys[name], seal), digits):
                what = (
                    f"its signature under the key {name} is wrong: it was changed, and signed by someone else"
                )
                raise DamagedError("signature-wrong", place, what)
        elif signature is not None:
            what = f"it is signed under the key {name}, which is not among store.signing_key"
            mend = "Put that key back; where it is lost for good, see `bucketwise sign`"
            raise DamagedError("signature-missing", place, what, mend)
        elif self._keys:
            what = "it is not signed, and store.signing_key is set"
            mend = "Where signing has just been turned on, run `bucketwise sign`; else find out who wrote it"
            raise DamagedError("signature-missing", place, what, mend)


UNSIGNED = Keys()


def key_id(secret: str) -> str:
    return _hmac(secret, "key id")[:8]


def _hmac(secret: str, text: str) -> str:
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
