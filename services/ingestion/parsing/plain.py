"""Plain text: one section without a heading, or the chapters of a book where its lines say so."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from services.ingestion.sections import Heading, ParsedDocument, build_sections

_MAX_HEADING_CHARS: Final = 60
_LEAST_CHAPTERS: Final = 3  # fewer lines of that look may be prose
_HAN_NUMBER = r"[0-9０-９〇零一二三四五六七八九十百千两]{1,9}"
_LATIN_NUMBER = r"(?:[0-9]{1,4}|[IVXLC]{1,8}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_CHAPTER = re.compile(
    rf"""^[ \t\u3000]*(?P<words>
      (?:正文[ \t\u3000]*)? 第[ ]?{_HAN_NUMBER}[ ]?(?P<han>[卷部篇集章回幕节節]) (?:[ \t\u3000:：、.．·—][^\n]*)?
    | (?i:(?P<latin>volume|book|part|chapter|act|scene)) [ ] (?i:{_LATIN_NUMBER}) (?:[ \t]*[.:—-][^\n]*)?
    )[ \t\u3000]*$""",
    re.VERBOSE | re.MULTILINE,
)
_LEVELS: Final = dict.fromkeys("卷部篇集", 1) | dict.fromkeys("章回幕", 2) | dict.fromkeys("节節", 3)
_LATIN_LEVELS: Final = {"volume": 1, "book": 1, "part": 1, "chapter": 2, "act": 2, "scene": 3}
_SENTENCE_ENDS: Final = "。！？!?，,；;"


def parse_plain(text: str, *, heading_levels: int = 6) -> ParsedDocument:
    """Return the text as one section, or cut at its chapters: lines such as `第一回 宴桃园豪杰三结义` and `CHAPTER IV. The Field`."""
    chapters = list(_chapters(text))
    levels = sorted({heading.level for heading in chapters})
    headings = [
        Heading(levels.index(heading.level) + 1, heading.text, heading.start, heading.end) for heading in chapters
    ]
    kept = [heading for heading in headings if heading.level <= heading_levels]
    return ParsedDocument(text, tuple(build_sections(text, kept if len(kept) >= _LEAST_CHAPTERS else [])))


def _chapters(text: str) -> Iterator[Heading]:
    """Yield the lines that open a chapter; not those of a table of contents, where no text follows."""
    candidates = list(_candidates(text))
    for heading, following in pairwise([*candidates, None]):
        if heading is None:
            continue
        end = following.start if following else len(text)
        opens_deeper = following is not None and following.level > heading.level
        if opens_deeper or text[heading.end : end].strip():
            yield heading


def _candidates(text: str) -> Sequence[Heading]:
    found = []
    for match in _CHAPTER.finditer(text):
        words = " ".join(match["words"].split())
        if len(words) <= _MAX_HEADING_CHARS and words[-1] not in _SENTENCE_ENDS:
            level = _LEVELS[match["han"]] if match["han"] else _LATIN_LEVELS[match["latin"].lower()]
            found.append(Heading(level, words.removeprefix("正文 "), match.start(), match.end()))
    return found
