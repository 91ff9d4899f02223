import pytest

from services.ingestion.parsing.documents import parse
from services.ingestion.parsing.limits import Corrupt, Encrypted, NoText
from services.ingestion.sections import Note, ParsedDocument
from tests.unit.ingestion.office import epub, pptx, shape, xlsx, zipped


def paths(document: ParsedDocument) -> list[tuple[tuple[str, ...], str]]:
    return [(section.heading_path, section.content) for section in document.sections]


# PowerPoint


def test_slides_are_sections_in_the_order_in_which_they_are_shown() -> None:
    second = (
        shape("Second", placeholder="title")
        + shape("point", placeholder="body", level=1)
        + shape("7", placeholder="sldNum")
    )
    first = shape("free text") + f"<p:grpSp>{shape('grouped')}</p:grpSp>"
    document = parse(pptx(second, first, notes=shape("say this", placeholder="body")), filename="a.pptx")
    assert paths(document) == [
        (("Slide 1",), "free text\n\ngrouped"),
        (("Second",), "  - point\n\nsay this"),
    ]


def test_a_table_on_a_slide_has_its_merged_cells() -> None:
    def cell(text: str, attributes: str = "") -> str:
        return f"<a:tc {attributes}><a:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></a:txBody></a:tc>"

    rows = "<a:tr>" + cell("A", 'gridSpan="2"') + cell("", 'hMerge="1"') + cell("B") + "</a:tr>"
    rows += "<a:tr>" + cell("x", 'rowSpan="2"') + cell("1") + cell("2") + "</a:tr>"
    rows += "<a:tr>" + cell("", 'vMerge="1"') + cell("3") + cell("4") + "</a:tr>"
    frame = (
        f"<p:graphicFrame><a:graphic><a:graphicData><a:tbl>{rows}</a:tbl></a:graphicData></a:graphic></p:graphicFrame>"
    )
    document = parse(pptx(shape("T", placeholder="ctrTitle") + frame), filename="a.pptx")
    assert paths(document) == [(("T",), "| A |  | B |\n| --- | --- | --- |\n| x | 1 | 2 |\n| x | 3 | 4 |")]


# Excel

STYLES = """
<numFmts><numFmt numFmtId="164" formatCode="yyyy&quot;年&quot;m&quot;月&quot;"/><numFmt numFmtId="165" formatCode="[$-804]0.0%"/></numFmts>
<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/><xf numFmtId="165"/><xf numFmtId="22"/><xf numFmtId="46"/></cellXfs>
"""
STRINGS = "<si><t>名称</t></si><si><r><t>数</t></r><r><t>值</t></r><rPh><t>reading</t></rPh></si>"


def row(number: int, *cells: str) -> str:
    return f'<row r="{number}">{"".join(cells)}</row>'


def value(address: str, text: str, kind: str = "n", style: int = 0) -> str:
    return f'<c r="{address}" t="{kind}" s="{style}"><f>SUM(A1)</f><v>{text}</v></c>'


def inline(address: str, text: str) -> str:
    return f'<c r="{address}" t="inlineStr"><is><t>{text}</t></is></c>'


def test_cells_show_what_a_reader_sees() -> None:
    rows = "<sheetData>" + row(1, value("A1", "0", "s"), value("B1", "1", "s"), value("C1", "99", "s"))
    rows += row(2, value("A2", "45413", style=1), value("B2", "45413", style=2), value("C2", "0.125", style=3))
    rows += row(3, value("A3", "45413.75", style=4), value("B3", "1.25", style=5), value("C3", "0.30000000000000004"))
    rows += row(4, value("A4", "1", "b"), value("B4", "#N/A", "e"), value("C4", "12345678901234567890"))
    rows += row(5, value("A5", "a|b", "str"), value("B5", "1E3"), value("C5", "-1", style=1)) + "</sheetData>"
    document = parse(xlsx(("数据", rows), strings=STRINGS, styles=STYLES), filename="a.xlsx")
    assert paths(document) == [
        (
            ("数据",),
            "| 名称 | 数值 |  |\n| --- | --- | --- |\n| 2024-05-01 | 2024-05-01 | 12.5% |\n"
            "| 2024-05-01 18:00 | 30:00:00 | 0.3 |\n| TRUE |  | 12345678901234567890 |\n| a\\|b | 1000 | -1 |",
        )
    ]


