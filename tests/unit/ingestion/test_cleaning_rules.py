"""Every rule by itself: what it takes out, what it leaves, and that no text makes it slow."""

from collections.abc import Callable
from time import process_time
from typing import get_args

import pytest
from pydantic import ValidationError

from services.ingestion.cleaning import RULES, WIKI, clean
from shared.contracts.knowledge_settings import CleaningRule, CustomCleaning, KnowledgeBaseSettings

EXAMPLES: dict[str, list[tuple[str, str]]] = {
    "comments": [("甲<!-- 备注\n跨行 -->乙", "甲乙"), ("a --> b <!-- c", "a --> b <!-- c")],
    "tags": [('<td class="x">二</td>', "二"), ("List<String> a < b", "List<String> a < b")],
    "page_marks": [("甲\n第 3 页 共 9 页\n乙", "甲\n\n乙"), ("见第 3 页的图", "见第 3 页的图")],
    "wiki_links": [("[[订单|订单表]](wiki/x)", "订单表"), ("(wiki 是网站)", "(wiki 是网站)")],
    "images": [("![图](a.png)说明", "图说明"), ("[图](a.png)", "[图](a.png)")],
    "percent_encoding": [("a/%E5%88%9A", "a/刚"), ("100%AB, %E5%", "100%AB, %E5%")],
    "blank_runs": [("甲  \n\n\n\n乙", "甲\n\n乙"), ("甲\n\n乙", "甲\n\n乙")],
    "links": [('见[文档](/docs/a "标题")。', "见文档。"), ("![图](a.png) f[0](x y)", "![图](a.png) f[0](x y)")],
    "urls": [
        ("见 https://example.org/a?b=1#c。", "见 。"),
        ("<http://example.org>, (www.example.org/x).", ", ()."),
        ("[文档](https://example.org/%E5)", "文档"),
        ("http:// 与 a.b/c 与 [相对](/x)", "http:// 与 a.b/c 与 [相对](/x)"),
    ],
    "emails": [("问 li.lei+x@mail.example.org。", "问 。"), ("<a@b.cn>", ""), ("@app.get user@host a @ b.c", "@app.get user@host a @ b.c")],
    "running_page_numbers": [
        ("甲\n- 1 -\n乙\n- 2 -\n丙\n- 3 -\n", "甲\n乙\n丙\n"),
        ("甲\n7 / 90\n2019\n乙\n8 / 90\n丙\nPage 9 of 90", "甲\n2019\n乙\n丙\n"),
        ("共计\n1\n2\n个", "共计\n1\n2\n个"),
        ("2019\n2021\n2023\n", "2019\n2021\n2023\n"),
    ],
    "hyphenation": [("the ware-\n  house", "the warehouse"), ("A-\nB, 2020-\n2021, x -\ny", "A-\nB, 2020-\n2021, x -\ny")],
    "invisible_characters": [("订\u200b单 soft\u00adware\u00a0x", "订单 software x"), ("👩\u200d👧\u200c", "👩\u200d👧\u200c")],
}  # fmt: skip
HOSTILE = [
    "<!--", "-->", "[[", "[", "<td ", "<", "%E5", "`", "![", "(wiki/", "\n", " ", "\n ", "== Page 1 ", "=", "http://", "www.", "a@", "a",
    "a.", "1\n", "1 \n\n", "7", "-\n", "a-\n", "[a](http://", "第", "\u200b", "a-",
]  # fmt: skip


def only(*rules: CleaningRule) -> CustomCleaning:
    return CustomCleaning(rules=rules)


@pytest.mark.parametrize(
    ("rule", "noisy", "expected"), [(rule, *example) for rule, examples in EXAMPLES.items() for example in examples]
)
def test_a_rule_takes_out_what_it_is_named_after_and_nothing_else(
    rule: CleaningRule, noisy: str, expected: str
) -> None:
    assert clean(noisy, only(rule)) == expected


def test_every_rule_is_described_and_shown() -> None:
    assert list(RULES) == list(get_args(CleaningRule)) == list(EXAMPLES)
    assert all(rule.apply.__doc__ for rule in RULES.values())
    assert set(WIKI) < set(RULES)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "blank_runs"])
def test_no_rule_touches_code(rule: CleaningRule) -> None:
    noise = "".join(noisy for noisy, _ in EXAMPLES[rule])
    fenced = f"```\n{noise}\n```\n"
    assert clean(fenced, only(rule)) == fenced


def test_rules_are_applied_in_their_order() -> None:
    noisy = "<b>[文档](/docs/a)</b>  \n\n\n\nli@example.org"
    assert clean(noisy, only("tags", "links", "emails", "blank_runs")) == "文档\n\n"
    # A name in a link's address: gone with the link, or before it.
    assert clean("[写信](mailto:li@example.org)", only("links", "emails")) == "写信"
    assert clean("[写信](mailto:li@example.org)", only("emails", "links")) == "[写信]()"


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ("wikis", "cleaning"),
        ({"rules": ["tags", "nonsense"]}, "cleaning.rules.1"),
        ({"rules": []}, "cleaning.rules"),
        ({"rules": ["tags"], "more": 1}, "cleaning.more"),
        (None, "cleaning"),
    ],
)
def test_wrong_rules_are_refused_by_name(wrong: object, place: str) -> None:
    with pytest.raises(ValidationError) as error:
        KnowledgeBaseSettings.model_validate({"cleaning": wrong})
    (problem,) = error.value.errors()
    assert ".".join(map(str, problem["loc"])) == place


@pytest.mark.parametrize("rule", RULES)
def test_no_text_makes_a_rule_slow(rule: CleaningRule) -> None:
    apply = RULES[rule].apply
    for hostile in HOSTILE:
        text = hostile * (20_000 // len(hostile)) + "x"
        # Where the time is quadratic, this takes seconds, and four times the text takes 16 times as long.
        assert seconds(apply, text) < 0.03 or fastest(apply, text) < 8 * fastest(apply, text[:5_000]), hostile


def seconds(apply: Callable[[str], str], text: str) -> float:
    """Of the processor."""
    began = process_time()
    apply(text)
    return process_time() - began


def fastest(apply: Callable[[str], str], text: str) -> float:
    return min(seconds(apply, text) for _ in range(5))
