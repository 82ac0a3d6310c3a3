"""Encryption at the client: what a store holds can be read with a key of the policy file alone.

    <policy>/meta/keyring.json   the policy's data key, wrapped by `store.encryption_key`, and from which
                                 commit on everything is encrypted, sealed under it

Every object below a policy's folder is sealed by AES-256-GCM under the data key, with its name as associated
data, so that none can stand in another's place. Parquet files are encrypted by Parquet's own modular
encryption instead, so that other programs can read them: each has a key of its own, which its footer holds,
wrapped by the data key. To change `store.encryption_key`, only the keyring is written again.

Sources: NIST SP 800-38D (GCM); RFC 5869 (HKDF); the Parquet format's Encryption.md.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from threading import RLock
from typing import Any

from bucketwise.archivers.stores.base import (
    AlreadyExists,
    Corrupt,
    FileKeys,
    ForwardingStore,
    NotFound,
    ObjectStore,
    StoreError,
    check_bytes,
)
from bucketwise.config.checks.locations import SHORTEST_KEY
from bucketwise.config.errors import HaltedError, UsageError
from bucketwise.config.tables import Store

#: How a sealed object begins.
MAGIC = b"BWE1"
#: How an encrypted Parquet file begins.
PARQUET_MAGIC = b"PARE"
_ID = 4  # bytes of the id of a data key
_NONCE = 12
_TAG = 16
#: How long `store.key_command` may take, in seconds.
_PATIENCE = 60


class EncryptionKeys:
    """The keys of `store.encryption_key`: the first wraps data keys, all unwrap them. Without any, nothing is
    encrypted, and nothing that is can be read."""

    def __init__(self, *secrets: str) -> None:
        self._keys = {_public_id(secret): _key_of(secret) for secret in secrets}

    @classmethod
    def of(cls, store: Store) -> EncryptionKeys:
        """Returns the keys of a configured store, from its command if it has one. Raises UsageError."""
        if store.key_command is None:
            return cls(*(key.get_secret_value() for key in store.encryption_key))
        return cls(*_told_by(store.key_command))

    def __bool__(self) -> bool:
        return bool(self._keys)

    def wrap(self, data_key: bytes) -> dict[str, str]:
        """Returns a data key, wrapped by the first key, under its name."""
        first, key = next(iter(self._keys.items()))
        return {first: base64.b64encode(_seal(key, data_key, b"data key")).decode()}

    def unwrap(self, wrapped: dict[str, str], place: str) -> bytes:
        """Returns a data key. Raises HaltedError where no key opens it."""
        for name, sealed in wrapped.items():
            if name in self._keys:
                return _open(self._keys[name], base64.b64decode(sealed), b"data key", place)
        known = f"key {', '.join(wrapped)}"
        told = f"store.encryption_key has {', '.join(self._keys)}" if self._keys else _NO_KEY
        raise HaltedError(
            f"{place}: the archive is encrypted under {known}, and {told}. Nothing was changed. Put that key "
            "into store.encryption_key; what it has encrypted can't be read without it"
        )


_NO_KEY = "there is no store.encryption_key"


def _told_by(command: str) -> list[str]:
    """Returns the keys that a command prints, one a line. Raises UsageError where it fails."""
    remedy = "It has to print a key on each line, the one that encrypts first"
    try:
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise UsageError(f"store.key_command: {type(error).__name__}. {remedy}") from None
    keys = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode or not keys:
        what = f"it ended with {done.returncode}" if done.returncode else "it printed no key"
        raise UsageError(f"store.key_command: {what}. {remedy}")
    if any(len(key) < SHORTEST_KEY for key in keys):
        raise UsageError(f"store.key_command: a key has fewer than {SHORTEST_KEY} characters. {remedy}")
    return keys


def _public_id(secret: str) -> str:
    return hmac.new(secret.encode(), b"encryption key id", hashlib.sha256).hexdigest()[:8]


def _key_of(secret: str) -> bytes:
    """Returns the 32 bytes of a key: HKDF-SHA-256 of the text, without salt."""
    extracted = hmac.new(bytes(32), secret.encode(), hashlib.sha256).digest()
    return hmac.new(extracted, b"bucketwise encryption key\x01", hashlib.sha256).digest()


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # only who encrypts needs it
    except ImportError:
        remedy = "install bucketwise with it: pip install 'bucketwise[encryption]'"
        raise UsageError(f"store.encryption_key needs the package cryptography; {remedy}") from None
    return AESGCM(key)


def _seal(key: bytes, data: bytes, associated: bytes) -> bytes:
    nonce = os.urandom(_NONCE)
    sealed: bytes = _cipher(key).encrypt(nonce, data, associated)
    return nonce + sealed


def _open(key: bytes, sealed: bytes, associated: bytes, place: str) -> bytes:
    """Returns what was sealed. Raises Corrupt where it was changed, or was sealed as something else."""
    from cryptography.exceptions import InvalidTag

    try:
        if len(sealed) < _NONCE + _TAG:
            raise InvalidTag
        opened: bytes = _cipher(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], associated)
    except InvalidTag:
        what = "it can't be decrypted: it was changed, or put here under another name than it was written"
        raise Corrupt("decrypt", place, what) from None
    return opened


class Keyring:
    """The data keys of one policy's folder, unwrapped. The last one encrypts. `encrypted_from`: the number of
    the first commit that is encrypted; 0: everything in the folder is."""

    def __init__(self, data_keys: dict[bytes, bytes], encrypted_from: int) -> None:
        self._data_keys = data_keys
        self._encrypted_from = encrypted_from

    @classmethod
    def new(cls, encrypted_from: int) -> Keyring:
        """Returns a keyring with a new data key."""
        return cls({os.urandom(_ID): os.urandom(32)}, encrypted_from)

    @classmethod
    def read(cls, data: bytes, keys: EncryptionKeys, place: str) -> Keyring:
        """Returns the keyring that a file holds. Raises HaltedError where no key opens it, and Corrupt where
        it is no keyring."""
        try:
            told = json.loads(data)
            wrapped = [(bytes.fromhex(it["id"]), dict(it["wrapped"])) for it in told["keys"]]
            encrypted_from = base64.b64decode(told["encrypted_from"])
            if not wrapped or any(len(name) != _ID for name, _ in wrapped):
                raise ValueError
        except (ValueError, LookupError, TypeError):
            raise Corrupt("read", place, "it is no keyring") from None
        ring = cls({name: keys.unwrap(it, place) for name, it in wrapped}, 0)
        ring._encrypted_from = int(ring.open(encrypted_from, _ENCRYPTED_FROM, place))
        return ring

    def written(self, keys: EncryptionKeys) -> bytes:
        """Returns the file, its data keys wrapped by the first key."""
        held = [{"id": name.hex(), "wrapped": keys.wrap(it)} for name, it in self._data_keys.items()]
        begins = base64.b64encode(self.seal(b"%d" % self._encrypted_from, _ENCRYPTED_FROM)).decode()
        return json.dumps({"format": 1, "keys": held, "encrypted_from": begins}, indent=1).encode()

    def refuses(self, key: str) -> bool:
        """Returns whether the object at a key has to be encrypted."""
        _, _, name = key.partition(_MANIFESTS)
        return not self._encrypted_from or (bool(name) and _number_of(name) >= self._encrypted_from)

    def __len__(self) -> int:
        return len(self._data_keys)

    def seal(self, data: bytes, associated: str) -> bytes:
        """Returns data sealed under the last data key, with the key's id before them."""
        name, key = list(self._data_keys.items())[-1]
        return name + _seal(key, data, associated.encode())

    def open(self, sealed: bytes, associated: str, place: str) -> bytes:
        """Returns what was sealed. Raises Corrupt where it was changed, or sealed under a key that is not
        here."""
        key = self._data_keys.get(sealed[:_ID])
        if key is None:
            raise Corrupt("decrypt", place, "it is encrypted under a data key that the keyring does not hold")
        return _open(key, sealed[_ID:], associated.encode(), place)