def test_a_formula_that_was_never_calculated_is_text() -> None:
    def formula(address: str, inside: str, kind: str = "n") -> str:
        return f'<c r="{address}" t="{kind}">{inside}</c>'

    rows = row(1, inline("A1", "net"), inline("B1", "gross"), inline("C1", "note"), inline("D1", "all"))
    rows += row(
        2,
        value("A2", "10"),
        formula("B2", "<f>A2*1.19</f>"),
        formula("C2", '<f>IF(A2&lt;5,"low","high")</f><v/>', "str"),
    )
    rows += row(3, formula("A3", '<f t="shared" ref="A3:A9" si="0">A2+1</f>'), formula("B3", "<f>A3*1.19</f><v> </v>"))
    rows += row(
        4,
        formula("A4", '<f t="shared" si="0"/>'),
        formula("B4", "<f/>"),
        formula("D4", '<f t="array" ref="D4">SUM(A2:A9)</f>'),
    )
    document = parse(xlsx(("S", f"<sheetData>{rows}</sheetData>")), filename="a.xlsx")
    assert document.text.splitlines()[2:] == [
        "| net | gross | note | all |",
        "| --- | --- | --- | --- |",
        '| 10 | =A2*1.19 | =IF(A2<5,"low","high") |',
        "| =A2+1 (A3:A9) | =A3*1.19 |",
        "|  |  |  | =SUM(A2:A9) |",
    ]


def test_sheets_are_sections_and_hidden_ones_are_told_of() -> None:
    rows = f"<sheetData>{row(1, inline('A1', 'a'), inline('B1', 'b'))}</sheetData>"
    document = parse(
        xlsx(("One", rows), ("Secret", rows), ("Empty", "<sheetData/>"), hidden="Secret"), filename="a.xlsx"
    )
    assert paths(document) == [(("One",), "| a | b |\n| --- | --- |")]
    assert document.notes == (Note("hidden_sheet", "the hidden sheet 'Secret' was left out"),)


def test_a_sheet_is_cut_where_another_table_begins() -> None:
    rows = "<sheetData>" + row(1, inline("A1", "Report 2024"))
    rows += row(2, inline("B2", "id"), inline("D2", "n")) + row(3, value("B3", "1"), value("D3", "2"))
    rows += row(5, value("B5", "3"), value("D5", "4"))  # a gap in the data, no header
    rows += (
        row(9, inline("A9", "x"), inline("B9", "y")) + row(10, value("A10", "5"), value("B10", "6")) + "</sheetData>"
    )
    document = parse(xlsx(("S", rows)), filename="a.xlsx")
    assert document.text == (
        "S\n\nReport 2024\n\n| id | n |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n\n| x | y |\n| --- | --- |\n| 5 | 6 |"
    )


def test_a_value_merged_down_stands_in_each_row() -> None:
    rows = "<sheetData>" + row(1, inline("A1", "region"), inline("B1", "city"))
    rows += row(2, inline("A2", "华东"), inline("B2", "上海")) + row(3, inline("B3", "杭州")) + "</sheetData>"
    rows += '<mergeCells><mergeCell ref="A2:A3"/><mergeCell ref="nonsense"/></mergeCells>'
    document = parse(xlsx(("S", rows)), filename="a.xlsx")
    assert document.text.endswith("| 华东 | 上海 |\n| 华东 | 杭州 |")


def test_cells_scattered_to_the_ends_of_a_sheet_are_lines_in_little_time() -> None:
    rows = "".join(row(n, inline(f"{column(n)}{n}", f"v{n}"), inline("XFD1", "w")) for n in range(1, 3_001))
    document = parse(xlsx(("S", f"<sheetData>{rows}</sheetData>")), filename="a.xlsx")
    assert all(f"| v{n} | w |" in document.text for n in (1, 1_500, 3_000))


def column(number: int) -> str:
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


# EPUB


