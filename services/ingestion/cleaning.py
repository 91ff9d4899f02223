"""Taking noise out of exported text: named rules, applied in order, none to code, each linear in the text.

The rules remove what carries no meaning for a reader; what merely resembles it stays: comparisons (`a < b`), generics
(`List<String>`), per cent signs, brackets, and addresses, which are only made readable.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import unquote

from shared.contracts.knowledge_settings import Cleaning

Rule = Callable[[str], str]

_TAGS = (
    "abbr|big|blockquote|body|br|caption|center|cite|code|col|colgroup|dd|del|div|dl|dt|em|figcaption|figure|font|footer|gallery|"
    "h[1-6]|head|header|hr|html|img|ins|kbd|li|main|mark|math|nav|noinclude|nowiki|ol|pre|ref|references|rp|rt|ruby|"
    "section|small|span|strike|strong|style|sub|sup|table|tbody|td|tfoot|th|thead|tr|tt|ul|wbr"
)
_TAG = re.compile(
    rf"(?:</?(?:{_TAGS})|(?<![A-Za-z0-9_])<[abipqsu]|</[abipqsu])(?:\s[^<>\n]{{0,1000}})?\s?/?>", re.IGNORECASE
)
_PAGE_MARK = re.compile(
    r"""^[ \t]*(?:
      [=—-]{2,20} [ \t]* (?:page|第) [ \t]* \d{1,5} [ \t]* 页? [ \t]* [=—-]{2,20}
    | 第 [ \t]? \d{1,5} [ \t]? 页 (?:[，,/ ]* 共 [ \t]? \d{1,5} [ \t]? 页)?
    )[ \t]*$""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_WIKI_FILE = re.compile(r"\[\[(?:file|image|文件|檔案|图像|圖像):[^\[\]\n]{0,1000}\]\]", re.IGNORECASE)
_WIKI_LINK = re.compile(r"\[\[(?:[^\[\]\n|]{1,300}\|)?([^\[\]\n|]{1,300})\]\]")
_LINK_TO_WIKI = re.compile(r"(?<!!)\[([^\[\]\n]{1,300})\](?=\(/?wiki/)")
_WIKI_TARGET = re.compile(r"\(/?wiki/[^()\s]{0,1000}\)")
_EDIT_LINK = re.compile(r"https?://[^\s()<>\"]{1,500}[?&](?:veaction|action)=edit[^\s()<>\"]{0,500}")
_IMAGE = re.compile(r"!\[([^\[\]\n]{0,300})\]\([^()\s]{0,1000}(?: \"[^\"\n]{0,300}\")?\)")
_PERCENT = re.compile(r"(?:%[89a-f][0-9a-f]){2,}", re.IGNORECASE)
_BLANK_RUN = re.compile(r"\n{3,}")
_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})")
_INLINE_CODE = re.compile(r"(`[^`\n]+`)")


def clean(text: str, cleaning: Cleaning) -> str:
    """Return the text without noise: by all rules of `wiki` and without blank runs, or as it is if `off`."""
    if cleaning == "off":
        return text
    text = "".join(piece if is_code else _apply(piece) for is_code, piece in _by_code(text))
    return "".join(piece if fenced else without_blank_runs(piece) for fenced, piece in _by_fence(text))


def without_comments(text: str) -> str:
    """Remove `<!-- ... -->`, across lines too; an unclosed one stays."""
    *closed, rest = text.split("-->")
    return "".join(part.partition("<!--")[0] if "<!--" in part else part + "-->" for part in closed) + rest


def without_tags(text: str) -> str:
    """Remove the tags of HTML and wiki elements, keep what stands between them; only known names count as tags."""
    return _TAG.sub("", text).replace("&nbsp;", " ")


def without_page_marks(text: str) -> str:
    """Remove lines that hold nothing but a page number: `===== Page 2 =====`, `第 3 页`."""
    return _PAGE_MARK.sub("", text)


def without_wiki_links(text: str) -> str:
    """Keep the words of `[[target|words]]` and `words(wiki/target)`, remove files and edit links."""
    text = _WIKI_LINK.sub(r"\1", _WIKI_FILE.sub("", text))
    return _EDIT_LINK.sub("", _WIKI_TARGET.sub("", _LINK_TO_WIKI.sub(r"\1", text)))


def without_images(text: str) -> str:
    """Keep the description of `![description](address)`."""
    return _IMAGE.sub(r"\1", text)


def with_readable_percents(text: str) -> str:
    """Decode percent-encoded UTF-8 beyond ASCII, as browsers show it; other per cent signs stay."""
    return _PERCENT.sub(lambda match: _decoded(match[0]), text)


def without_blank_runs(text: str) -> str:
    """Keep at most one empty line in a row and no white space at the ends of lines."""
    return _BLANK_RUN.sub("\n\n", "\n".join(line.rstrip() for line in text.split("\n")))


WIKI: Final[tuple[Rule, ...]] = (
    without_comments,
    without_tags,
    without_page_marks,
    without_wiki_links,
    without_images,
    with_readable_percents,
)


def _apply(text: str) -> str:
    for rule in WIKI:
        text = rule(text)
    return text


def _decoded(encoded: str) -> str:
    try:
        return unquote(encoded, errors="strict")
    except UnicodeDecodeError:
        return encoded


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
