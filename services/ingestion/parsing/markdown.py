"""Markdown by its syntax tree: which lines are headings, which lines belong together."""

import re
from collections.abc import Iterator
from itertools import accumulate, pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

from services.ingestion.parsing.limits import LineTooLong, ParseLimits, TooManyHeadings
from services.ingestion.sections import Block, Heading, ParsedDocument, build_sections

_FRONT_MATTER = re.compile(
    r"(?P<fence>---|\+\+\+)[ \t]*\n(?P<body>.*?)^(?P=fence)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE
)
_FRONT_MATTER_KEY = re.compile(r"^[A-Za-z_][\w.-]*[ \t]*[:=]", re.MULTILINE)
_FRONT_MATTER_TITLE = re.compile(
    r"^title[ \t]*[:=][ \t]*(?P<quote>[\"']?)(?P<title>.+?)(?P=quote)[ \t]*$", re.MULTILINE
)
_HEADING_LINE = re.compile(r"^ {0,3}(?:#{1,6}(?:[ \t]|$)|(?:=+|-+)[ \t]*$)", re.MULTILINE)
_INLINE_MARKUP = re.compile(r"[\\`*_\[\]<>&!~]")
_WHOLE = frozenset({"fence", "code_block", "html_block", "table_open"})
# A paragraph with a line of dashes under it is a heading to CommonMark. Nobody meant one as long as this: it stays text.
_MAX_HEADING_CHARS = 300


def _block_parser() -> MarkdownIt:
    """CommonMark and tables, block rules only: inline rules cost more than twice as much and no section needs them."""
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


_BLOCKS = _block_parser()
_INLINE = MarkdownIt("commonmark")


def parse_markdown(text: str, *, limits: ParseLimits, heading_levels: int = 6) -> ParsedDocument:
    """Find the sections of a Markdown text. Headings deeper than `heading_levels` open none.

    Raises LineTooLong and TooManyHeadings before any parsing that could be slow.
    """
    _check(text, limits)
    body_start, document_title = _front_matter(text)
    line_starts = _line_starts(text, body_start)
    tokens = _BLOCKS.parse(text[body_start:])
    headings = [heading for heading in _headings(tokens, line_starts, text) if heading.level <= heading_levels]
    if len(headings) > limits.max_headings:
        raise TooManyHeadings(f"the document has {len(headings)} headings; at most {limits.max_headings} are taken")
    sections = build_sections(text, headings, body_start=body_start, document_title=document_title)
    return ParsedDocument(text, tuple(sections), tuple(_blocks(tokens, line_starts)), body_start)


def plain_heading(source: str) -> str:
    """Return a heading's words without its markup: links, emphasis, code marks, anchors, HTML."""
    if not _INLINE_MARKUP.search(source):
        return " ".join(source.split())
    (inline,) = _INLINE.parseInline(source)
    return " ".join("".join(_words(inline.children or [])).split())


def _check(text: str, limits: ParseLimits) -> None:
    longest = max(map(len, text.split("\n")))
    if longest > limits.max_line_chars:
        raise LineTooLong(f"a line has {longest} characters; at most {limits.max_line_chars} are taken")
    # Comments in code look like headings here, hence the slack; the exact count follows after parsing.
    candidates = sum(1 for _ in _HEADING_LINE.finditer(text))
    if candidates > 4 * limits.max_headings:
        raise TooManyHeadings(f"the document has about {candidates} headings; at most {limits.max_headings} are taken")


def _front_matter(text: str) -> tuple[int, str]:
    """Return where the text behind the front matter begins, and the title that it gives.

    Two thematic breaks with prose between them are no front matter: it has to hold a key, or nothing. A file that is
    nothing else is text, so that it isn't lost.
    """
    match = _FRONT_MATTER.match(text)
    if match is None or (match["body"].strip() and not _FRONT_MATTER_KEY.search(match["body"])):
        return 0, ""
    if not text[match.end() :].strip():
        return 0, ""
    title = _FRONT_MATTER_TITLE.search(match["body"])
    return match.end(), title["title"] if title else ""


def _line_starts(text: str, start: int) -> list[int]:
    """Return the offset of each line from `start` on, and one more for the end, so that a token's map can be looked up."""
    return list(accumulate((len(line) + 1 for line in text[start:].split("\n")), initial=start))


def _headings(tokens: list[Token], line_starts: list[int], text: str) -> Iterator[Heading]:
    for token, inline in pairwise(tokens):
        # A heading inside a quote or a list item is part of what is quoted or listed: it opens no section.
        is_section = token.type == "heading_open" and token.level == 0 and len(inline.content) <= _MAX_HEADING_CHARS
        if is_section and token.map:
            first, after = token.map
            end = min(line_starts[after] - 1, len(text))
            yield Heading(int(token.tag[1]), plain_heading(inline.content), line_starts[first], end)


def _blocks(tokens: list[Token], line_starts: list[int]) -> Iterator[Block]:
    """Yield the lines of tables, code and HTML, also of those inside lists and quotes; one never holds another."""
    for token in tokens:
        if token.type in _WHOLE and token.map:
            first, after = token.map
            yield Block(line_starts[first], line_starts[after] - 1)


def _words(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        match token.type:
            case "text" | "code_inline":
                yield token.content
            case "softbreak" | "hardbreak":
                yield " "
            case "image":
                yield from _words(token.children or [])
            case _:
                pass
