import pytest

from services.ingestion.parsing.documents import parse
from services.ingestion.parsing.limits import Corrupt, NoText
from services.ingestion.sections import ParsedDocument
from services.ingestion.text import EmptyDocument
from shared.contracts.knowledge_settings import KnowledgeBaseSettings


def read(html: str | bytes) -> ParsedDocument:
    return parse(html.encode() if isinstance(html, str) else html, filename="a.html")


def texts(document: ParsedDocument) -> list[str]:
    return [document.text[block.start : block.end] for block in document.blocks]


def test_headings_become_sections_under_the_page_title() -> None:
    document = read(
        "<html><head><title>My\n Guide</title></head><body>before"
        "<h2>1.1 <a href=x>Set <code>up</code></a></h2><p>one<p>two<div><h3>Deep<br>er</h3>three</div></body></html>"
    )
    assert [(section.title, section.heading_path, section.content) for section in document.sections] == [
        ("My Guide", ("My Guide",), "before"),
        ("Set up", ("My Guide", "1.1 Set up"), "one\n\ntwo"),
        ("Deep er", ("My Guide", "1.1 Set up", "Deep er"), "three"),
    ]


def test_white_space_collapses_as_in_a_browser_and_chinese_lines_join() -> None:
    document = read(
        "<p>a\n  b<b> c</b><br>\n d<p>今天\n   天气<span>很</span>好\nok<p>若 a &lt; b，则 List&lt;String&gt;。"
    )
    assert document.text == "a b c\nd\n\n今天天气很好 ok\n\n若 a < b，则 List<String>。"


def test_what_a_browser_does_not_show_is_left_out() -> None:
    document = read(
        "<script>var x</script><style>p{}</style><!-- comment --><noscript>no js</noscript><p hidden>gone</p>"
        "<p style='color:red; display: none'>gone</p><p aria-hidden=true>gone</p><svg><text>gone</text></svg>"
        "<template>gone</template><button>Copy</button><p>base<rt>reading</rt></p><ruby>漢<rp>(</rp><rt>kan</rt></ruby>"
        "<div hidden role=tabpanel>panel</div><p style='border: none'>shown</p><p hidden=until-found>found</p>tail"
    )
    assert document.text == "base\n\n漢\n\npanel\n\nshown\n\nfound\n\ntail"


def test_menus_heads_and_feet_go_but_those_of_an_article_stay() -> None:
    page = (
        "<header>Logo</header><nav>Home</nav><div role=navigation>Menu</div><main><article><header><h1>Title</h1>"
        "<p>By me</p></header><p>{}</p><aside>Tip</aside><footer>Licence</footer></article></main>"
        "<aside>Related</aside><div role=contentinfo>Imprint</div><footer>2024</footer>"
    )
    (section,) = read(page.format("Body " * 100)).sections
    assert section.title == "Title"
    assert section.content == f"By me\n\n{('Body ' * 100).strip()}\n\nTip\n\nLicence"


def test_what_would_leave_next_to_nothing_is_kept() -> None:
    links = " ".join(f"<a>Chapter {number} of the manual</a>" for number in range(100))
    assert "Chapter 99 of the manual" in read(f"<nav>{links}</nav><p>ok").text
    header = read(f"<header><h1>Name</h1>{'words ' * 100}</header>short")
    assert header.sections[0].title == "Name"


def test_lists_have_marks_numbers_and_depth() -> None:
    document = read(
        "<ul><li>one<ol start=3><li><p>three</p><p>again</p></li><li>four</ol></li><li>two</ul><ul><li>other</ul>end"
    )
    assert document.text == "- one\n  3. three\n     again\n  4. four\n- two\n- other\n\nend"


def test_code_keeps_its_lines_and_is_not_cleaned() -> None:
    html = "<p>Use <code>&lt;div&gt;</code> &lt;b&gt;bold&lt;/b&gt;</p><pre><span>if x:</span>\n    <b>return</b> '&lt;b&gt;'<br>end</pre>"
    document = parse(html.encode(), filename="a.html", settings=KnowledgeBaseSettings(cleaning="wiki"))
    assert document.text == "Use `<div>` bold\n\nif x:\n    return '<b>'\nend"
    assert texts(document) == ["if x:\n    return '<b>'\nend"]


