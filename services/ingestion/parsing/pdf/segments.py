"""Segments and lines of a page: text with its place.

Places are in points, in a frame in which the text runs to the right and its lines go down (y falls), whatever the page's
or the writing's direction is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

Cell = tuple[str, float, float]  # text, left edge, right edge

CJK_RANGES = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff"


@dataclass(frozen=True, slots=True)
class Segment:
    """Glyphs of one line without a wide gap between them. `size` is the font's, in points as drawn."""

    text: str
    left: float
    right: float
    bottom: float
    top: float
    size: float

    @property
    def height(self) -> float:
        return self.top - self.bottom

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2


@dataclass(frozen=True, slots=True)
class Line:
    """Segments beside each other, joined. `edge_left:edge_right` is the column of the page in which it stands.

    `cells` are text, left and right edge of its parts, if the gaps between them are wider than most between words;
    `is_row` says that one of the gaps is wider than any. At the text's end stands a blank if the file has one there.
    """

    text: str
    left: float
    right: float
    bottom: float
    top: float
    size: float
    edge_left: float
    edge_right: float
    page: int
    cells: tuple[Cell, ...] = ()
    is_row: bool = False

    @property
    def height(self) -> float:
        return self.top - self.bottom


@dataclass(frozen=True, slots=True)
class Page:
    """What is written on a page. `asides` is text in another direction: stamps in the margin, watermarks.

    `unreadable` is the share of its glyphs whose font doesn't say what characters they are.
    """

    segments: Sequence[Segment]
    asides: Sequence[str] = ()
    unreadable: float = 0.0
    from_picture: bool = False
