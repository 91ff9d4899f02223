"""XML out of files that nobody vouches for: no document type, no entities, no network, nothing whole in memory.

A prologue that declares a document type is refused by Expat, which stops at it, before libxml2 sees a byte. libxml2
itself bounds depth (256 levels) and text nodes (10 MB).
"""

from collections.abc import Iterator
from typing import IO, Any, Final
from xml.parsers import expat

from lxml import etree

from services.ingestion.parsing.limits import Corrupt

_CHUNK_BYTES: Final = 64 * 1024
_MAX_PROLOGUE_BYTES: Final = 1024**2
_EXPAT_NO_MEMORY: Final = expat.errors.codes[expat.errors.XML_ERROR_NO_MEMORY]
_DAMAGED: Final = "the file is damaged: a part of it is not well-formed XML"


def stream_elements(part: IO[bytes], names: tuple[str, ...], parents: frozenset[str]) -> Iterator[etree._Element]:
    """Yield the elements with one of the local names that stand directly in an element with a name of `parents`.

    Each is emptied when the next is asked for. Raises Corrupt, MemoryError.
    """
    parser = etree.XMLPullParser(
        events=("end",),
        tag=[f"{{*}}{name}" for name in names],
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        for chunk in _checked_chunks(part, allow_public=False):
            parser.feed(chunk)
            yield from _completed(parser, parents)
        parser.close()
        yield from _completed(parser, parents)
    except etree.XMLSyntaxError as error:
        check_memory(error.error_log)
        raise Corrupt(_DAMAGED) from error


def parse_xml(part: IO[bytes], *, allow_public: bool = False) -> etree._Element:
    """Return the root of a part that is small by its nature. Raises Corrupt, MemoryError.

    `allow_public` takes a document type that only names a public one (EPUB's older files do) and declares nothing.
    """
    parser = etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, remove_comments=True, remove_pis=True
    )
    try:
        for chunk in _checked_chunks(part, allow_public=allow_public):
            parser.feed(chunk)
        root: etree._Element = parser.close()
    except etree.XMLSyntaxError as error:
        check_memory(error.error_log)
        raise Corrupt(_DAMAGED) from error
    return root


def check_memory(log: Any) -> None:  # an error log, whose stub is empty
    """Raise MemoryError if libxml2 had too little memory: it ends like a document that is damaged, or in HTML just ends."""
    if any(entry.type == etree.ErrorTypes.ERR_NO_MEMORY for entry in log):
        raise MemoryError("libxml2 ran out of memory")


def local_name(element: etree._Element) -> str:
    """Return the element's name without its namespace; none for an entity that nobody has declared."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _completed(parser: etree.XMLPullParser, parents: frozenset[str]) -> Iterator[etree._Element]:
    for _, element in parser.read_events():
        if not isinstance(element, etree._Element):
            continue
        parent = element.getparent()
        if parent is None or local_name(parent) not in parents:
            continue
        yield element
        element.clear()
        while element.getprevious() is not None:
            del parent[0]


def _checked_chunks(part: IO[bytes], *, allow_public: bool) -> Iterator[bytes]:
    """Yield the part in pieces, the first of them when its prologue is known to declare no document type."""
    prologue = _Prologue(allow_public=allow_public)
    head = b""
    while not prologue.passed:
        chunk = part.read(_CHUNK_BYTES)
        head += chunk
        if not chunk or len(head) > _MAX_PROLOGUE_BYTES:
            raise Corrupt(_DAMAGED)
        prologue.feed(chunk)
    yield head
    while chunk := part.read(_CHUNK_BYTES):
        yield chunk


class _Prologue:
    def __init__(self, *, allow_public: bool) -> None:
        self.passed = False
        self._allow_public = allow_public
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.StartDoctypeDeclHandler = self._doctype

    def feed(self, chunk: bytes) -> None:
        try:
            self._parser.Parse(chunk, False)
        except expat.ExpatError as error:
            if error.code == _EXPAT_NO_MEMORY:
                raise MemoryError("Expat ran out of memory") from error
            if not self.passed:  # what comes behind the prologue is libxml2's to judge
                raise Corrupt(_DAMAGED) from error

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.passed = True

    def _doctype(self, name: str, system_id: str | None, public_id: str | None, has_internal_subset: int) -> None:
        if has_internal_subset or not self._allow_public:
            raise Corrupt("the file declares a document type of its own, which no such file does and which is not safe")