def test_spans_are_laid_out_so_that_each_row_says_what_it_belongs_to() -> None:
    document = read(
        "<table><caption>Sales</caption><thead><tr><th rowspan=2>Year<th colspan=2>Q1</tr><tr><th>plan<th>real</tr></thead>"
        "<tr><td rowspan=2>2024<td>1<td rowspan=2>x<tr><td>2<tr><td colspan=2>all<td>3</table>"
    )
    assert document.text == (
        "Sales\n\n| Year | Q1 plan | Q1 real |\n| --- | --- | --- |\n| 2024 | 1 | x |\n| 2024 | 2 | x |\n| all |  | 3 |"
    )


def test_tables_that_lay_out_a_page_are_not_tables() -> None:
    document = read(
        "<table><tr><td>menu<td><h1>Title</h1><table><tr><td>a<td>b</table>text</table>"
        "<table role=presentation><tr><td>c<td>d</table>"
        f"<table><tr><td>{'long ' * 400}<td>e</table>"
    )
    assert document.sections[1].title == "Title"
    assert document.text.startswith("menu\n\nTitle\n\n| a | b |\n| --- | --- |\n\ntext\n\nc\n\nd\n\nlong long")
    assert len(texts(document)) == 1


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("gb2312", "gb18030", "镕基㐀与朱"),
        ("GBK", "gb18030", "一丈八尺"),
        ("big5", "big5hkscs", "嘅係"),
        ("shift_jis", "cp932", "①日本語"),
        ("iso-8859-1", "cp1252", "“quoted” – naïve"),
        ("utf-16", "utf-8", "一丈八尺"),
        ("gb2312", "utf-8", "它说的不是它"),
        ("no-such-label", "utf-8", "一丈八尺"),
        ("euc-kr", "cp949", "똠방각하"),
    ],
)
def test_a_page_is_decoded_as_browsers_understand_its_label(declared: str, encoding: str, text: str) -> None:
    page = f"<html><head><meta http-equiv=Content-Type content='text/html; charset={declared}'></head><p>{text}</p>"
    assert read(page.encode(encoding)).text == text


def test_utf_16_by_its_mark_and_xhtml_by_its_declaration() -> None:
    assert read("\ufeff<html><p>一丈".encode("utf-16-le")).text == "一丈"
    page = "<?xml version='1.0' encoding='gbk'?><html xmlns='http://www.w3.org/1999/xhtml'><head><title/></head><p>一丈八尺</p></html>"
    assert read(page.encode("gbk")).text == "一丈八尺"


def test_elements_closed_at_once_do_not_swallow_the_page() -> None:
    head = "<html xmlns='http://www.w3.org/1999/xhtml'><head><title/><script src='a.js'/></head>"
    assert read(f"{head}<body><a id='x'/><p>text</p><br/></body></html>").text == "text"


def test_a_page_without_text_says_so() -> None:
    with pytest.raises(NoText, match="scripts"):
        read("<html><body><div id=app></div><script>render()</script></body></html>")
    with pytest.raises(EmptyDocument):
        read(" \n")


def test_nesting_is_read_to_the_depth_that_libxml2_takes_and_refused_beyond() -> None:
    assert read("<div>" * 2000 + "deep" + "</div>" * 2000 + "after").text == "deep\n\nafter"
    for tag in ("<div>", "<ul><li>", "<table><tr><td>", "<b>"):
        with pytest.raises(Corrupt, match="nested"):
            read(tag * 20_000 + "x")


@pytest.mark.parametrize("declared", ["rot13", "hex", "zip", "idna", "undefined", "unicode_escape", "punycode"])
def test_what_only_python_calls_an_encoding_is_not_obeyed(declared: str) -> None:
    page = f'<meta charset="{declared}"><p>caf\xe9 \\u0041 and more words than one</p>'.encode("cp1252")
    assert "\\u0041 and more words than one" in read(page).text
