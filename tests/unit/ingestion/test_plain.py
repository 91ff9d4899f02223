"""Plain text: chapters where its lines say so, one section otherwise."""

import pytest

from services.ingestion.parsing.plain import parse_plain


def _outline(text: str) -> list[tuple[str, tuple[str, ...], str]]:
    return [(section.title, section.heading_path, section.content) for section in parse_plain(text).sections]


def test_a_chinese_novel_is_cut_at_its_chapters() -> None:
    text = "书名\n\n  正文 第一回 风起\n话说天下。\n　　第二回 云涌\n次日。\n第三回 雨落\n又一日。\n"
    assert _outline(text) == [
        ("", (), "书名"),
        ("风起", ("第一回 风起",), "话说天下。"),
        ("云涌", ("第二回 云涌",), "次日。"),
        ("雨落", ("第三回 雨落",), "又一日。"),
    ]


def test_chapters_stand_under_their_volumes() -> None:
    text = "第一卷 少年\n第一章 离家\n他走了。\n第二章 归来\n他回来了。\n第二卷 中年\n第一章 立业\n他成了。\n"
    assert [(title, path) for title, path, _ in _outline(text)] == [
        ("离家", ("第一卷 少年", "第一章 离家")),
        ("归来", ("第一卷 少年", "第二章 归来")),
        ("立业", ("第二卷 中年", "第一章 立业")),
    ]


def test_english_chapters() -> None:
    text = "CHAPTER I. The Field\nIt rained.\n\nChapter 2\nIt snowed.\n\nChapter 3: The Sea\nIt blew.\n"
    assert [title for title, _, _ in _outline(text)] == ["The Field", "Chapter 2", "The Sea"]


@pytest.mark.parametrize(
    "text",
    [
        "第一章讲述了起源。\n第二章讲述了发展。\n第三章讲述了结局。\n",  # sentences
        "第一章 起源\n正文。\n第二章 发展\n正文。\n",  # too few to be sure
        "Part of it is lost.\nBook me a table.\nAct now.\n" * 3,
    ],
)
def test_prose_that_mentions_chapters_stays_whole(text: str) -> None:
    assert len(parse_plain(text).sections) == 1


def test_a_table_of_contents_is_no_row_of_chapters() -> None:
    contents = "第一章 甲\n第二章 乙\n第三章 丙\n"
    sections = _outline(contents + "\n" + "".join(f"{line}\n文。\n" for line in contents.split("\n") if line))
    assert [title for title, _, _ in sections] == ["", "甲", "乙", "丙"]
    assert sections[0][2].split() == ["第一章", "甲", "第二章", "乙", "第三章", "丙"]
