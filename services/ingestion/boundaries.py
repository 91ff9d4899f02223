"""Where text may be cut: the natural boundaries, strongest first, and the characters that belong together."""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

# A full stop behind one of these, or behind an initial, ends no sentence as a rule. By length, as lookbehinds have to be.
_ABBREVIATIONS: Final = (
    "ca cf vs pp al Co Dr Jr Mr Ms Sr St",
    "e.g i.e etc viz Mrs Col Gen Inc Ltd Vol Fig Nos Sec",
    "Prof Capt Corp Dept Figs resp incl",
)
_ENDS_NO_ABBREVIATION = r"(?<!\b[A-Z]\.)" + "".join(
    rf"(?<!\b(?:{'|'.join(map(re.escape, words.split()))})\.)" for words in _ABBREVIATIONS
)
_CLOSING = r"[\"')\]”’]{0,4}"
# Each pattern matches the end of a unit and the white space behind it: the boundary is the match's end.
BOUNDARIES: Final = (
    re.compile(r"\n[ \t]*\n\s*"),  # paragraphs
    re.compile(r"\n"),  # lines
    re.compile(
        rf"(?:[。！？；]|…+)[”’」』）】]*\s*|[.!?;]{{1,8}}(?={_CLOSING}\s){_ENDS_NO_ABBREVIATION}{_CLOSING}\s+"
    ),  # sentences
    re.compile(r"[，、：]\s*|[,:]\s+"),  # clauses
    re.compile(r"\s+"),  # words
)
# What ends a unit of the sentence method, and the white space behind it: a sentence, a paragraph, the line before an item of a list. A
# sentence doesn't begin with a small letter.
SENTENCE_END: Final = re.compile(
    rf"""(?:[。！？]|…+)[”’」』）】]*\s*
    | [.!?]{{1,8}}(?={_CLOSING}\s){_ENDS_NO_ABBREVIATION}{_CLOSING}\s+(?![\sa-z])
    | \n[ \t]*\n\s*
    | \n(?=[ \t]*(?:[-*+•]|[0-9]{{1,3}}[.)、])[ \t])""",
    re.VERBOSE,
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
