"""From PDFium's glyphs to segments.

PDFium gives the glyphs in the order in which they were drawn, with blanks and line ends where it supposes them. Blanks in
the file are kept; the supposed ones count only together with the gap that is really there.
"""

import ctypes
import math
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Final

import numpy as np
import pypdfium2 as pdfium
from numpy.typing import NDArray
from pypdfium2 import raw

from services.ingestion.parsing.pdf.characters import BLANK, CJK, CONTROL, PRIVATE, kinds_of, readable
from services.ingestion.parsing.pdf.segments import Page, Segment

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]

# Gaps as a share of the glyphs' height, which is 1 to 1.4 times the font's size.
_WIDE_GAP: Final = 0.6  # wider than most blanks between words
_CERTAIN_BLANK: Final = 0.25
_CJK_BLANK: Final = 0.15  # Chinese spread over a line gets no blanks
_SAME_LINE: Final = 0.5  # of the lower glyph's height overlaps
_FARAWAY: Final = 1e6
_FLAT: Final = 0.01  # points
_SAMPLES: Final = 40  # of a page's objects
_LEAN: Final = 0.001
_SLANT: Final = 0.2  # radians, from which on a glyph is not in line


def read_page(page: pdfium.PdfPage) -> Page:
    """Return what is written on the page."""
    items = range(raw.FPDFPage_CountObjects(page))
    if any(_is_flat(page, index) for index in items[:: 1 + len(items) // _SAMPLES]):
        _lean(page, items)
    textpage = page.get_textpage()
    try:
        return _Glyphs(textpage.raw).page()
    finally:
        textpage.close()


def _lean(page: pdfium.PdfPage, items: Iterable[int]) -> None:
    """Lean flat text by a thousandth.

    What has no extent is left out by PDFium, or is taken for a repetition of what is like it; and glyphs of a font that
    is neither in the file nor in the system have none.
    """
    for index in items:
        if _is_flat(page, index):
            raw.FPDFPageObj_Transform(raw.FPDFPage_GetObject(page, index), 1, _LEAN, _LEAN, 1, 0, 0)


def _is_flat(page: pdfium.PdfPage, index: int) -> bool:
    """Whether the object is text that seems to have no height or no width."""
    item = raw.FPDFPage_GetObject(page, index)
    if raw.FPDFPageObj_GetType(item) != raw.FPDF_PAGEOBJ_TEXT:
        return False
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    known = raw.FPDFPageObj_GetBounds(item, left, bottom, right, top)
    return bool(known) and min(right.value - left.value, top.value - bottom.value) < _FLAT


class _Glyphs:
    def __init__(self, textpage: object) -> None:
        self._textpage = textpage
        count = max(raw.FPDFText_CountChars(textpage), 0)
        self._codes = np.fromiter(map(raw.FPDFText_GetUnicode, repeat(textpage), range(count)), np.uint32, count)
        self._kinds = kinds_of(self._codes)
        boxes = (raw.FS_RECTF * count)()
        deque(map(raw.FPDFText_GetLooseCharBox, repeat(textpage), range(count), boxes), maxlen=0)
        places = np.frombuffer(boxes, np.float32).reshape(-1, 4).astype(np.float64) if count else np.zeros((0, 4))
        if not np.isfinite(places).all() or np.abs(places).max(initial=0) > _FARAWAY:
            places = np.clip(np.nan_to_num(places), -_FARAWAY, _FARAWAY)
        # FS_RECTF is left, top, right, bottom; a glyph of a mirrored font has them the wrong way round.
        self._left, self._right = np.minimum(places[:, 0], places[:, 2]), np.maximum(places[:, 0], places[:, 2])
        self._bottom, self._top = np.minimum(places[:, 1], places[:, 3]), np.maximum(places[:, 1], places[:, 3])

    def page(self) -> Page:
        hidden = (self._kinds & (BLANK | CONTROL)) != 0
        seen = np.flatnonzero(~hidden & (self._top > self._bottom))
        if len(seen) == 0:
            return Page((), unreadable=1.0 if (self._kinds == CONTROL).any() else 0.0)
        self._turn(seen)
        gaps, same_line = self._between(seen)
        starts = np.concatenate(([0], np.flatnonzero(~same_line | (gaps > _WIDE_GAP)) + 1, [len(seen)]))
        segments, asides = [], [""]
        for segment in self._segments(seen, starts.tolist(), gaps):
            if isinstance(segment, str):
                asides[-1] += segment
            else:
                segments.append(segment)
                asides += [""] * bool(asides[-1])
        return Page(segments, [aside for aside in asides if len(aside) > 1], self._unreadable(len(seen)))

    def _turn(self, seen: Indices) -> None:
        """Turn the frame by a quarter so that most glyphs follow each other to the right."""
        x, y = (self._left + self._right)[seen] / 2, (self._bottom + self._top)[seen] / 2
        reach = 1.5 * np.maximum((self._top - self._bottom)[seen], (self._right - self._left)[seen])[:-1]
        dx, dy = np.diff(x), np.diff(y)
        near = np.hypot(dx, dy) <= reach
        level = near & (np.abs(dx) >= np.abs(dy))
        down, up = int((near & ~level & (dy < 0)).sum()), int((near & ~level & (dy > 0)).sum())
        if 2 * max(down, up) > int(level.sum()) + down + up:
            left, right, bottom, top = self._left, self._right, self._bottom, self._top
            if down > up:  # to the right is what was down, and down what was to the left
                self._left, self._right, self._bottom, self._top = -top, -bottom, left, right
            else:
                self._left, self._right, self._bottom, self._top = bottom, top, -right, -left
        elif int((level & (dx < 0)).sum()) * 2 > int(level.sum()) and self._is_upside_down(seen):
            self._left, self._right = -self._right, -self._left
            self._bottom, self._top = -self._top, -self._bottom

    def _is_upside_down(self, seen: Indices) -> bool:
        """Tell a page that stands on its head from writing that runs to the left."""
        angle = raw.FPDFText_GetCharAngle(self._textpage, int(seen[len(seen) // 2]))
        return bool(abs(angle - math.pi) < _SLANT)

    def _between(self, seen: Indices) -> tuple[Floats, Bools]:
        """Return, between each seen glyph and the next, the gap as a share of the height, and whether they are in one line."""
        left, right, bottom, top = self._left[seen], self._right[seen], self._bottom[seen], self._top[seen]
        height = top - bottom
        overlap = np.minimum(top[:-1], top[1:]) - np.maximum(bottom[:-1], bottom[1:])
        # One of the two is positive when they are apart, whichever way the writing runs.
        gap = np.maximum(left[1:] - right[:-1], left[:-1] - right[1:])
        same_line = overlap >= _SAME_LINE * np.minimum(height[:-1], height[1:])
        return gap / np.maximum(height[:-1], height[1:]), same_line

    def _blanks(self, seen: Indices, gaps: Floats) -> tuple[Bools, Bools]:
        """Return behind which seen glyphs a blank stands: one in the file, or any."""
        blank = (self._kinds & BLANK) != 0
        has_width = self._right > self._left
        real, supposed = np.cumsum(blank & has_width), np.cumsum(blank & ~has_width)
        in_file = np.diff(real[seen], append=real[-1]) != 0
        is_supposed = np.diff(supposed[seen]) != 0
        cjk = (self._kinds[seen] & CJK) != 0
        between_cjk = cjk[:-1] & cjk[1:]
        seems = (gaps > _CERTAIN_BLANK) | (is_supposed & (~between_cjk | (gaps > _CJK_BLANK)))
        return in_file, in_file | np.append(seems, np.False_)

    def _segments(self, seen: Indices, starts: list[int], gaps: Floats) -> Iterator[Segment | str]:
        """Yield the segments, and the glyphs that are drawn at an angle, as they come."""
        codes = self._codes[seen]
        codes[(codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))] = 0xFFFD
        text = codes.astype("<u4").tobytes().decode("utf-32-le")
        in_file, blanks = self._blanks(seen, gaps)
        lefts = np.minimum.reduceat(self._left[seen], starts[:-1]).tolist()
        rights = np.maximum.reduceat(self._right[seen], starts[:-1]).tolist()
        bottoms = np.minimum.reduceat(self._bottom[seen], starts[:-1]).tolist()
        tops = np.maximum.reduceat(self._top[seen], starts[:-1]).tolist()
        for number, start in enumerate(starts[:-1]):
            last, glyph = starts[number + 1] - 1, int(seen[start])
            if last == start and self._is_slanted(glyph):
                yield text[start]
                continue
            words = readable(_spaced(text[start : last + 1], gaps[start:last], blanks[start:last]))
            place = lefts[number], rights[number], bottoms[number], tops[number]
            yield Segment(words + " " * bool(in_file[last]), *place, self._size(glyph))

    def _is_slanted(self, glyph: int) -> bool:
        angle = raw.FPDFText_GetCharAngle(self._textpage, glyph) % (math.pi / 2)
        return bool(_SLANT < angle < math.pi / 2 - _SLANT)

    def _size(self, glyph: int) -> float:
        matrix = raw.FS_MATRIX()
        raw.FPDFText_GetMatrix(self._textpage, glyph, matrix)
        size = raw.FPDFText_GetFontSize(self._textpage, glyph) * math.hypot(matrix.b, matrix.d)
        return float(min(max(size, 0.1), 1000.0))

    def _unreadable(self, seen: int) -> float:
        lost = int((self._kinds == CONTROL).sum())
        return (int((self._kinds == PRIVATE).sum()) + lost) / (seen + lost)


def _spaced(glyphs: str, gaps: Floats, blanks: Bools) -> str:
    """Return the glyphs with the blanks between them."""
    positions = np.flatnonzero(blanks).tolist()
    if not positions:
        return glyphs
    if len(positions) >= 3 and len(glyphs) < 3 * (len(positions) + 1) and glyphs.isascii():
        positions = _wider_gaps(gaps)
    words, start = [], 0
    for position in positions:
        words.append(glyphs[start : position + 1])
        start = position + 1
    return " ".join([*words, glyphs[start:]])


def _wider_gaps(gaps: Floats) -> list[int]:
    """Return where words end in letters all of which seem to stand alone: at the gaps above the largest leap in width."""
    ordered = np.sort(np.maximum(gaps, 0))
    leap = int(np.argmax(np.diff(ordered)))
    return np.flatnonzero(gaps > (ordered[leap] + ordered[leap + 1]) / 2).tolist()
