import pytest

from services.ingestion.parsing.documents import parse
from services.ingestion.sections import ParsedDocument
from tests.unit.ingestion.office import WORD, docx, element, paragraph, relationships, run, zipped

STYLES = """
<w:style w:styleId="1"><w:name w:val="heading 1"/><w:pPr><w:outlineLvl w:val="0"/></w:pPr></w:style>
<w:style w:styleId="2"><w:name w:val="标题 2"/></w:style>
<w:style w:styleId="mine"><w:name w:val="Chapter"/><w:basedOn w:val="1"/></w:style>
<w:style w:styleId="plain"><w:name w:val="Unlisted"/><w:basedOn w:val="1"/><w:pPr><w:outlineLvl w:val="9"/></w:pPr></w:style>
<w:style w:styleId="Title"><w:name w:val="Title"/></w:style>
<w:style w:styleId="toc"><w:name w:val="toc 1"/></w:style>
<w:style w:styleId="bullet"><w:name w:val="List Bullet"/><w:pPr><w:numPr><w:numId w:val="3"/></w:numPr></w:pPr></w:style>
<w:style w:styleId="a"><w:name w:val="A"/><w:basedOn w:val="b"/></w:style>
<w:style w:styleId="b"><w:name w:val="B"/><w:basedOn w:val="a"/></w:style>
"""


def read(body: str, footnotes: str = "") -> ParsedDocument:
    return parse(docx(body, styles=STYLES, footnotes=footnotes), filename="a.docx")


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(text)}</w:tc>"


def test_styles_and_outline_levels_make_headings_under_the_title() -> None:
    document = read(
        paragraph("手册", style="Title")
        + paragraph("1. 总则", style="mine")
        + paragraph("Text.")
        + paragraph("1.1 术语", style="2")
        + paragraph("More.", style="plain")
        + paragraph("By level", properties='<w:outlineLvl w:val="1"/>')
        + paragraph("Last.", style="a")
    )
    assert [(section.title, section.heading_path, section.content) for section in document.sections] == [
        ("总则", ("手册", "1. 总则"), "Text."),
        ("术语", ("手册", "1. 总则", "1.1 术语"), "More."),
        ("By level", ("手册", "1. 总则", "By level"), "Last."),
    ]