class WrappedKeys:
    """The `FileKeys` of a Parquet file: its name is associated data."""

    def __init__(self, store: EncryptedStore, key: str) -> None:
        self._store, self._folder = store, key.partition("/")[0]
        self._associated, self._place = f"key of {key}", f"{store.url}/{key}"

    def wrap(self, file_key: bytes) -> str:
        """Returns a file's key as its footer holds it."""
        keyring = self._store.keyring(self._folder, may_make=True)
        return base64.b64encode(keyring.seal(file_key, self._associated)).decode()

    def unwrap(self, wrapped: str) -> bytes:
        """Returns a file's key. Raises Corrupt where it is that of a file of another name, and HaltedError
        where no key opens the keyring."""
        keyring = self._store.keyring(self._folder)
        return keyring.open(base64.b64decode(wrapped), self._associated, self._place)


#: What the number in a keyring is sealed as.
_ENCRYPTED_FROM = "encrypted from"
_MANIFESTS = "/meta/manifests/"


def _number_of(name: str) -> int:
    """Returns the number of a commit, of the name of its manifest: of one that is none, the largest."""
    digits = name.partition("_")[0]
    return int(digits) if digits.isdecimal() else 2**63


def is_keyring(data: bytes) -> bool:
    """Returns whether these are the bytes of a keyring, whatever keys open it."""
    try:
        return bool(json.loads(data)["keys"])
    except (ValueError, LookupError, TypeError):
        return False


