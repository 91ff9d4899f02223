"""Where text may be cut: the natural boundaries, strongest first, and the characters that belong together."""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

# Each pattern matches the end of a unit and the white space behind it: the boundary is the match's end.
BOUNDARIES: Final = (
    re.compile(r"\n[ \t]*\n\s*"),  # paragraphs
    re.compile(r"\n"),  # lines
    re.compile(r"(?:[。！？；]|…+)[”’」』）】]*\s*|[.!?;]+[\"')\]]*\s+"),  # sentences
    re.compile(r"[，、：]\s*|[,:]\s+"),  # clauses
    re.compile(r"\s+"),  # words
)
_WORD = re.compile(r"[A-Za-z0-9_]")
_LONGEST_WORD = 40
_JOINERS = frozenset("\u200d\ufe0e\ufe0f\u20e3")  # zero-width joiner, variation selectors, keycap
_SKIN_TONES = ("\U0001f3fb", "\U0001f3ff")


def last_boundary(text: str, low: int, high: int, allowed: Callable[[int], bool]) -> int:
    """Return the last allowed offset in (low, high] at which the strongest boundary there ends.

    Where there is none the offset is `high`, moved back off the middle of a Latin word or of a composed character.
    """
    for boundary in BOUNDARIES:
        ends = [match.end() for match in boundary.finditer(text, low, high)]
        for end in reversed(ends):
            if end > low and allowed(end):
                return end
    return between_characters(text, low, high)


def between_characters(text: str, low: int, high: int) -> int:
    """Return the last offset in (low, high] that tears neither a Latin word nor a composed character, else `high`."""
    for offset in range(high, max(low, high - _LONGEST_WORD), -1):
        if not _joined(text, offset):
            return offset
    return high


def _joined(text: str, offset: int) -> bool:
    if not 0 < offset < len(text):
        return False
    before, after = text[offset - 1], text[offset]
    if _WORD.match(before) and _WORD.match(after):
        return True
    return (
        unicodedata.combining(after) != 0
        or after in _JOINERS
        or before == "\u200d"
        or _SKIN_TONES[0] <= after <= _SKIN_TONES[1]
    )
