"""What is embedded and indexed of a piece."""

import pytest

from services.ingestion.chunks import make_chunk
from shared.contracts.knowledge_settings import Embed, KnowledgeBaseSettings
from tests.unit.ingestion_pipeline.doubles import piece

ORDERS = piece(0, "订单表", "t_order 保存订单。", ("电商数据库设计", "3 订单", "3.1 订单表"))
TITLE = "电商数据库设计 > 3 订单 > 订单表"
UNTITLED = piece(0, "", "只有正文。")


@pytest.mark.parametrize(
    ("embed", "texts"),
    [
        ("title", {"title": TITLE}),
        ("body", {"body": "t_order 保存订单。"}),
        ("both", {"title": TITLE, "body": "t_order 保存订单。"}),
    ],
)
def test_what_is_embedded_follows_the_knowledge_base(embed: Embed, texts: dict[str, str]) -> None:
    assert make_chunk(ORDERS, KnowledgeBaseSettings(embed=embed)).texts == texts


@pytest.mark.parametrize("embed", ["title", "body", "both"])
def test_a_chunk_without_a_title_is_found_by_its_body(embed: Embed) -> None:
    assert make_chunk(UNTITLED, KnowledgeBaseSettings(embed=embed)).texts == {"body": "只有正文。"}


def test_terms_come_from_all_headings_above_and_from_the_content() -> None:
    terms = make_chunk(ORDERS, KnowledgeBaseSettings(embed="title")).terms
    assert {"电商", "数据库", "t_order", "保存"} <= terms.keys()
    assert terms["订单"] == 3


def test_a_title_outside_the_path_is_indexed_too() -> None:
    assert "handbook" in make_chunk(piece(0, "Handbook", "text", ()), KnowledgeBaseSettings(embed="body")).terms


@pytest.mark.parametrize(("fold", "terms"), [(True, {"订单", "数据"}), (False, {"訂單", "數據"})])
def test_traditional_characters_are_folded_as_the_knowledge_base_wants_it(fold: bool, terms: set[str]) -> None:
    chunk = make_chunk(piece(0, "", "訂單 數據"), KnowledgeBaseSettings(fold_traditional=fold))
    assert terms <= chunk.terms.keys()
