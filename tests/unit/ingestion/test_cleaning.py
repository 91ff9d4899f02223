from time import process_time

import pytest

from services.ingestion.cleaning import clean


@pytest.mark.parametrize(
    ("noisy", "clean_text"),
    [
        ("[[订单|订单表]]与[[支付]]", "订单表与支付"),
        ("[[File:a.png|thumb|图]]正文", "正文"),
        ("货币(wiki/%E9%80%9A%E8%B4%A7)编号", "货币编号"),
        ("(wiki/%E6%96%87%E4%BB%B6.webp)\n正文", "正文"),
        ("[上海](wiki/%E4%B8%8A)的楼", "上海的楼"),
        ("![架构图](https://example.com/a.png) 说明", "架构图 说明"),
        ('<table class="x"><tr><td>二</td></tr></table>', "二"),
        ("第一行<br/>第二行<!-- 备注\n跨行 -->", "第一行第二行"),
        ("甲\n\n===== Page 2 =====\n\n乙", "甲\n\n乙"),
        ("甲\n第 3 页 共 9 页\n乙", "甲\n\n乙"),
        ("https://wiki.example.org/p/%E5%88%9A?veaction=edit&section=3", ""),
        ("见 https://example.org/wiki/%E5%88%9A%E6%9E%9C", "见 https://example.org/wiki/刚果"),
        ("甲   \n\n\n\n\n乙", "甲\n\n乙"),
    ],
)
def test_noise_is_taken_out(noisy: str, clean_text: str) -> None:
    assert clean(noisy, "wiki").strip() == clean_text


@pytest.mark.parametrize(
    "text",
    [
        "若 x < y 且 y > z，则相等",
        "返回 Map<String, List<Integer>> 或 Set<T>",
        "if (a < 3 && b > 4) return;",
        "(wiki 是一种网站) (wifi 密码)",
        "增长 35%，其中 12%CD 类",
        "https://example.com/a?b=1&c=%2F#d",
        "[文档](https://example.com/wiki/page)",
        "<https://example.com>",
        "行内 `<b>[[a|b]]</b>` 代码",
        "```html\n<table>\n\n\n\n[[a|b]] (wiki/x) <!-- c -->\n```",
        "~~~\n===== Page 2 =====\n~~~\n",
        "未闭合 <!-- 注释",
        "箭头 --> 与 -> 与 <-",
    ],
)
def test_what_only_resembles_noise_stays(text: str) -> None:
    assert clean(text, "wiki") == text


def test_off_changes_nothing() -> None:
    text = "[[a|b]] <table>   \n\n\n\n(wiki/x)"
    assert clean(text, "off") == text


@pytest.mark.parametrize("hostile", ["<!--", "[[", "<td ", "%E5", "`", "![", "(wiki/", "\n", " ", "== Page 1 "])
def test_the_time_is_linear(hostile: str) -> None:
    began = process_time()
    clean(hostile * (200_000 // len(hostile)), "wiki")
    assert process_time() - began < 1.5
