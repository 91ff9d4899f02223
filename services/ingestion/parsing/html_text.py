"""Text between tags, as a browser would show it: which elements are blocks, how white space collapses."""

import re
from collections.abc import Set
from typing import Final

from lxml import etree

BLOCKS: Final = frozenset(
    {
        *(
            "address",
            "article",
            "aside",
            "blockquote",
            "body",
            "center",
            "dd",
            "details",
            "dialog",
            "dir",
            "div",
            "dl",
            "dt",
        ),
        *(
            "fieldset",
            "figcaption",
            "figure",
            "footer",
            "form",
            "frameset",
            "h1",
            "h2",
            "h3",
            "h4",
            "h5",
            "h6",
            "header",
        ),
        *(
            "hgroup",
            "hr",
            "html",
            "legend",
            "li",
            "listing",
            "main",
            "menu",
            "nav",
            "ol",
            "option",
            "p",
            "plaintext",
            "pre",
        ),
        *("search", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "caption", "ul", "xmp"),
    }
)
_HAN: Final = r"\u3000-\u303f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff60"
_SPACE = re.compile(r"[ \t\n\f\v]+")
_BROKEN_LINE = re.compile(rf"(?<=[{_HAN}])[ \t]*\n\s*(?=[{_HAN}])")
_AROUND_BREAK = re.compile(r" ?\x1e ?")
_BREAK: Final = "\x1e"  # a record separator stands for <br> until white space has collapsed
_MARK: Final = "\x1f"  # a unit separator for the edges of inline code
_NO_SIGNS: Final = {ord(_BREAK): " ", ord(_MARK): " "}
_CODE = re.compile(f"{_MARK}([^{_MARK}]*){_MARK}")


class Words:
    """The text of a block in the making."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, text: str | None) -> None:
        if text:
            self._pieces.append(text.translate(_NO_SIGNS) if _BREAK in text or _MARK in text else text)

    def line_break(self) -> None:
        self._pieces.append(_BREAK)

    def mark(self) -> None:
        """Mark the beginning or end of inline code."""
        self._pieces.append(_MARK)

    def take(self) -> str:
        """Return the text, white space collapsed, and begin anew. A line broken between Chinese signs is joined without a space."""
        if not self._pieces:
            return ""
        text = collapse("".join(self._pieces))
        self._pieces.clear()
        if _MARK in text:
            text = _CODE.sub(_as_code, text).replace(_MARK, "")
        return _AROUND_BREAK.sub("\n", text).strip() if _BREAK in text else text.strip()


def collapse(text: str) -> str:
    """Collapse white space as HTML does, no-break spaces aside."""
    return _SPACE.sub(" ", _BROKEN_LINE.sub("", text) if "\n" in text else text)


def name_of(element: etree._Element) -> str:
    """Return the element's local name; XHTML inside EPUB has prefixes at times."""
    name: str = element.tag
    return name.rpartition(":")[2] if ":" in name else name


def preformatted(element: etree._Element) -> str:
    """Return the text of `<pre>`, its line breaks included."""
    pieces = []
    for one in element.iter():
        if isinstance(one.tag, str):
            pieces.append("\n" if one.tag == "br" else "")
            pieces.append(one.text or "")
        pieces.append((one.tail or "") if one is not element else "")
    return "".join(pieces)


def inner_text(element: etree._Element, left_out: Set[etree._Element]) -> str:
    """Return all text in an element on one line, except that of the elements left out."""
    if not len(element):  # most cells of most tables
        return collapse(element.text or "").strip()
    words = Words()
    walker = etree.iterwalk(element, events=("start", "end"))
    for event, one in walker:
        is_text = isinstance(one.tag, str) and one not in left_out
        if event == "end":
            words.add(" " if is_text and one.tag in BLOCKS else "")
            words.add(one.tail if one is not element else "")
        elif not is_text:
            walker.skip_subtree()
        else:
            words.add(" " if one.tag in BLOCKS or one.tag == "br" else "")
            words.add(one.text)
    return words.take()


def _as_code(match: re.Match[str]) -> str:
    code = match[1].strip()
    return f"`{code}`" if code and "`" not in code and _BREAK not in code else match[1]
