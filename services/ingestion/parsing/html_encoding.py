"""The encoding of a page: by its byte order mark, then by what it says of itself, as browsers understand that, then by its bytes."""

import codecs
import re
from typing import Final

from services.ingestion.text import decode, normalise

_MARKS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_HEAD_BYTES: Final = 4096
_DECLARED = re.compile(
    rb"""<(?:meta[^>]{0,500}?charset|\?xml[^>]{0,200}?encoding)\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE
)
# Labels that browsers read as a larger encoding than they name: https://encoding.spec.whatwg.org/#names-and-labels
_LARGER: Final = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "hz": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
}
_OF_PAGES: Final = (
    "ascii",
    "big5",
    "cp",
    "euc",
    "gb",
    "hz",
    "iso",
    "johab",
    "koi8",
    "kz",
    "mac",
    "shift",
    "utf-8",
    "utf-16",
    "utf-32",
)
_TOLERATED_SHARE: Final = 0.01


def decode_page(data: bytes, *, max_chars: int) -> str:
    """Return a page's normalised text. Raises what `text.decode` raises."""
    codec = None if data.startswith(_MARKS) else _declared(data[:_HEAD_BYTES])
    if codec is None or len(data) > 4 * max_chars or _is_utf8(data):
        return decode(data, max_chars=max_chars)
    text = data.decode(codec, errors="replace")
    if text.count("\ufffd") > len(text) * _TOLERATED_SHARE:  # it says one thing and is another
        return decode(data, max_chars=max_chars)
    return decode(normalise(text).encode(), max_chars=max_chars)


def _declared(head: bytes) -> str | None:
    match = _DECLARED.search(head)
    if match is None:
        return None
    try:
        name = codecs.lookup(match[1].decode("ascii", errors="replace")).name
    except (LookupError, UnicodeError):
        return None
    if not name.startswith(_OF_PAGES):  # Python knows more than encodings of text: rot13, zip, unicode_escape
        return None
    # A declaration that is readable byte by byte isn't in UTF-16, whatever it says.
    return "utf-8" if name.startswith(("utf-16", "utf-32")) else _LARGER.get(name, name)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
