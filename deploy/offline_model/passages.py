"""Passages that can be quoted on their own: sentences, lists, table rows with their header, SQL statements."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from deploy.offline_model.terms import terms

Kind = Literal["blank", "heading", "code", "table", "sql", "item", "prose"]

_FENCE = re.compile(r"\s*(```|~~~)")
_STARTS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("blank", re.compile(r"\s*$")),
    ("heading", re.compile(r"\s*#{1,6}\s")),
    ("code", _FENCE),
    ("table", re.compile(r"\s*\|")),
    ("sql", re.compile(r"\s*(CREATE|ALTER)\s+(UNIQUE\s+)?(TABLE|INDEX|VIEW)\b", re.IGNORECASE)),
    ("item", re.compile(r"\s*([-*+]|\d+[.)、])\s+\S")),
)
_CONTINUED_BY: dict[Kind, tuple[Kind, ...]] = {"table": ("table",), "item": ("item", "prose"), "prose": ("prose",)}
_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
_SENTENCE_END = re.compile(r"(?<=[。！？；])|(?<=[.!?])\s+(?=[A-Z\u4e00-\u9fff\"'(])")
_MAX_LINES = 40
"""A longer table is quoted by rows, a longer block of code by statements."""


@dataclass(frozen=True, slots=True)
class Passage:
    """`text` is quoted as it is and found by `words`; a row is quoted under the `header` of its table."""

    text: str
    words: frozenset[str]
    header: str = ""
    is_table: bool = False


def passages(content: str) -> list[Passage]:
    """All passages of a text, in its order; headings give none."""
    lines = content.replace("\r\n", "\n").split("\n")
    found: list[Passage] = []
    at = 0
    while at < len(lines):
        kind = _kind(lines[at])
        end = _end(kind, lines, at)
        read = _READERS.get(kind)
        if read is not None:
            block = lines[at:end]
            if kind == "item" and found and found[-1].text.endswith((":", "：")):
                found[-1] = _passage("\n".join([found[-1].text, *block]))
            found.extend(read(block))
        at = end
    return found


def _kind(line: str) -> Kind:
    return next((kind for kind, start in _STARTS if start.match(line)), "prose")


def _end(kind: Kind, lines: Sequence[str], at: int) -> int:
    """Where the block that starts at `at` is over."""
    end = at + 1
    if kind == "code":
        while end < len(lines) and not _FENCE.match(lines[end]):
            end += 1
        return end + 1
    if kind == "sql":
        while end < len(lines) and not lines[end - 1].rstrip().endswith(";"):
            end += 1
        return end
    while end < len(lines) and _kind(lines[end]) in _CONTINUED_BY.get(kind, ()):
        end += 1
    return end


def _passage(text: str) -> Passage:
    return Passage(text, terms(text))


def _prose(block: list[str]) -> list[Passage]:
    # Lines of one Chinese paragraph join without a blank, those of other scripts with one.
    text = re.sub(
        r"(?<=[\u3000-\u9fff\uff00-\uffef])\s*\n\s*|\s*\n\s*(?=[\u3000-\u9fff\uff00-\uffef])", "", "\n".join(block)
    )
    sentences = _SENTENCE_END.split(re.sub(r"\s*\n\s*", " ", text).strip())
    return [_passage(sentence.strip()) for sentence in sentences if sentence.strip()]


def _items(block: list[str]) -> list[Passage]:
    items: list[list[str]] = []
    for line in block:
        if _kind(line) == "item" or not items:
            items.append([])
        items[-1].append(line)
    return [_passage("\n".join(item)) for item in items]


def _table(block: list[str]) -> list[Passage]:
    header_lines = 2 if len(block) > 1 and _RULE.match(block[1]) else 0
    header = "\n".join(block[:header_lines])
    rows = [Passage(row, terms(row), header) for row in block[header_lines:] if not _RULE.match(row)]
    if not header or len(rows) > _MAX_LINES:
        return rows
    return [Passage("\n".join(block), terms(header), header, is_table=True), *rows]


def _code(block: list[str]) -> list[Passage]:
    if len(block) <= _MAX_LINES:
        return [_passage("\n".join(block))]
    fence = block[0]
    body = block[1:-1] if _FENCE.match(block[-1]) else block[1:]
    statements: list[list[str]] = [[]]
    for line in body:
        statements[-1].append(line)
        if line.rstrip().endswith(";") or not line.strip():
            statements.append([])
    closing = fence.strip()[:3]
    return [_passage("\n".join([fence, *lines, closing])) for lines in statements if "".join(lines).strip()]


def _sql(block: list[str]) -> list[Passage]:
    return [_passage("\n".join(["```sql", *block, "```"]))]


_READERS: dict[Kind, Callable[[list[str]], list[Passage]]] = {
    "prose": _prose,
    "item": _items,
    "table": _table,
    "code": _code,
    "sql": _sql,
}
