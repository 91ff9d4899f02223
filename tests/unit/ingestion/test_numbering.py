import pytest

from services.ingestion.numbering import strip_numbering


@pytest.mark.parametrize(
    ("heading", "title"),
    [
        ("3.1 订单表", "订单表"),
        ("3.1订单表", "订单表"),
        ("3.1.2) Order header", "Order header"),
        ("1. Introduction", "Introduction"),
        ("2、支付", "支付"),
        ("(4) 退款", "退款"),
        ("（一）总则", "总则"),
        ("一、背景", "背景"),
        ("十二、附录", "附录"),
        ("第三章 订单", "订单"),
        ("第三章订单", "订单"),
        ("第 12 节：索引", "索引"),
        ("第一回 宴桃园", "宴桃园"),
        ("Chapter 7: Returns", "Returns"),
        ("IV. Results", "Results"),
        ("A.1 Glossary", "Glossary"),
        ("§ 2.3 Scope", "Scope"),
        ("① 安装", "安装"),
    ],
)
def test_a_number_before_words_is_stripped(heading: str, title: str) -> None:
    assert strip_numbering(heading) == title


@pytest.mark.parametrize(
    "heading",
    [
        "5 分钟上手",
        "2024 年度报告",
        "1.0.0 (2024-05-01)",
        "第三章",
        "3.1",
        "第三方服务",
        "一个例子",
        "3D printing",
        "v1.2 release",
        ".NET",
        "Chapter and verse",
        "3:00 会议",
        "",
    ],
)
def test_what_is_no_numbering_stays(heading: str) -> None:
    assert strip_numbering(heading) == heading
