"""HTML: main text, headings, lists, tables and code of a page, in one walk over libxml2's tree.

libxml2 takes any markup in linear time. The walk doesn't recurse, so that no depth of nesting hurts it.
"""

import re
from typing import Final

from lxml import etree

from services.ingestion.parsing.builder import DocumentBuilder
from services.ingestion.parsing.html_boilerplate import left_out
from services.ingestion.parsing.html_tables import is_layout, table_rows
from services.ingestion.parsing.html_text import BLOCKS, Words, name_of, preformatted
from services.ingestion.parsing.limits import Corrupt, ParseLimits, TooManyHeadings
from services.ingestion.parsing.safe_xml import check_memory
from services.ingestion.text import NotText

_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_HEADING_TAG = re.compile(r"<h[1-6][\s>]", re.IGNORECASE)
_PREFORMATTED: Final = frozenset({"pre", "listing", "xmp", "plaintext"})
_CODE: Final = frozenset({"code", "kbd", "samp", "tt"})
_LISTS: Final = frozenset({"ul", "ol", "menu", "dir"})
_SPACE = re.compile(r"\s+")
_XHTML: Final = ("<?xml", "http://www.w3.org/1999/xhtml")
# XHTML may close any element at once. To HTML only these are empty, and `<title/>` would swallow the page.
_CLOSED_AT_ONCE = re.compile(
    r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)[\s/])([A-Za-z][\w:-]{0,40})((?:\s[^<>]{0,1000})?)/>"
)
_MAX_DEPTH: Final = 2040  # libxml2 stops reading at 2,048 levels, and doesn't say so


def parse_html(text: str, builder: DocumentBuilder, limits: ParseLimits) -> str:
    """Read a page into the builder and return its `<title>`. Raises TextTooLarge, TooManyHeadings, NotText, Corrupt."""
    # Some may be in comments or menus, hence the slack; the exact count follows.
    if sum(1 for _ in _HEADING_TAG.finditer(text)) > 4 * limits.max_headings:
        raise TooManyHeadings(f"the page has more than {limits.max_headings} headings")
    root = html_tree(text)
    if root is None:
        return ""
    read_page(root, builder)
    title = root.find(".//head/title")
    return "" if title is None else _SPACE.sub(" ", title.text or "").strip()


def read_page(root: etree._Element, builder: DocumentBuilder) -> None:
    """Read the tree of a page into the builder. Raises TextTooLarge, TooManyHeadings."""
    _Walk(builder, left_out(root)).over(root)


def has_headings(root: etree._Element) -> bool:
    """Whether a page has a heading anywhere."""
    return next(root.iter(*_HEADINGS), None) is not None


def html_tree(text: str) -> etree._Element | None:
    """Return the tree of a page, without comments; None where there is nothing in it. Raises NotText, Corrupt, MemoryError."""
    if any(sign in text[:1024] for sign in _XHTML):
        text = _CLOSED_AT_ONCE.sub(r"<\1\2></\1>", text)
    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, no_network=True, huge_tree=True)
    try:
        parser.feed(text.encode())
        root: etree._Element | None = parser.close()
    except etree.LxmlSyntaxError as error:
        check_memory(error.error_log)
        raise NotText("the page can't be read as HTML") from error
    check_memory(parser.feed_error_log)
    if root is not None and _last_depth(root) >= _MAX_DEPTH:
        raise Corrupt(f"the elements of the page are nested more than {_MAX_DEPTH:,} deep")
    return root


def _last_depth(root: etree._Element) -> int:
    """Return how deep the end of the page is nested."""
    depth, element = 0, root
    while len(element):
        depth, element = depth + 1, element[-1]
    return depth


class _Walk:
    """One pass over a tree: collects inline text and hands it on at each edge of a block."""

    def __init__(self, builder: DocumentBuilder, left_out: frozenset[etree._Element]) -> None:
        self._builder = builder
        self._left_out = left_out
        self._words = Words()
        self._heading: int | None = None
        self._lists: list[_List] = []

    def over(self, root: etree._Element) -> None:
        """Walk over everything below the root. What is skipped or handed on whole is followed by its tail as well."""
        walker = etree.iterwalk(root, events=("start", "end"))
        for event, element in walker:
            if not isinstance(element.tag, str):
                self._words.add(element.tail if event == "end" else None)
            elif event == "end":
                self._end(element)
            elif self._is_handed_on(element):
                walker.skip_subtree()
            else:
                self._start(element)
        self._flush()

    def _is_handed_on(self, element: etree._Element) -> bool:
        """Whether the element's inside is done with: left out, or taken as a whole."""
        if element in self._left_out:
            return True
        name = name_of(element)
        if name in _PREFORMATTED and self._heading is None:
            self._flush()
            self._builder.code(preformatted(element))
            return True
        if name == "table" and self._heading is None:
            return self._table(element)
        return False

    def _table(self, table: etree._Element) -> bool:
        if is_layout(table, self._left_out):
            return False
        self._flush()
        caption, rows = table_rows(table, self._left_out)
        self._builder.paragraph(caption)
        self._builder.table(rows)
        return True

    def _start(self, element: etree._Element) -> None:
        name = name_of(element)
        if name in BLOCKS:
            self._edge()
            self._open(name, element)
        elif name == "br":
            self._words.line_break()
        elif name in _CODE and self._heading is None:
            self._words.mark()
        self._words.add(element.text)

    def _open(self, name: str, element: etree._Element) -> None:
        if name in _HEADINGS and self._heading is None:
            self._heading = _HEADINGS[name]
        elif name in _LISTS:
            self._lists.append(_List(_first_number(element) if name == "ol" else None))
        elif name == "li" and self._lists:
            self._lists[-1].next_item()

    def _end(self, element: etree._Element) -> None:
        if element in self._left_out:
            self._words.add(element.tail)
            return
        name = name_of(element)
        if name in BLOCKS:
            self._close(name)
        elif name in _CODE and self._heading is None:
            self._words.mark()
        self._words.add(element.tail)

    def _close(self, name: str) -> None:
        if name in _HEADINGS and self._heading == _HEADINGS[name]:
            self._builder.heading(self._heading, self._words.take().replace("\n", " "))
            self._heading = None
            return
        self._edge()
        if name in _LISTS and self._lists:
            self._lists.pop()

    def _edge(self) -> None:
        """Mark the edge of a block: within a heading it is only a space."""
        if self._heading is None:
            self._flush()
        else:
            self._words.add(" ")

    def _flush(self) -> None:
        text = self._words.take()
        if not text:
            return
        if self._lists:
            self._builder.item(text, len(self._lists) - 1, self._lists[-1].marker())
        else:
            self._builder.paragraph(text)


class _List:
    def __init__(self, first_number: int | None) -> None:
        self._number = None if first_number is None else first_number - 1
        self._is_marked = True

    def next_item(self) -> None:
        self._is_marked = False
        if self._number is not None:
            self._number += 1

    def marker(self) -> str:
        """Return what stands before the text: the item's mark, or as much space before a further paragraph of it."""
        mark = "- " if self._number is None else f"{self._number}. "
        if self._is_marked:
            return " " * len(mark)
        self._is_marked = True
        return mark


def _first_number(element: etree._Element) -> int:
    start = element.get("start", "1")
    return int(start) if start.isdecimal() and len(start) < 10 else 1
