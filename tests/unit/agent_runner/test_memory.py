"""What the model sees: provider rules hold for every history, and the budget is kept."""

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent_runner.memory import assemble, estimate_tokens
from services.agent_runner.models.types import Message, ToolCall
from services.agent_runner.steps import StoredMessage
from shared.ids import new_id

RUN = new_id()


def user(text: str, run: UUID) -> StoredMessage:
    return StoredMessage(run, "user", text)


def answer(text: str, run: UUID) -> StoredMessage:
    return StoredMessage(run, "assistant", text)


def call(run: UUID, *ids: str) -> StoredMessage:
    return StoredMessage(run, "assistant", "", tuple(ToolCall(i, "KnowledgeTool", "{}") for i in ids))


def result(run: UUID, call_id: str, text: str = "r") -> StoredMessage:
    return StoredMessage(run, "tool", text, tool_call_id=call_id)


def assert_valid(messages: Sequence[Message]) -> None:
    """What strict providers ask for: every call has exactly one result right behind it, no result without its call."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id in waiting
            waiting.remove(message.tool_call_id)
            continue
        assert not waiting, f"calls without results: {waiting}"
        waiting = [c.id for c in message.tool_calls]
    assert not waiting


@st.composite
def histories(draw: st.DrawFn) -> list[StoredMessage]:
    """Sessions of runs that ended anywhere: answered, cancelled before or between tool results, or without any reply."""
    messages: list[StoredMessage] = []
    for number in range(draw(st.integers(0, 6))):
        run = new_id()
        messages.append(user(draw(st.text(max_size=200)), run))
        for step in range(draw(st.integers(0, 3))):
            ids = [f"call_{step}_{n}" if draw(st.booleans()) else f"same_{n}" for n in range(draw(st.integers(1, 3)))]
            messages.append(call(run, *ids))
            answered = draw(st.integers(0, len(ids)))
            messages += [result(run, i, draw(st.text(max_size=300))) for i in ids[:answered]]
            if answered < len(ids):
                break
        else:
            if draw(st.booleans()):
                messages.append(answer(f"answer {number}", run))
    return messages


@given(histories(), st.integers(0, 500))
def test_every_history_gives_a_valid_request_within_the_budget(history: list[StoredMessage], budget: int) -> None:
    own = [user("the newest question", RUN), call(RUN, "a", "b"), result(RUN, "a"), result(RUN, "b")]
    messages = assemble("system", [*history, *own], RUN, budget)
    assert_valid(messages)
    assert messages[0].role == "system"
    assert [m.content for m in messages[-4:]] == ["the newest question", "", "r", "r"]
    kept = messages[1:-4]
    assert sum(estimate_tokens(m.content) for m in kept) <= budget
    assert not kept or kept[0].role == "user"


@given(histories())
def test_a_large_budget_keeps_every_user_message(history: list[StoredMessage]) -> None:
    messages = assemble("", [*history, user("now", RUN)], RUN, 1_000_000)
    assert [m.content for m in messages if m.role == "user"] == [
        m.content for m in [*history, user("now", RUN)] if m.role == "user"
    ]


def test_the_newest_exchanges_are_kept_whole() -> None:
    old, new = new_id(), new_id()
    history = [
        user("old question", old), answer("old answer " * 100, old),
        user("new question", new), call(new, "x"), result(new, "x", "found"), answer("new answer", new),
    ]  # fmt: skip
    messages = assemble("", [*history, user("now", RUN)], RUN, 60)
    assert [m.content for m in messages] == ["new question", "", "found", "new answer", "now"]


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("订单状态", 4), ("order status", 3), ("订单 order", 4), ("한국어", 3), ("𠀀", 1)]
)
def test_chinese_counts_by_the_character(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens
