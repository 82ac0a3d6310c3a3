"""Problems of a policy file, gathered in one pass and reported at once."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from bucketwise.config.errors import HIDDEN, BucketwiseError, hide_in_url, hide_secrets

#: Where a value stands: the names of its tables, then its own.
Key = tuple[str, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_URLS = {"uri", "url", "endpoint_url"}
_MAY_SHOW = re.compile(r"://|\A\$\{[^}]*\}\Z")
_SECRET = {("store", "signing_key"), ("store", "encryption_key"), ("publish", "redis", "url")}
_IS_NAME = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_LONGEST_SHOWN = 120
_AS_WRITTEN = object()


class Fault(NamedTuple):
    """A fault of one value, and how to fix it."""

    message: str
    remedy: str


class InvalidValueError(ValueError):
    """A text is not a valid value."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.fault = Fault(message, remedy)


@dataclass(frozen=True)
class Problem:
    """One error in the configuration, and how to fix it. As text, it is what is printed."""

    file: str  # or the environment variable that the value came from
    key: str  # dotted; empty where the whole file is meant
    value: str | None  # as written, secrets hidden; None where there is none
    message: str
    remedy: str
    line: int | None = None  # from 1

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        lines = [f"{place}: {self.key}" if self.key else place]
        if self.value is not None:
            lines.append(f"  value: {self.value}")
        return "\n".join([*lines, f"  error: {self.message}", f"  fix:   {self.remedy}"])


class ConfigError(BucketwiseError):
    """The configuration is invalid. Nothing was connected to or changed."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        head = f"{count} in the policy file; nothing was changed"
        super().__init__("\n\n".join([head, *map(str, self.problems)]))

    def as_dicts(self) -> list[dict[str, Any]]:
        """Returns the problems for machines: file, key, value, message, mend and line of each."""
        renamed = {"remedy": "mend"}
        return [
            {renamed.get(key, key): value for key, value in asdict(problem).items()}
            for problem in self.problems
        ]


def dotted(key: Key) -> str:
    """Returns the key as TOML writes it."""
    return ".".join(name if _BARE.fullmatch(name) else json.dumps(name) for name in key)


class ProblemReport:
    """Collects problems. It knows what the file says at each key, so that messages show values as they were
    written.

    A *broken* key has no usable value. What follows from it alone is not reported again.
    """

    def __init__(
        self, file: str, written: Mapping[str, Any], lines: Mapping[Key, int], variables: Mapping[Key, str]
    ) -> None:
        self._file = file
        self._written = written
        self._lines = lines
        self._variables = variables  # key -> the environment variable that overrides it
        self._problems: list[Problem] = []
        self._broken: set[Key] = set()
        self._spelling: dict[Key, str] = {}  # the key that was meant -> its last name as written
        self._misspelt: set[Key] = set()
        self._former: list[Key] = []
        self._spelt: dict[str, str] = {}  # a string with its `${NAME}` replaced -> as written

    @property
    def problems(self) -> list[Problem]:
        """Returns the problems in the order of the file; those without a line come last."""
        return sorted(self._problems, key=lambda it: (it.line is None, it.line))

    def add(
        self, key: Key, fault: Fault, *, value: object = _AS_WRITTEN, rests_on: Iterable[Key] = ()
    ) -> None:
        """Reports `fault` at `key`, unless `key` or one of `rests_on` is broken.

        `value`: what is at fault, where that is a part of what stands at the key."""
        if not any(self._is_broken(it) for it in (key, *rests_on)):
            meant, key = key, self._as_spelt(key)
            variable = self._variables.get(key)
            self._problems.append(
                Problem(
                    file=f"environment variable {variable}" if variable else self._file,
                    key=dotted(key),
                    value=self._at(key, meant) if value is _AS_WRITTEN else self.quote(value),
                    message=fault.message,
                    remedy=fault.remedy,
                    line=None if variable else self._line(key),
                )
            )

    def unknown(self, key: Key, fault: Fault) -> None:
        """Reports an unknown key. Outside the policies its value is hidden, since it may be a credential."""
        self.add(key, fault, value=_AS_WRITTEN if key[0] == "policies" and len(key) > 2 else _Hidden())

    def broken(self, key: Key, fault: Fault | None = None) -> None:
        """Reports `fault` at `key`, which has no usable value. No fault: it is reported already."""
        if fault is not None:
            self.add(key, fault)
        self._broken.add(key)

    def misspelt(self, key: Key, as_written: str) -> None:
        """Treats the key that the file calls `as_written` as `key`."""
        self._spelling[key] = as_written
        self._misspelt.add(key)

    def deprecated(self, key: Key, as_written: str) -> None:
        """Notes that the file has `key` under a former name."""
        self._spelling[key] = as_written
        self._former.append(key)

    @property
    def former_names(self) -> list[tuple[str, str]]:
        """Returns the place of each key that has a former name in the file, and its name."""
        places = [(self._as_spelt(it), it[-1]) for it in self._former]
        return [(f"{self._file}:{self._line(key)}: {dotted(key)}", name) for key, name in places]

    def is_misspelt(self, key: Key) -> bool:
        """Returns whether the file has this key under another name, which is reported already."""
        return key in self._misspelt

    def expanded(self, text: str, as_written: str) -> None:
        """Remembers that `text` is what `as_written` became, so that it is never shown."""
        self._spelt[text] = as_written

    def quote(self, value: object) -> str:
        """Returns `value` for people: as written, secrets hidden."""
        return _show(self._spelt.get(value, value) if isinstance(value, str) else value)

    def _is_broken(self, key: Key) -> bool:
        return any(key[:length] in self._broken for length in range(1, len(key) + 1))

    def _as_spelt(self, key: Key) -> Key:
        return tuple(self._spelling.get(key[: i + 1], name) for i, name in enumerate(key))

    def _at(self, key: Key, meant: Key) -> str | None:
        at: Any = self._written
        for name in key:
            if isinstance(at, list) and name.isdecimal():  # tables of a list are counted from 1
                at = {str(number): item for number, item in enumerate(at, start=1)}
            if not isinstance(at, Mapping) or name not in at:
                return None
            at = at[name]
        if meant == ("mongodb", "uri") and not (isinstance(at, str) and _MAY_SHOW.search(at)):
            return HIDDEN  # whatever it is, it was put where a password belongs
        is_secret = meant in _SECRET
        is_secret = is_secret or meant[:2] == ("lake", "properties")
        is_secret = is_secret or (meant[0] == "notify" and meant[-1] != "on")
        if is_secret and not (isinstance(at, str) and _IS_NAME.fullmatch(at)):
            return HIDDEN
        return _show(hide_in_url(at) if isinstance(at, str) and meant[-1] in _URLS else at)

    def _line(self, key: Key) -> int | None:
        found = (self._lines.get(key[:length]) for length in range(len(key), 0, -1))
        return next((line for line in found if line is not None), None)


class _Hidden:
    def __str__(self) -> str:
        return HIDDEN


def _show(value: object) -> str:
    if isinstance(value, Mapping):
        return "{…}" if value else "{}"
    if isinstance(value, str) and "://" in value:
        value = hide_in_url(value)
    plain = isinstance(value, str | bool | list | tuple)
    text = hide_secrets(json.dumps(value, ensure_ascii=False, default=str) if plain else str(value))
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name that this one was probably meant to be; None where none is near."""
    folded = {it.casefold(): it for it in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    return folded[near[0]] if near else None
