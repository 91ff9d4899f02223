"""The styles of a Word file: which of them make a heading, a list item or a line of a table of contents."""

import re
from dataclasses import dataclass
from typing import Final

from lxml import etree

from services.ingestion.parsing.ooxml import attribute, child, kind_of

_HEADING_NAME: Final = re.compile(
    r"(?:heading|标题|標題|überschrift|titre|título|título|見出し|제목)\s*([1-9])", re.IGNORECASE
)
_TITLE_NAMES: Final = frozenset({"title", "标题", "標題"})
_CONTENTS_NAME: Final = re.compile(r"(?:toc|目录|目錄)(?:\s*[1-9]|\s+heading)?", re.IGNORECASE)
_BODY_LEVEL: Final = 9  # what Word writes to say that an outline level of a style above doesn't apply
_MAX_ANCESTORS: Final = 20


@dataclass(frozen=True, slots=True)
class Look:
    """What a paragraph is by its properties; None where they don't say. `heading` is 0 for a title, 1 to 9 for a heading,
    -1 for expressly none.
    """

    heading: int | None = None
    list_depth: int | None = None
    is_contents: bool = False

    def over(self, base: "Look") -> "Look":
        """Return this look, completed by that of the style that it is based on."""
        return Look(
            base.heading if self.heading is None else self.heading,
            base.list_depth if self.list_depth is None else self.list_depth,
            self.is_contents or base.is_contents,
        )


NO_LOOK: Final = Look()


class Styles:
    """The looks of a file's styles by their ids; inheritance is resolved on demand."""

    def __init__(self, root: etree._Element | None) -> None:
        styles = [style for style in (() if root is None else root) if kind_of(style) == "w:style"]
        self._styles = {attribute(style, "styleId") or "": style for style in styles}
        self._looks: dict[str, Look] = {}

    def look(self, style_id: str | None) -> Look:
        """Return the look of a style, its own or that of the styles it is based on."""
        if style_id is None or style_id not in self._styles:
            return NO_LOOK
        if style_id not in self._looks:
            self._looks[style_id] = self._inherited(style_id)
        return self._looks[style_id]

    def _inherited(self, style_id: str) -> Look:
        look, seen = NO_LOOK, set[str]()
        current: str | None = style_id
        while current in self._styles and current not in seen and len(seen) < _MAX_ANCESTORS:
            seen.add(current)
            style = self._styles[current]
            look = look.over(_look_of_style(style))
            current = attribute(child(style, "w:basedOn"), "val")
        return look


def look_of(properties: etree._Element | None) -> Look:
    """Return what paragraph properties (`w:pPr`) say themselves."""
    if properties is None:
        return NO_LOOK
    return Look(_outline(properties), _list_depth(properties))


def _look_of_style(style: etree._Element) -> Look:
    look = look_of(child(style, "w:pPr"))
    name = (attribute(child(style, "w:name"), "val") or "").strip()
    named = _heading_by_name(name)
    return Look(look.heading if named is None else named, look.list_depth, _CONTENTS_NAME.fullmatch(name) is not None)


def _heading_by_name(name: str) -> int | None:
    if name.lower() in _TITLE_NAMES:
        return 0
    match = _HEADING_NAME.fullmatch(name)
    return int(match[1]) if match else None


def _outline(properties: etree._Element) -> int | None:
    value = attribute(child(properties, "w:outlineLvl"), "val")
    if value is None or not value.isdecimal():
        return None
    level = int(value)
    return level + 1 if level < _BODY_LEVEL else -1


def _list_depth(properties: etree._Element) -> int | None:
    """Return the depth of a list item, -1 for expressly none."""
    numbering = child(properties, "w:numPr")
    if numbering is None:
        return None
    if attribute(child(numbering, "w:numId"), "val") == "0":
        return -1
    depth = attribute(child(numbering, "w:ilvl"), "val") or "0"
    return min(int(depth), 8) if depth.isdecimal() and len(depth) < 10 else 0