def test_a_book_is_read_in_order_without_its_contents() -> None:
    nav = "<ol><li><a href='two.xhtml#x'>Chapter Two</a></li></ol>"
    document = parse(epub({"one": "<h1>One</h1><p>a&nbsp;b</p>", "two": "<p>second</p>"}, nav=nav), filename="a.epub")
    assert paths(document) == [(("One",), "a\xa0b"), (("Chapter Two",), "second")]


def test_names_of_chapters_come_from_an_ncx_too() -> None:
    ncx = (
        "<!DOCTYPE ncx PUBLIC '-//NISO//DTD ncx 2005-1//EN' 'http://www.daisy.org/z3986/2005/ncx-2005-1.dtd'><ncx><navMap>"
        "<navPoint><navLabel><text>第一回</text></navLabel><content src='one.xhtml'/></navPoint></navMap></ncx>"
    )
    book = (
        "<package><manifest><item id='one' href='one.xhtml' media-type='application/xhtml+xml'/>"
        "<item id='ncx' href='toc.ncx' media-type='application/x-dtbncx+xml'/></manifest><spine><itemref idref='one'/></spine></package>"
    )
    data = epub({"one": "<p>话说</p>"}, parts={"OEBPS/book.opf": book, "OEBPS/toc.ncx": ncx})
    assert paths(parse(data, filename="a.epub")) == [(("第一回",), "话说")]


def test_a_book_under_rights_management_is_encrypted_and_one_without_its_list_corrupt() -> None:
    lock = "<encryption><EncryptedData><CipherData><CipherReference URI='OEBPS/one.xhtml'/></CipherData></EncryptedData></encryption>"
    with pytest.raises(Encrypted):
        parse(epub({"one": "<p>x"}, parts={"META-INF/encryption.xml": lock}), filename="a.epub")
    with pytest.raises(Corrupt):
        parse(zipped({"mimetype": "application/epub+zip"}), filename="a.epub")
    with pytest.raises(NoText):
        parse(epub({"one": "<img src='a.png'/>"}), filename="a.epub")


# CSV


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('id,name\n1,"a, b"\n', "a.csv"),
        ('id;name\n1;"a, b"\n', "a.csv"),
        ("id\tname\n1\ta, b\n", "a.tsv"),
        ("id|name\n1|a, b\n", "a.csv"),
        ("sep=;\nid;name\n1;a, b\n", "a.csv"),
    ],
)
def test_the_sign_between_cells_is_found(text: str, name: str) -> None:
    assert parse(text.encode(), filename=name).text == "| id | name |\n| --- | --- |\n| 1 | a, b |"


def test_csv_in_chinese_encodings_is_read_and_text_without_cells_is_text() -> None:
    text = "编号,名称,说明\n1,牛肝菌,可食用的蘑菇种类之一\n2,香菇,常见的食用菌类之一\n"
    assert "| 1 | 牛肝菌 | 可食用的蘑菇种类之一 |" in parse(text.encode("gb18030"), filename="a.csv").text
    assert parse(b"no cells here\nnor here", filename="a.csv").text == "no cells here\nnor here"


def test_a_quotation_mark_that_is_never_closed_is_a_sign_like_any_other() -> None:
    text = 'a,b\n1,"open\n' + f"2,{'x' * 50}\n" * 3_000
    document = parse(text.encode(), filename="a.csv")
    assert document.text.count(f"| 2 | {'x' * 50} |") == 3_000


@pytest.mark.parametrize(
    ("number", "style"),
    [("2958465.9999999", 4), ("1e999", 5), ("NaN", 5), ("9" * 5000, 4)],
    ids=["late", "infinite", "nan", "long"],
)
def test_a_cell_beyond_all_dates_does_not_lose_its_file(number: str, style: int) -> None:
    rows = row(1, inline("A1", "name"), value("B1", number, style=style)) + row(2, inline("A2", "kept"))
    sheet = ("Sheet", f"<sheetData>{rows}</sheetData>")
    assert "kept" in parse(xlsx(sheet, styles=STYLES), filename="a.xlsx").text


def test_numbers_of_five_thousand_digits_point_to_nothing() -> None:
    rows = row(1, inline("A1", "kept"), value("B1", "9" * 5000, kind="s"))
    assert "kept" in parse(xlsx(("Sheet", f"<sheetData>{rows}</sheetData>")), filename="a.xlsx").text
