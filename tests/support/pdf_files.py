"""PDF files made for tests: text where it is wanted, in fonts that need not be in the file."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

_CJK_FONT = (
    b"<< /Type /Font /Subtype /Type0 /BaseFont /STSong /Encoding /UniGB-UCS2-H /DescendantFonts [<< /Type /Font"
    b" /Subtype /CIDFontType0 /BaseFont /STSong /CIDSystemInfo << /Registry (Adobe) /Ordering (GB1) /Supplement 2 >>"
    b" /DW 1000 /FontDescriptor << /Type /FontDescriptor /FontName /STSong /Flags 4 /FontBBox [0 -200 1000 900]"
    b" /ItalicAngle 0 /Ascent 880 /Descent -120 /CapHeight 700 /StemV 80 >> >>] >>"
)


@dataclass(frozen=True)
class Text:
    """Text with its baseline's begin in points from the lower left corner. `angle` in the terms of Tm: cos, sin."""

    x: float
    y: float
    text: str
    size: float = 12
    angle: tuple[float, float] = (1, 0)
    letter_gap: float = 0

    def drawn(self) -> bytes:
        cos, sin = self.angle
        place = f"{cos} {sin} {-sin} {cos} {self.x} {self.y} Tm {self.letter_gap} Tc"
        if self.text.isascii():
            escaped = self.text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
            shown = f"/F1 {self.size} Tf ({escaped}) Tj"
        else:
            shown = f"/F2 {self.size} Tf <{self.text.encode('utf-16-be').hex()}> Tj"
        return f"BT {place} {shown} ET\n".encode()


@dataclass
class PdfFile:
    """A file of pages; `outline` is (level from 1 on, title, page's index)."""

    pages: Sequence[Sequence[Text]]
    outline: Sequence[tuple[int, str, int]] = ()
    encryption: bytes = b""
    _objects: list[bytes] = field(default_factory=list)

    def add(self, content: bytes) -> int:
        """Append an object; return its number."""
        self._objects.append(content)
        return len(self._objects)

    def put(self, number: int, content: bytes) -> None:
        """Replace an object."""
        self._objects[number - 1] = content

    def stream(self, content: bytes) -> int:
        packed = zlib.compress(content)
        return self.add(b"<< /Length %d /Filter /FlateDecode >> stream\n%b\nendstream" % (len(packed), packed))

    def to_bytes(self) -> bytes:
        catalog, tree = self.add(b""), self.add(b"")
        fonts = self.add(b"<< /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> /F2 %b >>" % _CJK_FONT)
        kids = [self._page(texts, tree, fonts) for texts in self.pages]
        listed = b" ".join(b"%d 0 R" % kid for kid in kids)
        self.put(tree, b"<< /Type /Pages /Count %d /Kids [%b] >>" % (len(kids), listed))
        outlines = b" /Outlines %d 0 R" % self._outline(kids) if self.outline else b""
        self.put(catalog, b"<< /Type /Catalog /Pages %d 0 R%b >>" % (tree, outlines))
        return self.joined(catalog)

    def _page(self, texts: Sequence[Text], tree: int, fonts: int) -> int:
        content = self.stream(b"".join(text.drawn() for text in texts))
        return self.add(
            b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 595 842] /Resources << /Font %d 0 R >> /Contents %d 0 R >>"
            % (tree, fonts, content)
        )

    def _outline(self, kids: Sequence[int]) -> int:
        """Write the bookmarks, each the parent of those deeper behind it."""
        root = self.add(b"")
        numbers = [self.add(b"") for _ in self.outline]
        parents = [
            next((numbers[before] for before in range(index - 1, -1, -1) if self.outline[before][0] < level), root)
            for index, (level, _, _) in enumerate(self.outline)
        ]
        for index, (_, title, page) in enumerate(self.outline):
            children = [numbers[other] for other in range(len(numbers)) if parents[other] == numbers[index]]
            later = [numbers[other] for other in range(index + 1, len(numbers)) if parents[other] == parents[index]]
            inside = b" /First %d 0 R /Last %d 0 R" % (children[0], children[-1]) if children else b""
            following = b" /Next %d 0 R" % later[0] if later else b""
            name = b"\xfe\xff" + title.encode("utf-16-be")
            target = b"/Parent %d 0 R /Dest [%d 0 R /Fit]%b%b" % (parents[index], kids[page], inside, following)
            self.put(numbers[index], b"<< /Title <%b> %b >>" % (name.hex().encode(), target))
        top = [number for number, parent in zip(numbers, parents, strict=True) if parent == root]
        self.put(root, b"<< /Type /Outlines /First %d 0 R /Last %d 0 R >>" % (top[0], top[-1]))
        return root

    def joined(self, catalog: int) -> bytes:
        data = b"%PDF-1.7\n"
        offsets = []
        for number, content in enumerate(self._objects, start=1):
            offsets.append(len(data))
            data += b"%d 0 obj\n%b\nendobj\n" % (number, content)
        table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
        trailer = b"<< /Size %d /Root %d 0 R%b >>" % (len(offsets) + 1, catalog, self.encryption)
        return b"%bxref\n0 %d\n0000000000 65535 f \n%btrailer\n%b\nstartxref\n%d\n%%%%EOF\n" % (
            data, len(offsets) + 1, table, trailer, len(data),
        )  # fmt: skip


def lines(*texts: str, x: float = 72, top: float = 770, step: float = 14, size: float = 11) -> list[Text]:
    """Lines under each other."""
    return [Text(x, top - step * number, text, size) for number, text in enumerate(texts)]


def form_in_itself() -> bytes:
    """A page that draws a form which draws itself three times: hours of work in a kilobyte."""
    file = PdfFile([])
    catalog, tree, form = file.add(b""), file.add(b""), file.add(b"")
    drawn = b"/X Do /X Do /X Do"
    resources = b"/Resources << /XObject << /X %d 0 R >> >>" % form
    file.put(
        form,
        b"<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] %b /Length %d >> stream\n%b\nendstream"
        % (resources, len(drawn), drawn),
    )
    content = file.stream(b"/X Do")
    page = file.add(
        b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 595 842] %b /Contents %d 0 R >>" % (tree, resources, content)
    )
    file.put(tree, b"<< /Type /Pages /Count 1 /Kids [%d 0 R] >>" % page)
    file.put(catalog, b"<< /Type /Catalog /Pages %d 0 R >>" % tree)
    return file.joined(catalog)
