"""Cleaning by named rules, applied in order, none to code."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal

from services.ingestion import noise
from shared.contracts.knowledge_settings import Cleaning, CleaningRule, CustomCleaning


@dataclass(frozen=True, slots=True)
class Rule:
    """What a rule does, and what it isn't applied to: `code`, inline too, or `fenced` code only, because it looks at whole lines."""

    apply: Callable[[str], str]
    spares: Literal["code", "fenced"] = "code"


RULES: Final[dict[CleaningRule, Rule]] = {
    "comments": Rule(noise.without_comments),
    "tags": Rule(noise.without_tags),
    "page_marks": Rule(noise.without_page_marks),
    "wiki_links": Rule(noise.without_wiki_links),
    "images": Rule(noise.without_images),
    "percent_encoding": Rule(noise.with_readable_percents),
    "blank_runs": Rule(noise.without_blank_runs, spares="fenced"),
    "links": Rule(noise.without_links),
    "urls": Rule(noise.without_urls),
    "emails": Rule(noise.without_emails),
    "running_page_numbers": Rule(noise.without_running_page_numbers, spares="fenced"),
    "hyphenation": Rule(noise.without_hyphenation),
    "invisible_characters": Rule(noise.without_invisible_characters),
}
WIKI: Final[tuple[CleaningRule, ...]] = (
    "comments",
    "tags",
    "page_marks",
    "wiki_links",
    "images",
    "percent_encoding",
    "blank_runs",
)

_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})")
_INLINE_CODE = re.compile(r"(`[^`\n]+`)")


def clean(text: str, cleaning: Cleaning) -> str:
    """Return the text without noise: by the rules of `wiki` or those that are named, in their order, or as it is if `off`."""
    names = cleaning.rules if isinstance(cleaning, CustomCleaning) else WIKI if cleaning == "wiki" else ()
    for spares, rules in groupby((RULES[name] for name in names), key=lambda rule: rule.spares):
        cut = _by_code if spares == "code" else _by_fence
        applied = [rule.apply for rule in rules]
        text = "".join(piece if spared else _in_order(applied, piece) for spared, piece in cut(text))
    return text


def _in_order(rules: list[Callable[[str], str]], text: str) -> str:
    for apply in rules:
        text = apply(text)
    return text


def _by_code(text: str) -> Iterator[tuple[bool, str]]:
    """Cut the text into (is code, text): fenced blocks and inline code are code."""
    for fenced, lines in _by_fence(text):
        if fenced:
            yield True, lines
        else:
            for index, piece in enumerate(_INLINE_CODE.split(lines)):
                yield index % 2 == 1, piece


def _by_fence(text: str) -> Iterator[tuple[bool, str]]:
    fence, lines = "", list[str]()
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if not fence and mark:
            yield False, "".join(lines)
            fence, lines = mark[1], [line]
        elif fence and mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
            yield True, "".join([*lines, line])
            fence, lines = "", []
        else:
            lines.append(line)
    yield bool(fence), "".join(lines)
