"""Finds values of a series wherever they occur as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

#: Shorter texts would be found everywhere inside other texts; and so would numbers, `true` and `false`.
_SHORTEST = 3


class TextMatcher:
    """Texts to search for. A longer text contains one where it occurs as a word, not next to letters or
    digits."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(it for it in texts if it)
        words = [it for it in self._texts if len(it) >= _SHORTEST and not _is_common(it)]
        self._word = _words(words) if words else None
        self._any = _words(self._texts)
        self._encoded = [it.encode(errors="surrogatepass") for it in self._texts if not _is_common(it)]

    @property
    def is_whole(self) -> bool:
        """Returns whether all of the texts are looked for inside others as well."""
        return all(len(it) >= _SHORTEST and not _is_common(it) for it in self._texts)

    def may_be_in(self, data: bytes) -> bool:
        """Returns whether documents with these bytes may hold one of the texts that are looked for."""
        return any(it in data for it in self._encoded)

    def is_in(self, value: object) -> bool:
        """Returns whether one stands in a value, or in what it holds."""
        if isinstance(value, str):
            is_equal = value in self._texts and not _is_common(value)
            return is_equal or (self._word is not None and self._word.search(value) is not None)
        if isinstance(value, Mapping):
            return any(self.is_in(key) or self.is_in(inner) for key, inner in value.items())
        if isinstance(value, (list, tuple)):
            return any(map(self.is_in, value))
        return False

    def is_named_in(self, reason: str) -> bool:
        """Returns whether a text for people names one, in capitals or not."""
        return self._any.search(reason.casefold()) is not None


def _words(texts: Iterable[str]) -> re.Pattern[str]:
    either = "|".join(sorted({re.escape(form) for it in texts for form in (it, it.casefold())}))
    return re.compile(rf"(?<![^\W_])(?:{either})(?![^\W_])")


def _is_common(text: str) -> bool:
    if text in ("true", "false", "null"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
