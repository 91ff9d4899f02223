"""What each method of splitting is for."""

from itertools import groupby, pairwise

import pytest

from services.ingestion.parsing.limits import ParseLimits
from services.ingestion.parsing.markdown import parse_markdown
from services.ingestion.sections import Piece
from services.ingestion.splitting import split
from shared.contracts.knowledge_settings import SplitMethod, SplitSettings

CHINESE = "订单创建后进入待支付状态。支付超时的订单会自动关闭！用户能否恢复它？不能，只能重新下单。"
ENGLISH = (
    "Dr. Li wrote version 3.5 of the manual, e.g. the part about orders. It costs 2.50 a copy! "
    'Who needs it? "Everybody does." J. Smith et al. agree, i.e. they bought it. '
)


def pieces_of(text: str, method: SplitMethod, **sizes: int) -> list[Piece]:
    settings = SplitSettings.model_validate({"method": method, **sizes})
    return list(split(parse_markdown(text, limits=ParseLimits()), settings))


def test_sentences_are_kept_whole() -> None:
    contents = [piece.content for piece in pieces_of(CHINESE, "sentence", chunk_size=50, overlap=0)]
    assert contents == ["订单创建后进入待支付状态。支付超时的订单会自动关闭！用户能否恢复它？不能，只能重新下单。"]
    contents = [piece.content for piece in pieces_of(CHINESE * 2, "sentence", chunk_size=50, overlap=0)]
    assert "".join(contents) == CHINESE * 2
    assert {content[-1] for content in contents} <= set("。！？")


def test_abbreviations_decimals_and_initials_end_no_sentence() -> None:
    contents = [piece.content for piece in pieces_of(ENGLISH, "sentence", chunk_size=70, overlap=0)]
    assert contents == [
        "Dr. Li wrote version 3.5 of the manual, e.g. the part about orders.",
        "It costs 2.50 a copy! Who needs it? \"Everybody does.\"",
        "J. Smith et al. agree, i.e. they bought it.",
    ]  # fmt: skip


def test_neighbours_share_whole_sentences() -> None:
    sentences = [f"第{number}句话说的是第{number}件事。" for number in range(100, 160)]
    pieces = pieces_of("".join(sentences), "sentence", chunk_size=100, overlap=40)
    assert len(pieces) > 10
    for first, second in pairwise(pieces):
        shared = first.content[second.start - first.start :]
        assert 0 < len(shared) <= 40
        assert shared.startswith("第")
        assert shared.endswith("。")
        assert second.content.startswith(shared)


def test_a_sentence_longer_than_a_piece_is_cut_and_loses_nothing() -> None:
    text = "短句。" + "没有标点的长句" * 40 + "。短句。"
    pieces = pieces_of(text, "sentence", chunk_size=100, overlap=0)
    assert "".join(piece.content for piece in pieces) == text
    assert (pieces[0].content, pieces[-1].content) == ("短句。", "短句。")
    assert max(len(piece.content) for piece in pieces) <= 100


def test_sentences_of_two_sections_are_never_in_one_piece() -> None:
    pieces = pieces_of("# A\n\nOne. Two.\n\n## B\n\nThree. Four.\n", "sentence")
    assert [(piece.title, piece.content) for piece in pieces] == [("A", "One. Two."), ("B", "Three. Four.")]


def test_items_of_a_list_are_units() -> None:
    items = [f"- item {number} of the list without a full stop" for number in range(20)]
    pieces = pieces_of("\n".join(items), "sentence", chunk_size=100, overlap=0)
    assert [line for piece in pieces for line in piece.content.split("\n")] == items


def test_a_table_stays_whole_with_the_sentence_before_it() -> None:
    table = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 8
    pieces = pieces_of(f"{CHINESE}字段如下：\n\n{table}\n{CHINESE}", "sentence", chunk_size=60, overlap=20)
    (holder,) = [piece for piece in pieces if "|" in piece.content]
    assert table.strip() in holder.content


@pytest.mark.parametrize("word", ["word", "字"])
def test_children_are_parts_of_one_parent_each(word: str) -> None:
    sections = [f"# {number}\n\n" + f"{word}{number}。" * 30 * number for number in range(1, 12)]
    pieces = pieces_of("\n\n".join(sections), "parent_child", chunk_size=100, overlap=20, parent_size=600)
    parents = [parent for parent, _ in groupby(piece.parent for piece in pieces)]
    assert [parent.ordinal for parent in parents if parent] == list(range(len(parents))) != [0]
    for piece in pieces:
        assert piece.parent is not None
        assert len(piece.content) <= 100
        assert len(piece.parent.content) <= 600
        assert piece.content in piece.parent.content
        assert (piece.title, piece.heading_path) == (piece.parent.title, piece.parent.heading_path)
    for first, second in pairwise(parents):
        assert first
        assert second
        assert first.end <= second.start  # the large pieces share nothing


def test_a_section_within_its_size_is_one_parent() -> None:
    body = CHINESE * 25
    (parent,) = {piece.parent for piece in pieces_of(f"# A\n\n{body}\n", "parent_child")}
    assert parent
    assert parent.content == body


@pytest.mark.parametrize("method", ["heading", "recursive", "sentence"])
def test_other_methods_have_no_parents(method: SplitMethod) -> None:
    assert {piece.parent for piece in pieces_of(f"# A\n\n{CHINESE * 50}\n", method)} == {None}
