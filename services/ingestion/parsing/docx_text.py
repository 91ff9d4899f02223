"""The text of a Word paragraph: what a reader sees of it, and what hangs on it (notes, text boxes)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from lxml import etree

from services.ingestion.parsing.ooxml import alternatives, attribute, child, is_on, kind_of

_SIGNS: Final = {
    "w:tab": "\t",
    "w:ptab": "\t",
    "w:cr": "\n",
    "w:noBreakHyphen": "-",
}
# What a tracked change took away, what Word computes, and what stands for text elsewhere.
_LEFT_OUT: Final = frozenset(
    {"w:del", "w:moveFrom", "w:delText", "w:instrText", "w:fldData", "w:pPr", "w:rPr", "w:sdtPr", "w:sdtEndPr", "w:rt"}
)
_NOTES: Final = {"w:footnoteReference": "footnotes", "w:endnoteReference": "endnotes"}
_COMPUTED: Final = frozenset({"PAGE", "NUMPAGES", "SECTIONPAGES", "PAGEREF"})


@dataclass(slots=True)
class ParagraphText:
    """A paragraph's words in pieces; the notes it refers to, as (kind, id), numbered from `first_note` on in its words; the
    contents of the text boxes anchored in it.
    """

    first_note: int = 1
    pieces: list[str] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    boxes: list[etree._Element] = field(default_factory=list)

    def __str__(self) -> str:
        return "".join(self.pieces)


class _Fields:
    """The fields that are open at a point of a paragraph: instruction, and whether its result has begun."""

    def __init__(self) -> None:
        self._open: list[tuple[list[str], bool]] = []

    def mark(self, kind: str | None) -> None:
        if kind == "begin":
            self._open.append(([], False))
        elif self._open and kind == "separate":
            self._open[-1] = (self._open[-1][0], True)
        elif self._open and kind == "end":
            self._open.pop()

    def instruction(self, text: str) -> None:
        if self._open:
            self._open[-1][0].append(text)

    @property
    def hide(self) -> bool:
        """Whether the text here is an instruction or a page number."""
        return any(not shown or is_computed("".join(words)) for words, shown in self._open)


def is_computed(instruction: str) -> bool:
    """Whether a field's result is a page number, which means nothing without the page."""
    return any(word.upper() in _COMPUTED for word in instruction.split(maxsplit=1)[:1])


def read_paragraph(paragraph: etree._Element, first_note: int = 1) -> ParagraphText:
    """Return what a `w:p` says. Depth is bounded by the XML parser."""
    found = ParagraphText(first_note)
    _read(paragraph, found, _Fields())
    return found


def _read(parent: etree._Element, found: ParagraphText, fields: _Fields) -> None:
    for element in parent:
        kind = kind_of(element)
        if kind == "w:fldChar":
            fields.mark(attribute(element, "fldCharType"))
        elif kind == "w:instrText":
            fields.instruction(element.text or "")
        elif kind in ("w:t", "m:t"):
            if not fields.hide:
                found.pieces.append(element.text or "")
        elif not _is_left_out(element, kind):
            _read_other(element, kind, found, fields)


def _is_left_out(element: etree._Element, kind: str) -> bool:
    if kind == "w:r":
        return is_on(child(element, "w:rPr", "w:vanish"))
    return kind in _LEFT_OUT or (kind == "w:fldSimple" and is_computed(attribute(element, "instr") or ""))


def _read_other(element: etree._Element, kind: str, found: ParagraphText, fields: _Fields) -> None:
    if kind in _SIGNS:
        found.pieces.append(_SIGNS[kind])
    elif kind == "w:br":
        found.pieces.append("\n")
    elif kind in _NOTES:
        _refer(element, _NOTES[kind], found)
    elif kind == "mc:AlternateContent":
        branch = alternatives(element)
        if branch is not None:
            _read(branch, found, fields)
    elif kind == "w:txbxContent":
        found.boxes.append(element)
    else:
        _read(element, found, fields)


def _refer(element: etree._Element, kind: str, found: ParagraphText) -> None:
    note = attribute(element, "id")
    if note is not None:
        found.pieces.append(f"[^{found.first_note + len(found.notes)}]")
        found.notes.append((kind, note))


def paragraphs_in(element: etree._Element) -> Iterator[etree._Element]:
    """Yield the paragraphs anywhere in an element, except those inside a deleted or alternative part."""
    for one in element:
        kind = kind_of(one)
        if kind == "w:p":
            yield one
        elif kind == "mc:AlternateContent":
            branch = alternatives(one)
            if branch is not None:
                yield from paragraphs_in(branch)
        elif kind not in _LEFT_OUT:
            yield from paragraphs_in(one)
