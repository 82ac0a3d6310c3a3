"""Signatures of manifests and receipts: HMAC-SHA-256 under keys that the policy file alone knows.

What is signed is the SHA-256 seal: the 64 digits that stand for every other byte. A signature is
`<key id>:<64 hex digits>`; the id tells keys apart, and nothing of the key.
"""

from __future__ import annotations

import hashlib
import hmac

from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.config.tables import Store


class Keys:
    """Keys for signatures: the first signs, all verify. Without any, nothing may be signed, since no
    signature could be verified."""

    def __init__(self, *secrets: str, is_strict: bool = True) -> None:
        self._keys = {key_id(secret): secret for secret in secrets}
        self._is_strict = is_strict

    @classmethod
    def of(cls, store: Store | None) -> Keys:
        """Returns the signing keys of a configured store; none without a store."""
        return cls(*(key.get_secret_value() for key in store.signing_key)) if store else cls()

    @property
    def first(self) -> str | None:
        """Returns the id of the key that signs."""
        return next(iter(self._keys), None)

    def lenient(self) -> Keys:
        """Returns keys that accept a missing signature, or one by an unknown key, but never a wrong one."""
        return Keys(*self._keys.values(), is_strict=False)

    @property
    def for_reading(self) -> Keys:
        """Returns these keys. Without any, what is signed is read by its seal: a lost key does not lock data
        away."""
        return self if self._keys else self.lenient()

    def sign(self, seal: str) -> str | None:
        """Returns the signature of a seal by the first key; None where there is none."""
        return None if self.first is None else f"{self.first}:{_hmac(self._keys[self.first], seal)}"

    def check(self, seal: str, signature: str | None, place: str) -> None:
        """Raises DamagedError where the signature is wrong, can't be checked, or is missing."""
        name, _, digits = (signature or "").partition(":")
        if name in self._keys:
            if not hmac.compare_digest(_hmac(self._keys[name], seal), digits):
                what = (
                    f"its signature under the key {name} is wrong: it was changed, and signed by someone else"
                )
                raise DamagedError("signature-wrong", place, what)
        elif not self._is_strict:
            pass
        elif signature is not None:
            what = f"it is signed under the key {name}, which is not among store.signing_key"
            remedy = "Put that key back; where it is lost for good, see `bucketwise sign`"
            raise DamagedError("signature-missing", place, what, remedy)
        elif self._keys:
            what = "it is not signed, and store.signing_key is set"
            remedy = (
                "Where signing has just been turned on, run `bucketwise sign`; else find out who wrote it"
            )
            raise DamagedError("signature-missing", place, what, remedy)


UNSIGNED = Keys()


def key_id(secret: str) -> str:
    """Returns the public name of a key: 8 hex digits that do not reveal it."""
    return _hmac(secret, "key id")[:8]


def _hmac(secret: str, text: str) -> str:
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
