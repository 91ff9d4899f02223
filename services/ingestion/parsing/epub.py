"""EPUB books: their pages in reading order, without the table of contents."""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from lxml import etree

from services.ingestion.parsing.archive import Archive
from services.ingestion.parsing.builder import DocumentBuilder
from services.ingestion.parsing.html import has_headings, html_tree, read_page
from services.ingestion.parsing.html_encoding import decode_page
from services.ingestion.parsing.limits import Corrupt, Encrypted
from services.ingestion.parsing.safe_xml import local_name, parse_xml
from services.ingestion.text import EmptyDocument

_CONTAINER: Final = "META-INF/container.xml"
_ENCRYPTION: Final = "META-INF/encryption.xml"
_PAGES: Final = frozenset({"application/xhtml+xml", "text/html", "application/x-dtbook+xml"})
_NCX: Final = "application/x-dtbncx+xml"
_MAX_PAGE_CHARS: Final = 20_000_000


@dataclass(frozen=True, slots=True)
class _Item:
    """A file of the book, as its manifest lists it."""

    part: str
    media_type: str
    is_contents: bool


def parse_epub(archive: Archive, builder: DocumentBuilder) -> str:
    """Read a book into the builder and return its title. Raises Encrypted, Corrupt, TextTooLarge, TooManyHeadings."""
    package = _package_part(archive)
    root = _root(archive, package)
    items = _manifest(root, posixpath.dirname(package))
    pages = [items[name] for name in _spine(root) if name in items and not items[name].is_contents]
    _check_rights(archive, {page.part for page in pages})
    names = dict(_chapter_names(archive, items))
    for page in pages:
        if page.media_type in _PAGES and page.part in archive:
            _read(archive, page.part, names.get(page.part.lower(), ""), builder)
    return _title(root)


def _read(archive: Archive, part: str, name: str, builder: DocumentBuilder) -> None:
    with archive.open(part) as stream:
        data = stream.read()
    try:
        root = html_tree(decode_page(data, max_chars=_MAX_PAGE_CHARS))
    except EmptyDocument:
        return
    if root is None:
        return
    if name and not has_headings(root):
        builder.heading(1, name)
    read_page(root, builder)


def _package_part(archive: Archive) -> str:
    if _CONTAINER in archive:
        for element in _root(archive, _CONTAINER).iter("{*}rootfile"):
            part = element.get("full-path")
            if part:
                return unquote(part)
    raise Corrupt("the book is damaged: it doesn't say where its list of contents is")


def _root(archive: Archive, part: str) -> etree._Element:
    with archive.open(part) as stream:
        return parse_xml(stream, allow_public=True)


def _manifest(root: etree._Element, folder: str) -> dict[str, _Item]:
    items = {}
    for element in root.iter("{*}item"):
        is_contents = "nav" in (element.get("properties") or "").split()
        part = _resolve(folder, element.get("href", ""))
        items[element.get("id", "")] = _Item(part, element.get("media-type", ""), is_contents)
    return items


def _spine(root: etree._Element) -> Iterator[str]:
    return (element.get("idref", "") for element in root.iter("{*}itemref"))


def _title(root: etree._Element) -> str:
    return next(((element.text or "").strip() for element in root.iter("{*}title")), "")


def _check_rights(archive: Archive, pages: set[str]) -> None:
    """Raise Encrypted where rights management keeps the text away. Fonts may be obfuscated without that."""
    if _ENCRYPTION not in archive:
        return
    locked = {unquote(one.get("URI", "")) for one in _root(archive, _ENCRYPTION).iter("{*}CipherReference")}
    if not locked.isdisjoint(pages):
        raise Encrypted("the book is protected against copying (DRM), so that its text can't be read")


def _chapter_names(archive: Archive, items: dict[str, _Item]) -> Iterator[tuple[str, str]]:
    """Yield (part, name) of the book's table of contents: for chapters whose own heading is no heading to HTML."""
    for item in items.values():
        if item.part not in archive:
            continue
        if item.media_type == _NCX:
            yield from _ncx_names(archive, item.part)
        elif item.is_contents:
            yield from _nav_names(archive, item.part)


def _ncx_names(archive: Archive, part: str) -> Iterator[tuple[str, str]]:
    for point in reversed(list(_root(archive, part).iter("{*}navPoint"))):  # the first name of a part counts
        label = next((text.text or "" for text in point.iter("{*}text")), "")
        content = next((one for one in point if local_name(one) == "content"), None)
        if content is not None and label.strip():
            yield _resolve(posixpath.dirname(part), content.get("src", "")).lower(), label


def _nav_names(archive: Archive, part: str) -> Iterator[tuple[str, str]]:
    with archive.open(part) as stream:
        root = html_tree(decode_page(stream.read(), max_chars=_MAX_PAGE_CHARS))
    for link in [] if root is None else reversed(list(root.iter("a"))):
        label = "".join(map(str, link.itertext()))
        if link.get("href") and label.strip():
            yield _resolve(posixpath.dirname(part), link.get("href", "")).lower(), label


def _resolve(folder: str, address: str) -> str:
    path = unquote(address.partition("#")[0])
    return posixpath.normpath(posixpath.join("/", folder, path)).lstrip("/")