def test_what_is_not_text_of_the_document_is_left_out() -> None:
    hidden = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden </w:t></w:r>"
    not_hidden = '<w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>shown </w:t></w:r>'
    field = (
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> {0} </w:instrText></w:r>'
        '<w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>{1}</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )
    document = read(
        paragraph("Contents 1", style="toc")
        + paragraph(
            run("kept ")
            + f"<w:del>{run('deleted ')}</w:del><w:moveFrom>{run('moved ')}</w:moveFrom><w:ins>{run('inserted ')}</w:ins>"
            + hidden
            + not_hidden
            + field.format("PAGE", "17")
            + field.format("REF x", "see 4 ")
            + f'<w:fldSimple w:instr=" NUMPAGES ">{run("99")}</w:fldSimple>'
            + f"<w:hyperlink>{run('link')}</w:hyperlink><w:r><w:tab/><w:noBreakHyphen/><w:br/></w:r>{run('end')}"
        )
    )
    assert document.text == "kept inserted shown see 4 link\t-\nend"


def test_lists_stand_line_under_line_by_depth() -> None:
    deeper = '<w:numPr><w:ilvl w:val="1"/><w:numId w:val="3"/></w:numPr>'
    none = '<w:numPr><w:numId w:val="0"/></w:numPr>'
    document = read(
        paragraph("one", style="bullet")
        + paragraph("two", properties=deeper)
        + paragraph("no item", style="bullet", properties=none)
    )
    assert document.text == "- one\n  - two\n\nno item"


def test_merged_cells_are_laid_out_and_deleted_rows_left_out() -> None:
    rows = "<w:tr><w:trPr><w:tblHeader/></w:trPr>" + cell("字段") + cell("Sizes", '<w:gridSpan w:val="2"/>') + "</w:tr>"
    rows += "<w:tr><w:trPr><w:tblHeader/></w:trPr>" + cell("") + cell("min") + cell("max") + "</w:tr>"
    rows += "<w:tr>" + cell("id", '<w:vMerge w:val="restart"/>') + cell("1") + cell("2") + "</w:tr>"
    rows += "<w:tr>" + cell("", "<w:vMerge/>") + cell("3") + cell("4") + "</w:tr>"
    rows += "<w:tr><w:trPr><w:del/></w:trPr>" + cell("gone") + "</w:tr>"
    document = read(f"<w:tbl>{rows}</w:tbl>")
    assert document.text == "| 字段 | Sizes min | Sizes max |\n| --- | --- | --- |\n| id | 1 | 2 |\n| id | 3 | 4 |"
    assert [(block.start, block.end) for block in document.blocks] == [(0, len(document.text))]


def test_a_table_that_frames_text_is_not_a_table() -> None:
    inner = f"<w:tbl><w:tr>{cell('a')}{cell('b')}</w:tr></w:tbl>"
    framed = paragraph("Inside", style="1") + paragraph("line one") + paragraph("line two")
    document = read(
        f"<w:tbl><w:tr><w:tc>{framed}</w:tc></w:tr></w:tbl>"
        f"<w:tbl><w:tr>{cell('left')}<w:tc>{inner}<w:p/></w:tc></w:tr></w:tbl>"
        f"<w:tbl><w:tr>{cell('long ' * 400)}{cell('right')}</w:tr></w:tbl>"
    )
    (section,) = document.sections
    assert section.title == "Inside"
    assert section.content.startswith("line one\n\nline two\n\nleft\n\n| a | b |\n| --- | --- |\n\nlong long")
    assert section.content.endswith("long\n\nright")


def test_a_text_box_is_read_once_behind_its_paragraph() -> None:
    box = f"<w:txbxContent>{paragraph('in the box')}</w:txbxContent>"
    drawing = f"<mc:Choice><w:drawing><wps:txbx>{box}</wps:txbx></w:drawing></mc:Choice>"
    old = f"<mc:Fallback><w:pict><v:textbox>{box}</v:textbox></w:pict></mc:Fallback>"
    document = read(
        paragraph(f"{run('around')}<w:r><mc:AlternateContent>{drawing}{old}</mc:AlternateContent></w:r>")
        + paragraph(f"<w:r><mc:AlternateContent><mc:Choice/>{old}</mc:AlternateContent></w:r>")
    )
    assert document.text == "around\n\nin the box\n\nin the box"


def test_notes_follow_the_paragraph_that_refers_to_them() -> None:
    reference = '<w:r><w:footnoteReference w:id="7"/></w:r>'
    notes = f'<w:footnote w:id="0" w:type="separator">{paragraph("-")}</w:footnote>'
    notes += f'<w:footnote w:id="7">{paragraph("the note")}</w:footnote>'
    table = f"<w:tbl><w:tr><w:tc>{paragraph(run('cell') + reference)}</w:tc>{cell('b')}</w:tr></w:tbl>"
    document = read(paragraph(run("claim") + reference) + table + paragraph("next"), notes)
    assert document.text == "claim[^1]\n\n[^1]: the note\n\n| cell[^2] | b |\n| --- | --- |\n\n[^2]: the note\n\nnext"


def test_content_controls_and_insertions_are_looked_into() -> None:
    row = f"<w:sdt><w:sdtContent><w:tr>{cell('a')}<w:sdt><w:sdtContent>{cell('b')}</w:sdtContent></w:sdt></w:tr></w:sdtContent></w:sdt>"
    document = read(
        f"<w:sdt><w:sdtPr/><w:sdtContent>{paragraph('one')}<w:ins>{paragraph('two')}</w:ins></w:sdtContent></w:sdt>"
        f"<w:tbl>{row}</w:tbl>"
    )
    assert document.text == "one\n\ntwo\n\n| a | b |\n| --- | --- |"


def test_iso_strict_files_are_read() -> None:
    strict = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    body = element("w:document", f"<w:body>{paragraph('strict text')}</w:body>").replace(WORD, strict)
    rels = relationships(("officeDocument", "word/document.xml")).replace(
        "http://schemas.openxmlformats.org/officeDocument/2006", "http://purl.oclc.org/ooxml/officeDocument"
    )
    assert parse(zipped({"_rels/.rels": rels, "word/document.xml": body}), filename="a.docx").text == "strict text"


@pytest.mark.parametrize("opened", ["w:smartTag", "w:sdt"])
def test_the_deepest_nesting_that_xml_allows_is_read(opened: str) -> None:
    inside = f"<{opened}>" * 245 + run("deep") + f"</{opened}>" * 245
    assert read(paragraph(inside)).text == "deep"


def test_deep_tables_and_text_boxes_do_not_exhaust_the_stack() -> None:
    table = paragraph("deep")
    for _ in range(60):
        table = f"<w:tbl><w:tr>{cell('x')}<w:tc>{table}</w:tc></w:tr></w:tbl>"
    assert read(table).text.endswith("deep |\n| --- | --- |")
    box = paragraph("deep")
    for _ in range(60):
        box = f"<w:p><w:r><w:pict><w:txbxContent>{box}</w:txbxContent></w:pict></w:r></w:p>"
    assert read(box).text == "deep"
