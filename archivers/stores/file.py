"""A store in a directory: each object is a file, written aside and moved into place.

No symbolic link below the directory is followed: what lies behind one is not in the store. A link itself is
listed, can't be read, and is removed or replaced without a look at where it leads. The directory itself may
be one.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from bucketwise.archivers.stores.base import (
    AlreadyExists,
    Corrupt,
    Denied,
    Missing,
    NotFound,
    ObjectStore,
    OlderVersions,
    PlainStore,
    Requests,
    Rights,
    StoreError,
    StoreObject,
    Versioning,
    check_bytes,
    check_size,
    checked_key,
    probe_store,
)
from bucketwise.config.tables import StorePlace

_TEMPORARY = ".tmp"
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_ABSENT = (FileNotFoundError, NotADirectoryError)
_PUT_TRIES = 5


def open_store(settings: StorePlace) -> ObjectStore:
    """Returns the directory at the URL of the settings."""
    return FileStore(Path(unquote(urlsplit(settings.url).path)))


class FileStore(PlainStore):
    """A store in a directory, which must exist: where a mount is absent, nothing is written in its place."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._temporaries = root / _TEMPORARY
        self.requests = Requests()

    @property
    def url(self) -> str:
        """Returns the file:// URL of the directory."""
        return self._root.absolute().as_uri()

    def check_there(self) -> None:
        """Raises Missing where the directory does not exist."""
        if not self._root.is_dir():
            where = self._root.absolute()
            remedy = f"Create it (mkdir -p {shlex.quote(str(where))}), mount it, or correct store.url"
            raise Missing("use", self.url, "there is no such directory", remedy)

    def put_bytes(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        storage_class: str | None = None,  # noqa: ARG002 - a directory has none
        locked_from: datetime | None = None,  # noqa: ARG002 - nor locks
    ) -> None:
        """Writes an object aside, syncs it, and moves it into place."""
        self.check_there()
        with self._errors("put", key):
            target = self._path(key)
            temporary = self._temporaries / f"{key.split('/')[0]}.{uuid4().hex}"
            try:
                self._check_folders(_TEMPORARY)
                _make_folders(self._temporaries, self._root)
                with temporary.open("xb") as sink:
                    sink.write(data)
                    sink.flush()
                    os.fsync(sink.fileno())
                placed = _place(temporary, target, self._root, if_absent)
            finally:
                temporary.unlink(missing_ok=True)
        if not placed:
            raise AlreadyExists("put", f"{self.url}/{key}", "it already exists")

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        """Returns the bytes of an object; follows no symbolic link."""
        with self._errors("get", key):
            path = self._path(key)
            if path.is_symlink():
                raise _linked("get", path)
            with path.open("rb") as source:
                check_size(os.fstat(source.fileno()).st_size, size, f"{self.url}/{key}")
                return source.read()

    def head(self, key: str) -> StoreObject | None:
        """Returns what is known of an object; None where there is none."""
        try:
            with self._errors("look at", key):
                return _described(key, self._path(key))
        except NotFound:
            return None

    def check(self, key: str, size: int | None, sha256: str) -> None:
        """Reads the object: a directory keeps no checksum, and neither its size nor its time tells that a bit
        has flipped."""
        check_bytes(self.get_bytes(key, size), sha256, f"{self.url}/{key}")

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoreObject]:
        """Yields the objects whose keys begin with `prefix` and come after the key `after`, sorted by key."""
        folder = prefix.rpartition("/")[0]
        with self._errors("list", prefix):
            top = self._path(f"{folder}/_").parent if folder else self._root
            found = list(self._walk(top, lambda key: key.startswith(prefix) and key > after))
        yield from sorted(found, key=lambda item: item.key)

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects, and the folders that they leave empty. Absent ones are no error."""
        for key in keys:
            with self._errors("delete", key):
                path = self._path(key)
                try:
                    path.unlink()
                except _ABSENT:
                    continue
                self._remove_empty(path.parent)

    def versioning(self) -> Versioning:
        """Returns that there is none: a directory has neither versions nor locks."""
        return Versioning()

    def older_versions(self, prefix: str) -> Sequence[OlderVersions]:  # noqa: ARG002
        """Returns none: a file that is gone is gone."""
        return []

    def clean_temporaries(self, before: datetime | None, folder: str | None = None) -> int:
        """Removes what broken-off writes left before that time. Returns how many files."""
        count = 0
        with self._errors("clean", _TEMPORARY):
            self._check_folders(_TEMPORARY)
            for path in self._temporaries.glob("*"):
                if folder not in (None, _folder_of(path)):
                    continue
                with suppress(PermissionError):  # another user's: the others are removed all the same
                    if before is None or path.lstat().st_mtime < before.timestamp():
                        path.unlink(missing_ok=True)
                        count += 1
        return count

    def unfinished(self, folder: str) -> Sequence[str]:
        """Returns the files of broken-off writes below the folder, and those that don't tell where they
        belong: of older releases."""
        with self._errors("list", _TEMPORARY):
            self._check_folders(_TEMPORARY)
            found = [it for it in self._temporaries.glob("*") if _folder_of(it) in (folder, "")]
        return sorted(it.absolute().as_uri() for it in found)

    def probe(self) -> bool:
        """Tries every right, with an object that is removed again."""
        where = self._root
        rights = Rights(f"write in {where}", f"read in {where}", f"list {where}", f"delete in {where}")
        was_used = self._temporaries.exists()
        try:
            return probe_store(self, rights, lambda key: _refuses_links(self._path(key)))
        finally:
            if not was_used:
                with suppress(OSError):  # a write is under way in it, or it could not be made
                    self._temporaries.rmdir()

    def _path(self, key: str) -> Path:
        checked = checked_key(key, self.url)
        if checked.split("/")[0] == _TEMPORARY:
            raise StoreError("use key", f"{self.url}/{key}", f"{_TEMPORARY} is kept for unfinished writes")
        self._check_folders(checked.rpartition("/")[0])
        return self._root / checked

    def _check_folders(self, folder: str) -> None:
        """Raises Corrupt where a link stands in place of a folder."""
        path = self._root
        for name in filter(None, folder.split("/")):
            path = path / name
            if path.is_symlink():
                raise _linked("use", path)

    def _walk(self, top: Path, is_wanted: Callable[[str], bool]) -> Iterator[StoreObject]:
        def refuse(error: OSError) -> None:
            if not isinstance(error, _ABSENT):
                raise error

        for folder, folders, files in os.walk(top, onerror=refuse):
            here = Path(folder)
            if here == self._root and _TEMPORARY in folders:
                folders.remove(_TEMPORARY)
            above = "" if here == self._root else f"{here.relative_to(self._root).as_posix()}/"
            for name in (*files, *(name for name in folders if (here / name).is_symlink())):
                if not is_wanted(key := above + name):
                    continue
                try:
                    yield _described(key, here / name)
                except _ABSENT:
                    continue  # deleted since the folder was read

    def _remove_empty(self, folder: Path) -> None:
        """Removes folders that hold nothing now, and syncs the removal."""
        while folder != self._root:
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                break
            folder = folder.parent
        _sync_folder(folder)

    @contextmanager
    def _errors(self, operation: str, key: str) -> Iterator[None]:
        place = f"{self.url}/{key}"
        self.requests.count("head" if operation == "look at" else operation)
        try:
            yield
        except _ABSENT:
            raise NotFound(operation, place, "no such file") from None
        except PermissionError as error:
            raise Denied(operation, place, str(error), "Grant this user that right.") from error
        except OSError as error:
            remedy = "Free some space." if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            raise StoreError(operation, place, str(error), remedy) from error


def _folder_of(temporary: Path) -> str:
    """Returns the first folder of the object that an unfinished write was for; empty where it is not told."""
    return temporary.name.rpartition(".")[0]


def _described(key: str, path: Path) -> StoreObject:
    found = path.lstat()
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        raise FileNotFoundError(path)
    return StoreObject(key, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))


def _linked(operation: str, path: Path) -> Corrupt:
    remedy = (
        "Links are not followed inside a store. Find out who put it there, and restore what belongs there."
    )
    return Corrupt(operation, path.absolute().as_uri(), "it is a symbolic link", remedy)


def _place(temporary: Path, target: Path, root: Path, if_absent: bool) -> bool:
    """Moves a finished file to its place; False where `if_absent` forbids it."""
    for attempt in range(_PUT_TRIES):
        try:
            _make_folders(target.parent, root)
            if not if_absent:
                temporary.replace(target)
            elif not _link(temporary, target):
                return False
            _sync_folder(target.parent)
            return True
        except FileNotFoundError as error:  # a concurrent delete removed the folder while it was empty
            if attempt == _PUT_TRIES - 1:
                raise OSError(errno.EAGAIN, "its folder keeps disappearing", str(target.parent)) from error
    raise AssertionError("unreachable")


def _link(temporary: Path, target: Path) -> bool:
    try:
        target.hardlink_to(temporary)
    except OSError as error:
        if target.exists():  # ours, where the reply of a network was lost
            return target.samefile(temporary)
        if error.errno not in _NO_LINKS:
            raise
        temporary.replace(target)  # the probe has found that this file system has no links
    return True


def _refuses_links(existing: Path) -> bool:
    """Returns whether this file system has hard links, and keeps them from replacing a file."""
    try:
        existing.hardlink_to(existing)
    except FileExistsError:
        return True
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    return False


def _make_folders(folder: Path, root: Path) -> None:
    """Makes the folder and its parents below `root`, each durable before what goes into it."""
    if folder == root or folder.is_dir():
        return
    _make_folders(folder.parent, root)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
