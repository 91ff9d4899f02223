"""What Word, PowerPoint and Excel files have in common: parts that refer to each other, in two families of namespaces.

Names of elements are given as `w:p`, whichever of the families (transitional or ISO strict) the file uses.
"""

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Final

from lxml import etree

from services.ingestion.parsing.archive import Archive
from services.ingestion.parsing.limits import Corrupt
from services.ingestion.parsing.safe_xml import parse_xml

_TRANSITIONAL: Final = "http://schemas.openxmlformats.org/"
_STRICT: Final = "http://purl.oclc.org/ooxml/"
_PREFIXES: Final = {
    f"{_TRANSITIONAL}wordprocessingml/2006/main": "w",
    f"{_STRICT}wordprocessingml/main": "w",
    f"{_TRANSITIONAL}presentationml/2006/main": "p",
    f"{_STRICT}presentationml/main": "p",
    f"{_TRANSITIONAL}spreadsheetml/2006/main": "x",
    f"{_STRICT}spreadsheetml/main": "x",
    f"{_TRANSITIONAL}drawingml/2006/main": "a",
    f"{_STRICT}drawingml/main": "a",
    f"{_TRANSITIONAL}drawingml/2006/diagram": "dgm",
    f"{_STRICT}drawingml/diagram": "dgm",
    f"{_TRANSITIONAL}officeDocument/2006/relationships": "r",
    f"{_STRICT}officeDocument/relationships": "r",
    f"{_TRANSITIONAL}officeDocument/2006/math": "m",
    f"{_STRICT}officeDocument/math": "m",
    f"{_TRANSITIONAL}markup-compatibility/2006": "mc",
}


@dataclass(frozen=True, slots=True)
class Relationship:
    """A reference from one part to another: `kind` is the last word of its type (`styles`, `slide`), `target` a part's name."""

    kind: str
    target: str


class Package:
    """An archive of parts with relationships. Raises what Archive raises."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    @property
    def main(self) -> str:
        """The name of the part that the file is about. Raises Corrupt."""
        for relationship in self.relationships("").values():
            if relationship.kind == "officeDocument":
                return relationship.target
        raise Corrupt("the file is damaged: it doesn't say which of its parts is the document")

    def relationships(self, part: str) -> dict[str, Relationship]:
        """Return a part's relationships within the package by their ids; those to the outside are nobody's business here."""
        folder, name = posixpath.split(part)
        source = posixpath.join(folder, "_rels", f"{name}.rels")
        if source not in self._archive:
            return {}
        return {
            element.get("Id", ""): Relationship(
                element.get("Type", "").rpartition("/")[2], _resolve(folder, element.get("Target", ""))
            )
            for element in self.root(source)
            if element.get("TargetMode") != "External"
        }

    def related(self, part: str, kind: str) -> str | None:
        """Return the first part of a kind that a part refers to and that is there."""
        targets = (found.target for found in self.relationships(part).values() if found.kind == kind)
        return next((target for target in targets if target in self._archive), None)

    def root(self, part: str) -> etree._Element:
        """Return the root of a part that is small by its nature, or of one that can't be read in pieces."""
        with self._archive.open(part) as stream:
            return parse_xml(stream)

    @contextmanager
    def open(self, part: str) -> Iterator[IO[bytes]]:
        """Open a part for reading in pieces."""
        with self._archive.open(part) as stream:
            yield stream


@lru_cache(maxsize=4096)
def _short(tag: str) -> str:
    namespace, _, name = tag[1:].rpartition("}")
    prefix = _PREFIXES.get(namespace)
    return f"{prefix}:{name}" if prefix else name


def kind_of(element: etree._Element) -> str:
    """Return the element's name as `w:p`; only the local name where the namespace is none of ours."""
    return _short(element.tag)


def child(element: etree._Element, *path: str) -> etree._Element | None:
    """Return the first child of that kind, or the first child's first child, and so on."""
    found: etree._Element | None = element
    for kind in path:
        if found is None:
            return None
        found = next((one for one in found if kind_of(one) == kind), None)
    return found


def attribute(element: etree._Element | None, name: str) -> str | None:
    """Return an attribute by its local name, in whatever namespace it is."""
    if element is None:
        return None
    return next((str(value) for key, value in element.attrib.items() if _local(key) == name), None)


def is_on(element: etree._Element | None) -> bool:
    """Whether a switch such as `<w:vanish/>` is there and not turned off."""
    return element is not None and attribute(element, "val") not in ("0", "false", "off")


def alternatives(element: etree._Element) -> etree._Element | None:
    """Return the one branch of an `mc:AlternateContent` to read: the first choice that holds something, else the fallback."""
    branches = [branch for branch in element if len(branch)]
    choices = [branch for branch in branches if kind_of(branch) == "mc:Choice"]
    return next(iter(choices or branches), None)


def _local(key: object) -> str:
    return str(key).rpartition("}")[2]


def _resolve(folder: str, target: str) -> str:
    return posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
