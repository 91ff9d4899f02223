"""Documents to ingest, the same words in every format, made anew from a seed."""

import io
import random
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

_WORDS = re.findall(
    r"\w+",
    "queue session message order passage setting default index vector search retry lease outbox broker kettle valve",
)
_HAN = "订单支付退款库存数据字段索引接口消息队列会话知识检索答案章节表格系统用户权限日志配置部署"
_SECTIONS = 10
_WORDS_A_SECTION = 120
_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
_P = 'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
_R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
_S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_RELATIONSHIPS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


@dataclass(frozen=True, slots=True)
class Outline:
    """A document before it has a format: headings with a paragraph each."""

    sections: Sequence[tuple[str, str]]


def outlines(count: int, seed: int) -> list[Outline]:
    """So many documents, half of their sections in English and half in Chinese."""
    chosen = random.Random(seed)
    return [Outline([_section(chosen, number) for number in range(_SECTIONS)]) for _ in range(count)]


def _section(chosen: random.Random, number: int) -> tuple[str, str]:
    if number % 2:
        text = "。".join("".join(chosen.choices(_HAN, k=24)) for _ in range(_WORDS_A_SECTION // 8))
        return f"{''.join(chosen.choices(_HAN, k=6))} {number}", text + "。"
    sentences = (" ".join(chosen.choices(_WORDS, k=12)).capitalize() for _ in range(_WORDS_A_SECTION // 12))
    return f"{' '.join(chosen.choices(_WORDS, k=3)).title()} {number}", ". ".join(sentences) + "."


def markdown(outline: Outline) -> bytes:
    return "".join(f"# {title}\n\n{text}\n\n" for title, text in outline.sections).encode()


def plain(outline: Outline) -> bytes:
    return "".join(f"{title}\n\n{text}\n\n" for title, text in outline.sections).encode()


def html(outline: Outline) -> bytes:
    body = "".join(f"<h1>{escape(title)}</h1><p>{escape(text)}</p>" for title, text in outline.sections)
    return f"<!doctype html><html><head><meta charset=utf-8><title>t</title></head><body>{body}</body></html>".encode()


def csv(outline: Outline) -> bytes:
    return ("title,text\r\n" + "".join(f'"{title}","{text}"\r\n' for title, text in outline.sections)).encode()


def docx(outline: Outline) -> bytes:
    style = '<w:pPr><w:pStyle w:val="Heading1"/></w:pPr>'
    body = "".join(f"<w:p>{style}{_run(title)}</w:p><w:p>{_run(text)}</w:p>" for title, text in outline.sections)
    level = '<w:name w:val="heading 1"/><w:pPr><w:outlineLvl w:val="0"/></w:pPr>'
    styles = f'<w:style w:type="paragraph" w:styleId="Heading1">{level}</w:style>'
    return _office(
        "word/document.xml",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml",
        {
            "word/document.xml": f"<w:document {_W}><w:body>{body}</w:body></w:document>",
            "word/styles.xml": f"<w:styles {_W}>{styles}</w:styles>",
            "word/_rels/document.xml.rels": _relations([("styles", "styles.xml")]),
        },
    )


def pptx(outline: Outline) -> bytes:
    slides = {
        f"ppt/slides/slide{n}.xml": f"<p:sld {_P} {_A}><p:cSld><p:spTree>{_shape('title', title)}{_shape('body', text)}"
        "</p:spTree></p:cSld></p:sld>"
        for n, (title, text) in enumerate(outline.sections, start=1)
    }
    numbers = range(1, len(slides) + 1)
    ids = "".join(f'<p:sldId id="{255 + n}" r:id="rId{n}"/>' for n in numbers)
    return _office(
        "ppt/presentation.xml",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation.main+xml",
        {
            "ppt/presentation.xml": f"<p:presentation {_P} {_R}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
            "ppt/_rels/presentation.xml.rels": _relations([("slide", f"slides/slide{n}.xml") for n in numbers]),
            **slides,
        },
    )


def xlsx(outline: Outline) -> bytes:
    rows = "".join(f"<row>{_cell(title)}{_cell(text)}</row>" for title, text in [("title", "text"), *outline.sections])
    return _office(
        "xl/workbook.xml",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml",
        {
            "xl/workbook.xml": f'<workbook {_S} {_R}><sheets><sheet name="Sheet" sheetId="1" r:id="rId1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": _relations([("worksheet", "worksheets/sheet1.xml")]),
            "xl/worksheets/sheet1.xml": f"<worksheet {_S}><sheetData>{rows}</sheetData></worksheet>",
        },
    )


def epub(outline: Outline) -> bytes:
    chapter = "".join(f"<h1>{escape(title)}</h1><p>{escape(text)}</p>" for title, text in outline.sections)
    container = (
        '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata/><manifest>'
        '<item id="c" href="c.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="c"/></spine></package>'
    )
    return _zip(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": container,
            "book.opf": package,
            "c.xhtml": f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>t</title></head><body>{chapter}</body></html>',
        }
    )


def pdf(outline: Outline, pages: int = 1) -> bytes:
    """A page for all sections, again on each page; its standard font has no Chinese, so that those sections are left out."""
    lines = [line for title, text in outline.sections if title.isascii() for line in (title, *_lines(text), "")]
    content = "BT /F1 9 Tf 11 TL 50 800 Td " + " ".join(f"({line}) Tj T*" for line in lines) + " ET"
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(pages))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {pages} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n in range(pages):
        resources = "/Resources << /Font << /F1 3 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] {resources} /Contents {5 + 2 * n} 0 R >>")
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    return _pdf_file(objects)


FORMATS: dict[str, Callable[[Outline], bytes]] = {
    "md": markdown,
    "txt": plain,
    "html": html,
    "csv": csv,
    "docx": docx,
    "pptx": pptx,
    "xlsx": xlsx,
    "epub": epub,
    "pdf": pdf,
}


def _lines(text: str) -> list[str]:
    words = text.split()
    return [" ".join(words[n : n + 12]) for n in range(0, len(words), 12)]


def _pdf_file(objects: Sequence[str]) -> bytes:
    parts, offsets, length = ["%PDF-1.4\n"], [], 9
    for number, body in enumerate(objects, start=1):
        offsets.append(length)
        parts.append(f"{number} 0 obj\n{body}\nendobj\n")
        length += len(parts[-1])
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    parts.append(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}")
    parts.append(f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{length}\n%%EOF\n")
    return "".join(parts).encode("latin-1")


def _run(text: str) -> str:
    return f"<w:r><w:t>{escape(text)}</w:t></w:r>"


def _shape(kind: str, text: str) -> str:
    place = f'<p:nvSpPr><p:cNvPr id="1" name="{kind}"/><p:cNvSpPr/><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr><p:spPr/>'
    return f"<p:sp>{place}<p:txBody><a:bodyPr/><a:p><a:r><a:t>{escape(text)}</a:t></a:r></a:p></p:txBody></p:sp>"


def _cell(text: str) -> str:
    return f'<c t="inlineStr"><is><t>{escape(text)}</t></is></c>'


def _relations(targets: Sequence[tuple[str, str]]) -> str:
    links = "".join(
        f'<Relationship Id="rId{n}" Type="{_RELATIONSHIPS}/{kind}" Target="{target}"/>'
        for n, (kind, target) in enumerate(targets, start=1)
    )
    return (
        f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{links}</Relationships>'
    )


def _office(main: str, content_type: str, parts: dict[str, str]) -> bytes:
    types = (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/><Override PartName="/{main}" ContentType="{content_type}"/></Types>'
    )
    return _zip({"[Content_Types].xml": types, "_rels/.rels": _relations([("officeDocument", main)]), **parts})


def _zip(parts: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return buffer.getvalue()
