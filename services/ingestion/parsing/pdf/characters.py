"""Kinds of characters, and plain ones for those that only PDF files have."""

import re
import unicodedata
from typing import Final

import numpy as np
from numpy.typing import NDArray

BLANK: Final = 1
CONTROL: Final = 2  # nothing that is seen: the font doesn't say what it draws
CJK: Final = 4
PRIVATE: Final = 8

# What PDFium gives for the hyphen at a line's end that it knows.
_HYPHENS: Final = str.maketrans("\ufffe\x02", "--")
# Ligatures, and the Kangxi radicals that fonts of Chinese files name where they mean the character.
_BY_COMPATIBILITY: Final = re.compile("[\ufb00-\ufb06\u2f00-\u2fd5]")
# The radicals beyond Kangxi's that have a character of their own shape (Unicode's EquivalentUnifiedIdeograph).
_RADICALS: Final = str.maketrans(
    "⺟⺠⻁⻄⻅⻆⻉⻋⻓⻔⻘⻙⻚⻛⻜⻝⻢⻣⻤⻥⻦⻨⻩⻬⻮⻰",
    "母民虎西见角贝车长门青韦页风飞食马骨鬼鱼鸟麦黄齐齿龙",
)


def _kinds() -> NDArray[np.uint8]:
    kinds = np.zeros(0x10000, np.uint8)
    kinds[[*range(0x09, 0x0E), 0x20, 0xA0, 0x3000, *range(0x2000, 0x200C), 0x202F]] = BLANK
    kinds[[*range(2), *range(3, 9), *range(14, 32), 127, 0xFEFF, 0xFFFF]] = CONTROL
    for first, last in ((0x2E80, 0x9FFF), (0xF900, 0xFAFF), (0xFE30, 0xFE4F), (0xFF00, 0xFFEF)):
        kinds[first : last + 1] |= CJK
    kinds[0x3000] = BLANK
    kinds[0xE000:0xF900] = kinds[0xFFFD] = PRIVATE
    return kinds


_KINDS: Final = _kinds()


def kinds_of(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return BLANK, CONTROL, CJK, PRIVATE or 0 for each code point."""
    kinds = _KINDS[np.minimum(codes, 0xFFFF)]
    beyond = codes > 0xFFFF
    if beyond.any():
        kinds[beyond] = np.where((codes[beyond] >= 0x20000) & (codes[beyond] < 0x40000), CJK, 0)
    return kinds


def readable(text: str) -> str:
    """Return the text with plain characters for ligatures, radicals and hyphens."""
    if text.isascii() and "\x02" not in text:
        return text
    text = _BY_COMPATIBILITY.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)
    text = text.translate(_RADICALS).translate(_HYPHENS)
    return text[:-1].replace("\u00ad", "") + text[-1].replace("\u00ad", "-")