def keyring_key(folder: str) -> str:
    """Returns the key of the keyring of a policy's folder."""
    return f"{folder}/meta/keyring.json"


def _is_parquet(key: str) -> bool:
    return key.endswith(".parquet")


class EncryptedStore(ForwardingStore):
    """The store behind it, whose objects below the folders of policies are encrypted where there is a key.

    What was written before there was a key is read as it lies, but for commits from the first encrypted one
    on, of which the keyring tells: a plain object in their place is damage."""

    def __init__(self, store: ObjectStore, keys: Callable[[], EncryptionKeys]) -> None:
        """`keys`: asked for once, when they are needed."""
        super().__init__(store)
        self._find_keys = keys
        self._keys: EncryptionKeys | None = None
        self._rings: dict[str, Keyring] = {}
        self._plain: set[str] = set()  # folders without a keyring
        self._lock = RLock()

    def find_keys(self) -> None:
        """Asks for the keys. Raises UsageError where a command does not print them."""
        _ = self.keys

    @property
    def keys(self) -> EncryptionKeys:
        """Returns the keys of the store."""
        with self._lock:
            if self._keys is None:
                self._keys = self._find_keys()
        return self._keys

    def file_keys(self, key: str) -> FileKeys | None:
        """Returns what wraps the key of a Parquet file; None where there are no keys."""
        return WrappedKeys(self, key) if self.keys else None

    def put_bytes(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        storage_class: str | None = None,
        locked_from: datetime | None = None,
    ) -> None:
        """Seals and writes an object. A Parquet file has to be encrypted already."""
        folder, _, rest = key.partition("/")
        if self.keys and _is_inside(folder, rest):
            if not _is_parquet(key):
                data = MAGIC + self.keyring(folder, may_make=True).seal(data, key)
            elif not data.startswith(PARQUET_MAGIC):
                raise StoreError("put", f"{self.url}/{key}", "it is not encrypted, and has to be")
        super().put_bytes(
            key, data, if_absent=if_absent, storage_class=storage_class, locked_from=locked_from
        )

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        """Returns the bytes of an object, decrypted; those of a Parquet file as they lie. Raises Corrupt, and
        HaltedError where there is no key for them."""
        return self.opened(key, self._store.get_bytes(key, size))

    def get_sound(self, key: str, is_sound: Callable[[bytes], bool], size: int | None = None) -> bytes:
        """Returns the bytes of an object that must be there, as `get_bytes` does."""
        lying = self._store.get_sound(key, lambda it: self.is_sound(key, it, is_sound), size)
        return self.opened(key, lying)

    def is_sound(self, key: str, lying: bytes, is_sound: Callable[[bytes], bool]) -> bool:
        """Returns whether the bytes of an object, as they lie, can be decrypted, and are sound then."""
        try:
            return is_sound(self.opened(key, lying))
        except Corrupt:
            return False

    def opened(self, key: str, lying: bytes) -> bytes:
        """Returns the bytes of an object, decrypted, from those that lie there. Raises as `get_bytes`."""
        folder, _, rest = key.partition("/")
        if _is_parquet(key) or not _is_inside(folder, rest):
            return lying
        if not lying.startswith(MAGIC):
            if self.keys and self._refuses_plain(folder, key):
                raise Corrupt("read", f"{self.url}/{key}", "it is not encrypted, and what lies beside it is")
            return lying
        return self.keyring(folder).open(lying[len(MAGIC) :], key, f"{self.url}/{key}")

    def _refuses_plain(self, folder: str, key: str) -> bool:
        with self._lock:
            if folder not in self._rings and folder not in self._plain:
                if (there := self._ring_there(folder)) is None:
                    self._plain.add(folder)  # nothing can be told of it
                else:
                    self._rings[folder] = there
            ring = self._rings.get(folder)
        return ring is not None and ring.refuses(key)

    def over(self, store: ObjectStore) -> EncryptedStore:
        """Returns another store that is encrypted under the same keys."""
        return EncryptedStore(store, lambda: self.keys)

    @property
    def inner(self) -> ObjectStore:
        """Returns the store behind it, with what lies there as it lies."""
        return self._store

    def check(self, key: str, size: int | None, sha256: str) -> None:
        """Raises where the store does not hold these bytes. Reads what it has sealed."""
        if _is_parquet(key) or not self.keys:
            self._store.check(key, size, sha256)
        else:
            check_bytes(self.get_bytes(key), sha256, f"{self.url}/{key}")

    def rekey(self, folder: str) -> int:
        """Wraps the data keys of a policy's folder by the first key. Returns how many; 0 where nothing there
        is encrypted. Raises HaltedError where no key opens them, or the store does not hold what was
        written."""
        key = keyring_key(folder)
        if (ring := self._ring_there(folder)) is None:
            if self._is_encrypted(folder):
                self._read_ring(folder, may_make=False)  # raises
            return 0
        self._store.put_bytes(key, written := ring.written(self.keys))
        if self._store.get_bytes(key) != written:
            raise HaltedError(
                f"{self.url}/{key}: it is not as it was written. Look at the store, then run again"
            )
        return len(ring)

    def keyring(self, folder: str, *, may_make: bool = False) -> Keyring:
        """Returns the keyring of a policy's folder; `may_make`: a new one where nothing there is encrypted.
        Raises HaltedError where it is missing, or no key opens it."""
        with self._lock:
            if folder not in self._rings:
                self._rings[folder] = self._read_ring(folder, may_make)
            return self._rings[folder]

    def _ring_there(self, folder: str) -> Keyring | None:
        """Returns the keyring that lies in a folder; None where there is none."""
        key = keyring_key(folder)
        try:
            data = self._store.get_sound(key, is_keyring)
        except NotFound:
            return None
        return Keyring.read(data, self.keys, f"{self.url}/{key}")

    def _read_ring(self, folder: str, may_make: bool) -> Keyring:
        key = keyring_key(folder)
        place = f"{self.url}/{key}"
        if (there := self._ring_there(folder)) is not None:
            return there
        if not self.keys:
            raise HaltedError(f"{place}: the archive is encrypted, its keyring is missing, and {_NO_KEY}")
        if not may_make or self._is_encrypted(folder):
            raise HaltedError(
                f"{place}: the keyring is missing, and what lies beside it is encrypted. Nothing was "
                "changed. Restore the file from a backup: nothing can be decrypted without it"
            )
        with suppress(AlreadyExists):  # another process has made it meanwhile
            made = Keyring.new(self._next(folder))
            self._store.put_bytes(key, made.written(self.keys), if_absent=True)
        return Keyring.read(self._store.get_bytes(key), self.keys, place)

    def _next(self, folder: str) -> int:
        """Returns the number of the next commit in a folder; 0 where nothing lies there."""
        if next(iter(self._store.list(f"{folder}/")), None) is None:
            return 0
        names = (it.key.partition(_MANIFESTS)[2] for it in self._store.list(f"{folder}{_MANIFESTS}"))
        return max((_number_of(it) for it in names), default=0) + 1

    def _is_encrypted(self, folder: str) -> bool:
        """Returns whether the last commit in a folder is encrypted, or the file that says whose it is."""
        manifests = [it.key for it in self._store.list(f"{folder}{_MANIFESTS}")]
        for key in (f"{folder}/meta/owner.json", *manifests[-1:]):
            with suppress(NotFound):
                if self._store.get_bytes(key).startswith(MAGIC):
                    return True
        return False


def _is_inside(folder: str, rest: str) -> bool:
    """Returns whether a key lies in a policy's folder; others hold no readings."""
    return bool(rest) and not folder.startswith(".") and f"{folder}/{rest}" != keyring_key(folder)
