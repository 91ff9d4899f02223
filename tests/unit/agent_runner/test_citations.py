"""Citation marks: what is cited, what is dropped, what is left alone, and that the text doesn't depend on how it streams."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.agent_runner.citations import CitationReader

HITS = [{"n": n, "title": f"passage {n}"} for n in (1, 2, 3)]


def read(text: str, *numbers: int, judges: bool = True) -> tuple[str, list[int], list[int]]:
    """The text that comes out, and the numbers that are cited and dropped."""
    reader = CitationReader([{"n": n} for n in numbers], judges=judges)
    reader.feed(text)
    reader.finish()
    return reader.text, [hit["n"] for hit in reader.citations], reader.dropped


@pytest.mark.parametrize(
    ("text", "kept", "cited", "dropped"),
    [
        ("Within 30 days [1], not 60 [7].", "Within 30 days [1], not 60.", [1], [7]),
        ("30 天内可退货[1]，不是 60 天[7]。", "30 天内可退货[1]，不是 60 天。", [1], [7]),
        ("【1】和【9】，以及［2］、［８］。", "【1】和，以及［2］、。", [1, 2], [9, 8]),
        ("First [2], then [1], then [2].", "First [2], then [1], then [2].", [2, 1], []),
        ("Both [1][2], neither [8][9]!", "Both [1][2], neither!", [1, 2], [8, 9]),
        ("Both [8][2] and [2] [8] there.", "Both [2] and [2] there.", [2], [8]),
        ("Some [1, 7], [7，8], [１、２].", "Some [1],, [１、２].", [1, 2], [7, 8]),
        ("A range [1-3] and [2–5] and [8-9].", "A range [1-3] and [2, 3] and.", [1, 2, 3], [4, 5, 8, 9]),
        ("In ASCII[1] words.", "In ASCII[1] words.", [1], []),
        ("[7] At the start.", "At the start.", [], [7]),
        ("One line [7]\n[8] another  \nlast [9]", "One line\nanother  \nlast", [], [7, 8, 9]),
        ("**Bold**[7] and (see [7]) and [7]x", "**Bold** and (see) and x", [], [7]),
        ("[7]", "", [], [7]),
        ("Two  blanks [7]  here", "Two  blanks  here", [], [7]),
        ("| cell [7] | [1] |\n", "| cell | [1] |\n", [1], [7]),
    ],
)
def test_marks_that_point_to_nothing_are_dropped(text: str, kept: str, cited: list[int], dropped: list[int]) -> None:
    assert read(text, 1, 2, 3) == (kept, cited, dropped)


@pytest.mark.parametrize(
    "text",
    [
        "array[0], array[7], m[7][8] and x_[9]",
        "[2024] was [404] and [0] or [100]; [], [ ], [a], [^7], [-1, 9], [9-7], [1.5]",
        "A link [7](https://example.com/7) and [text][7] and ![7](a.png)",
        "[7]: https://example.com\n> [8]: note",
        r"escaped \[7] bracket",
        "inline `x = [7]` and ``a ` [8]`` code",
        "```python\nx = [7]\ny = a [8]\n```\n",
        "~~~\n[7]\n```\n[8]\n~~~~\n",
        "> ```\n> [7]\n> ```\n",
        "```one line [7]``` of code",
        "an unclosed fence\n````\n[7]\n```\n[8]",
        "[1234567] [" + "7, " * 30 + "7] [7 [7",
        "trailing blanks   ",
    ],
)
def test_what_is_no_citation_stays(text: str) -> None:
    assert read(text, 50) == (text, [], [])


def test_code_ends_where_it_ends() -> None:
    assert read("`a` [7]", 1) == ("`a`", [], [7])
    assert read("a lone ` backtick\nthen [7].", 1) == ("a lone ` backtick\nthen.", [], [7])
    assert read("```\n[7]\n```\nthen [7] and [1].", 1) == ("```\n[7]\n```\nthen and [1].", [1], [7])
    assert read("~~struck~~ [7] ~ [8].", 1) == ("~~struck~~ ~.", [], [7, 8])


def test_a_mark_in_code_is_no_citation() -> None:
    assert read("`[1]` and [2](url)", 1, 2) == ("`[1]` and [2](url)", [], [])


@pytest.mark.parametrize(
    "text",
    [
        "数组[1] 与 a[1]。",
        "数组[1]。",
        "选项 [1] 和选项",
        "the list [1, 2, 3].",
        "[1] Refund\n[2] Exchange",
        "f(x)[1].",
    ],
)
def test_without_hits_only_what_stands_like_a_citation_is_dropped(text: str) -> None:
    assert read(text) == (text, [], [])


def test_without_hits_an_invented_citation_is_dropped() -> None:
    assert read("Within 30 days [1]. 共 30 天 [2]；好。[3]\nEnd [4][5]") == (
        "Within 30 days. 共 30 天；好。\nEnd",
        [],
        [1, 2, 3, 4, 5],
    )


def test_without_anything_to_search_all_stays() -> None:
    assert read("Within 30 days [1].", judges=False) == ("Within 30 days [1].", [], [])


def test_high_numbers_are_judged_near_those_that_passages_have() -> None:
    assert read("See [120] and [119] and [404].", 120) == ("See [120] and and [404].", [120], [119])


PIECES = st.sampled_from(
    [
        *"[]【】［］`~ \n\t(),:，。、-–>123789０１a天.!",
        "[1]", "[7]", "[1, 7]", "【8】", "［2］", " [9]", "```", "\n```\n", "`x[7]`", "~~~", "word", "天", "(url)", "[2024]", "          ",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=40).map("".join)


@given(text=TEXTS, data=st.data(), numbers=st.sampled_from([(), (1, 2, 3), (120,)]))
@settings(max_examples=150, deadline=None)
def test_the_text_and_its_citations_do_not_depend_on_the_pieces(
    text: str, data: st.DataObject, numbers: tuple[int, ...]
) -> None:
    whole = read(text, *numbers)
    reader = CitationReader([{"n": n} for n in numbers])
    streamed = ""
    rest = text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        streamed += reader.feed(rest[:size])
        assert reader.text == streamed
        rest = rest[size:]
    streamed += reader.finish()
    assert (streamed, [hit["n"] for hit in reader.citations], reader.dropped) == whole
    assert reader.text == streamed


@given(text=TEXTS)
@settings(max_examples=80, deadline=None)
def test_what_can_be_cited_is_never_dropped(text: str) -> None:
    kept, cited, dropped = read(text, 1, 2, 3)
    assert set(cited) <= {1, 2, 3}
    assert not {1, 2, 3} & set(dropped)
    if not dropped:
        assert kept == text


@given(text=TEXTS)
@settings(max_examples=50, deadline=None)
def test_little_is_held_back(text: str) -> None:
    reader = CitationReader(HITS)
    passed = reader.feed(text.replace("`", "").replace("~", ""))
    assert len(reader.finish()) <= 64
    assert passed == reader.text[: len(passed)]
