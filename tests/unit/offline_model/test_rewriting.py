"""The offline model rewrites a query when the runner asks it to, by the same rule as it makes its own."""

import json
from typing import Literal

import pytest

from deploy.offline_model.answering import Say, decide
from deploy.offline_model.conversation import read_conversation
from services.agent_runner.prompts import Language, render_rewriting
from shared.contracts.agent_knowledge import QueryRewriting

Turns = list[tuple[Literal["user", "assistant"], str]]
ENGLISH: Turns = [("user", "How long may goods be returned?"), ("assistant", "30 days. Query: none")]
CHINESE: Turns = [("user", "多久内可以退货？"), ("assistant", "30 天内。")]


def rewritten(kind: QueryRewriting, query: str, turns: Turns, language: Language) -> str:
    messages = render_rewriting(kind, query, [*turns, ("user", query)], language)
    body = {"messages": [{"role": message.role, "content": message.content} for message in messages]}
    decision = decide(read_conversation(body))
    assert isinstance(decision, Say)
    return decision.text


@pytest.mark.parametrize(
    ("query", "turns", "language", "expected"),
    [
        ("And what about theirs?", ENGLISH, "en", "How long may goods be returned? And what about theirs?"),
        ("那它呢？", CHINESE, "zh", "多久内可以退货？ 那它呢？"),
        ("How much is the warranty extension?", ENGLISH, "en", "How much is the warranty extension?"),
        ("And what about theirs?", [], "en", "And what about theirs?"),
    ],
)
def test_a_query_that_refers_back_gets_the_question_before_it(
    query: str, turns: Turns, language: Language, expected: str
) -> None:
    assert rewritten("rewrite", query, turns, language) == expected
    assert json.loads(rewritten("multi", query, turns, language)) == [expected]
