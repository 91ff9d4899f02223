"""The words of a document, which tell how a word was written before a line's end broke it."""

import re
from collections.abc import Iterable
from typing import Final

_WORD: Final = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
# Letters alone behind a blank or an opening mark: no identifier, no address, no option.
_BROKEN: Final = re.compile(r"(?<![^\s(\[“‘\"'«„‚])([^\W\d_]{2,})[-‐]$")
_MAX_WORD: Final = 60


class Words:
    """Knows each word that stands whole in one of the lines, and the parts of those with a hyphen."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._known: set[str] = set()
        for line in lines:
            text = line.rstrip()
            words = _WORD.findall(text.casefold())
            if text.endswith(("-", "‐")):
                words = words[:-1]  # the first part of a broken word is none
            self._known.update(words)
            self._known.update(part for word in words if "-" in word for part in word.split("-"))

    def mended(self, text: str, rest: str) -> str | None:
        """Return the text with the word mended that ends it with a hyphen and goes on with `rest`; None if it is no such word.

        The hyphen stays where the document has the word with it, or knows both parts as words but not the whole.
        """
        broken = _BROKEN.search(text[-_MAX_WORD:])
        if not broken:
            return None
        first, hyphenated = broken[1].casefold(), text + rest
        whole = first + rest in self._known
        if not whole and (f"{first}-{rest}" in self._known or {first, rest} <= self._known):
            return hyphenated
        return text[:-1] + rest
