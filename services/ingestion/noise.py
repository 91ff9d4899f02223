"""What carries no meaning for a reader, each kind taken out by a rule of its own, in time linear in the text.

What merely resembles noise stays: comparisons (`a < b`), generics (`List<String>`), per cent signs, brackets, and, where no rule is
named after them, addresses.
"""

import re
from itertools import chain, islice, pairwise
from urllib.parse import unquote

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
_ADDRESS = r"(?:(?:https?|ftp)://|\bwww\.)[A-Za-z0-9\-._~:/?#\[\]@!$&'*+,;=%]{0,2000}[A-Za-z0-9/#=_~%&-]"
_LINK = re.compile(r"(?<!!)\[([^\[\]\n]{1,300})\]\([^()\s]{1,1000}(?: \"[^\"\n]{0,300}\")?\)")
_LINK_TO_ADDRESS = re.compile(rf"(?<!!)\[([^\[\]\n]{{1,300}})\]\({_ADDRESS}\)")
_BARE_ADDRESS = re.compile(rf"<{_ADDRESS}>|{_ADDRESS}")
_EMAIL = re.compile(
    r"<?(?:mailto:)?(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}>?"
)
_LONE_NUMBER = re.compile(
    r"^[ \t]*(?:[-–—] ?|page ?|p\. ?)?([0-9]{1,4})(?: ?[-–—]| ?(?:/|of) ?[0-9]{1,4})?[ \t]*(?:\n|\Z)",
    re.IGNORECASE | re.MULTILINE,
)
_LEAST_PAGES = 3
_BROKEN_WORD = re.compile(r"(?<=[a-z]{2})(?:-|\u00ad)[ \t]*\n[ \t]*(?=[a-z]{2})")
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
_ODD_SPACE = re.compile("[\u00a0\u2000-\u200a\u202f]")


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


def without_links(text: str) -> str:
    """Keep the words of `[words](address)`."""
    return _LINK.sub(r"\1", text)


def without_urls(text: str) -> str:
    """Remove web addresses; of a link to one its words stay. The full stop or bracket behind an address stays too."""
    return _BARE_ADDRESS.sub("", _LINK_TO_ADDRESS.sub(r"\1", text))


def without_emails(text: str) -> str:
    """Remove e-mail addresses."""
    return _EMAIL.sub("", text)


def without_running_page_numbers(text: str) -> str:
    """Remove lines that hold nothing but a number (`7`, `- 7 -`, `page 7`, `7 / 30`) and count up by one, three of them at least."""
    runs: list[list[re.Match[str]]] = []
    by_last: dict[int, list[re.Match[str]]] = {}
    for line in _LONE_NUMBER.finditer(text):
        number = int(line[1])
        run = by_last.pop(number - 1, None)
        if run is None:
            runs.append(run := [])
        run.append(line)
        by_last[number] = run
    lines = sorted(line.span() for run in runs if len(run) >= _LEAST_PAGES for line in run)
    kept = pairwise([0, *chain.from_iterable(lines), len(text)])
    return "".join(text[start:end] for start, end in islice(kept, 0, None, 2))


def without_hyphenation(text: str) -> str:
    """Join Latin words that a hyphen and a line's end tear apart. A compound that is broken at its own hyphen loses that."""
    return _BROKEN_WORD.sub("", text)


def without_invisible_characters(text: str) -> str:
    """Remove soft hyphens, zero-width spaces and marks of direction, and make odd spaces plain; joiners of emoji and scripts stay."""
    return _ODD_SPACE.sub(" ", _INVISIBLE.sub("", text))


def _decoded(encoded: str) -> str:
    try:
        return unquote(encoded, errors="strict")
    except UnicodeDecodeError:
        return encoded
