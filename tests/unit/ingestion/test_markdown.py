from time import process_time

import pytest

from services.ingestion.parsing.limits import LineTooLong, ParseLimits, TooManyHeadings
from services.ingestion.parsing.markdown import parse_markdown, plain_heading
from services.ingestion.sections import ParsedDocument

DESIGN = """\
Words before any heading.

# 第三章 数据库

## 3.1 订单表

| 字段 | 类型 |
|------|------|
| id   | uuid |

### 字段说明

`id` is the key.

Setext title
============

```sh
# not a heading
```

> # quoted, no section

- # in a list, no section

<div>
# inside HTML
</div>

## Empty leaf
"""


def parse(text: str, heading_levels: int = 6) -> ParsedDocument:
    return parse_markdown(text, limits=ParseLimits(), heading_levels=heading_levels)


def test_headings_open_sections_with_their_paths() -> None:
    found = [(section.title, section.heading_path, section.level) for section in parse(DESIGN).sections]
    assert found == [
        ("", (), 0),
        ("订单表", ("第三章 数据库", "3.1 订单表"), 2),
        ("字段说明", ("第三章 数据库", "3.1 订单表", "字段说明"), 3),
        ("Setext title", ("Setext title",), 1),
        ("Empty leaf", ("Setext title", "Empty leaf"), 2),
    ]


def test_content_is_the_text_between_its_offsets() -> None:
    document = parse(DESIGN)
    assert all(section.content == DESIGN[section.start : section.end] for section in document.sections)
    preamble, table, body, setext, leaf = (section.content for section in document.sections)
    assert preamble == "Words before any heading."
    assert table == "| 字段 | 类型 |\n|------|------|\n| id   | uuid |"
    assert body == "`id` is the key."
    assert setext.startswith("```sh\n# not a heading")
    assert setext.endswith("</div>")
    assert leaf == "## Empty leaf"  # nothing else would hold its words


def test_tables_code_and_html_are_blocks() -> None:
    document = parse(DESIGN)
    assert [DESIGN[block.start : block.end].partition("\n")[0] for block in document.blocks] == [
        "| 字段 | 类型 |",
        "```sh",
        "<div>",
    ]


def test_deeper_headings_stay_in_the_text_when_levels_are_limited() -> None:
    sections = parse("# A\n\na\n\n## B\n\nb\n", heading_levels=1).sections
    assert [(section.title, section.content) for section in sections] == [("A", "a\n\n## B\n\nb")]


def test_a_document_without_headings_is_one_section() -> None:
    (section,) = parse("one\n\ntwo\n").sections
    assert (section.title, section.level, section.content) == ("", 0, "one\n\ntwo")


@pytest.mark.parametrize("fence", ["---", "+++"])
def test_front_matter_is_no_text_but_may_give_the_title(fence: str) -> None:
    text = f'{fence}\ntitle: "Handbook"\ntags: [a]\n{fence}\n\nIntro.\n\n## Returns\n\nThirty days.\n'
    document = parse(text)
    assert [(section.heading_path, section.content) for section in document.sections] == [
        (("Handbook",), "Intro."),
        (("Handbook", "Returns"), "Thirty days."),
    ]
    assert document.text[document.body_start :].lstrip().startswith("Intro.")
    assert all(section.content == text[section.start : section.end] for section in document.sections)


def test_a_level_one_heading_wins_over_the_front_matter_title() -> None:
    document = parse("---\ntitle: From the metadata\n---\n# Real\n\ntext\n")
    assert document.sections[0].heading_path == ("Real",)


@pytest.mark.parametrize(
    "text", ["---\n\nProse between two rules.\n\n---\n\nMore.\n", "---\nkey: only front matter\n---\n"]
)
def test_what_only_looks_like_front_matter_is_kept(text: str) -> None:
    document = parse(text)
    assert document.body_start == 0
    assert "".join(text.split()).strip("-") in "".join(
        "".join(section.content for section in document.sections).split()
    )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('<a name="x"></a>[JavaScript](#tab)', "JavaScript"),
        ("The `->` *operator* &amp; **more**", "The -> operator & more"),
        ("![Logo](a.png) Setup", "Logo Setup"),
        ("t_order_header", "t_order_header"),
        ("two\nlines", "two lines"),
    ],
)
def test_a_heading_is_read_without_its_markup(source: str, words: str) -> None:
    assert plain_heading(source) == words


def test_too_many_headings_are_refused_before_parsing() -> None:
    began = process_time()
    with pytest.raises(TooManyHeadings) as error:
        parse("# heading\n" * 100_000)
    assert error.value.code == "too_many_headings"
    assert process_time() - began < 1


def test_the_limit_counts_headings_not_comments_in_code() -> None:
    limits = ParseLimits(max_headings=10)
    code = "```sh\n" + "# comment\n" * 20 + "```\n"
    assert len(parse_markdown(code, limits=limits).sections) == 1
    with pytest.raises(TooManyHeadings):
        parse_markdown("# heading\n" * 11, limits=limits)


def test_a_huge_line_is_refused() -> None:
    with pytest.raises(LineTooLong) as error:
        parse("x" * (1024 * 1024 + 1))
    assert error.value.code == "line_too_long"


def test_a_long_paragraph_over_dashes_is_no_heading() -> None:
    text = "word " * 100 + "\n---\n\nmore\n"
    (section,) = parse(text).sections
    assert section.level == 0
    assert section.content == text.strip()
