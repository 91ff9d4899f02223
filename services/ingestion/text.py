"""The one door by which bytes become text."""

import codecs
import re
import unicodedata
from typing import Final

from charset_normalizer import from_bytes

from shared.errors import CodedError

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Lead bytes of punctuation, and of the half of the characters that nine tenths of Chinese text consist of.
_CHINESE_ENCODINGS: Final = (
    ("gb18030", range(0xA1, 0xA4), range(0xB0, 0xD8)),
    ("big5", range(0xA1, 0xA4), range(0xA4, 0xC7)),
)
_HANGUL_LEADS: Final = range(0xB0, 0xC9)  # in EUC-KR, whose text would else pass for GB18030
_CYRILLIC_ENCODINGS: Final = ("cp1251", "koi8_u", "cp866", "iso8859_5")  # KOI8-U has the letters of KOI8-R
_CYRILLIC_LETTERS: Final = frozenset("оеаинтсрвлкмдупі")  # four of five in Russian and Ukrainian text
_WORD = re.compile(r"[^\W\d_]+")
_NEVER_IN_TEXT = re.compile(b"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_OTHER_ENCODINGS: Final = ("shift_jis", "euc_jp", "euc_kr", "cp1252", "cp1251")
_DETECTION_SAMPLE: Final = 64 * 1024
_LINE_ENDS = re.compile(r"\r\n?")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # PostgreSQL refuses NUL, UTF-8 has no lone surrogates
_CONTROLS = re.compile("[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffd]")


class DocumentError(CodedError):
    """The document can't be ingested, and trying again won't help: the caller's fault."""

    code = "document_error"


class EmptyDocument(DocumentError):
    """The document holds no text."""

    code = "empty_document"


class NotText(DocumentError):
    """The bytes are not text in any encoding we know."""

    code = "not_text"


class TextTooLarge(DocumentError):
    """The document's text is longer than the limit."""

    code = "text_too_large"


def decode(data: bytes, *, max_chars: int) -> str:
    """Return the normalised text of `data`: NFC, LF line ends, no NUL, no lone surrogates, no byte order mark.

    Raises EmptyDocument, NotText, or TextTooLarge (more than `max_chars` characters).
    """
    if len(data) > 4 * max_chars:
        raise TextTooLarge(f"the file has {len(data)} bytes; at most {max_chars} characters are taken")
    text = normalise(_to_unicode(data).removeprefix("\ufeff"))
    if not text.strip():
        raise EmptyDocument("the document holds no text")
    if len(text) > max_chars:
        raise TextTooLarge(f"the text has {len(text)} characters; at most {max_chars} are taken")
    if len(_CONTROLS.findall(text)) > 1 + len(text) // 20:
        raise NotText("the file looks like binary data, not like text")
    return text


def normalise(text: str) -> str:
    """Return the text as it is stored: NFC, LF line ends, no NUL, no lone surrogates."""
    if text.isascii() and "\r" not in text and "\0" not in text:
        return text
    return _UNSTORABLE.sub("", unicodedata.normalize("NFC", _LINE_ENDS.sub("\n", text)))


def _to_unicode(data: bytes) -> str:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, errors="replace")
    if utf16 := _unmarked_utf16(data, least_share=0.3):  # Latin letters with zeros between them are valid UTF-8 too
        return data.decode(utf16, errors="replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    if utf16 := _unmarked_utf16(data, least_share=0.02):
        return data.decode(utf16, errors="replace")
    return _damaged_utf8(data) or _legacy(data)


def _unmarked_utf16(data: bytes, *, least_share: float) -> str | None:
    """Tell UTF-16 by its zero bytes: Latin letters, spaces and line ends have them all on one side of the pair."""
    sample = data[:_DETECTION_SAMPLE]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if max(even, odd) <= least_share * (len(sample) // 2) or min(even, odd) * 20 > max(even, odd):
        return None
    return "utf-16-be" if even > odd else "utf-16-le"


def _damaged_utf8(data: bytes) -> str | None:
    """Accept UTF-8 with a few bad bytes: its multi-byte sequences are far too regular to be of another encoding."""
    text = data.decode("utf-8", errors="replace")
    foreign = sum(map(len, re.findall(r"[^\x00-\x7f]+", text)))
    return text if text.count("\ufffd") * 10 < foreign else None


def _legacy(data: bytes) -> str:
    """Choose among older encodings: Cyrillic and Chinese ones by their frequent characters, others by general statistics."""
    sample = data[:_DETECTION_SAMPLE]
    encoding = _cyrillic(sample) or _chinese(sample)
    if encoding is None:
        best = from_bytes(sample, cp_isolation=list(_OTHER_ENCODINGS), enable_fallback=False).best()
        encoding = best.encoding if best else None
    if encoding is None:
        raise NotText("the file is not text in any encoding we know (UTF-8, UTF-16, GB18030, Big5, KOI8-R, ...)")
    return data.decode(encoding, errors="replace")


def _cyrillic(sample: bytes) -> str | None:
    """Return the Cyrillic encoding in which most characters beyond ASCII are frequent letters.

    It stands before the Chinese ones, since KOI8's small letters in pairs are frequent Chinese characters. General detectors don't tell
    it from others in short texts.
    """
    if _NEVER_IN_TEXT.search(sample):
        return None
    shares = {encoding: _cyrillic_share(sample.decode(encoding, errors="replace")) for encoding in _CYRILLIC_ENCODINGS}
    best = max(shares, key=lambda encoding: shares[encoding])
    return best if shares[best] > 0.65 else None


def _cyrillic_share(text: str) -> float:
    """Return which share of the characters beyond ASCII are frequent letters in words as one writes them; 0 where few differ.

    The wrong encoding tears words apart, or has a small letter before large ones.
    """
    words = (word for word in _WORD.findall(text) if word.islower() or word.isupper() or word.istitle())
    letters = "".join(word for word in words if min(word) >= "\u0400").lower()
    frequent = [letter for letter in letters if letter in _CYRILLIC_LETTERS]
    if len(frequent) < 8 or len(set(frequent)) < 5:
        return 0.0
    return len(frequent) / sum(char > "\x7f" for char in text)


def _chinese(sample: bytes) -> str | None:
    """Return the Chinese encoding in which nine of ten characters are frequent ones: by chance one half would be.

    General detectors need longer texts, and take short ones for Korean or Japanese.
    """
    best, best_share = None, 0.85
    for encoding, marks, frequent in _CHINESE_ENCODINGS:
        decoded = sample.decode(encoding, errors="replace")
        leads = [char.encode(encoding, errors="replace")[0] for char in decoded if char > "\x7f"]
        leads = [lead for lead in leads if lead not in marks]
        share = sum(lead in frequent for lead in leads) / len(leads) if leads else 0.0
        if len(leads) >= 20 and all(lead in _HANGUL_LEADS for lead in leads):
            return None
        if share > best_share:
            best, best_share = encoding, share
    return best
