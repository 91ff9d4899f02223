"""What the model sees: provider rules hold for every history, and the budget is kept."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent_runner.memory import assemble, remembered
from services.agent_runner.models.types import Message, ModelRequest, ToolCall
from services.agent_runner.models.wire import request_body
from services.agent_runner.steps import StoredMessage
from shared.ids import new_id
from shared.model_registry import ChatModel
from shared.tokens import count_tokens
from tests.support.chat_history import history_problems

RUN = new_id()
MODEL = ChatModel(name="m", base_url="http://127.0.0.1:9/v1", model="m")


def user(text: str, run: UUID) -> StoredMessage:
    return StoredMessage(run, "user", text)


def answer(text: str, run: UUID) -> StoredMessage:
    return StoredMessage(run, "assistant", text)


def call(run: UUID, *ids: str) -> StoredMessage:
    return StoredMessage(run, "assistant", "", tuple(ToolCall(i, "KnowledgeTool", "{}") for i in ids))


def result(run: UUID, call_id: str, text: str = "r") -> StoredMessage:
    return StoredMessage(run, "tool", text, tool_call_id=call_id)


def unknown(run: UUID, call_id: str, resolution: dict[str, str | None] | None = None) -> StoredMessage:
    metadata = {"outcome": "unknown"} | ({"resolution": resolution} if resolution else {})
    return StoredMessage(run, "tool", '{"error": {}}', tool_call_id=call_id, metadata=metadata)


def problems(messages: Sequence[Message]) -> list[str]:
    """What strict endpoints would refuse the request for, as it is sent."""
    body = request_body(MODEL, ModelRequest(tuple(messages)))
    return history_problems(orjson.loads(body)["messages"])


@st.composite
def steps(draw: st.DrawFn, run: UUID, *, whole: bool) -> list[StoredMessage]:
    """Replies with calls and their results; the last reply may lack any of its results, or have some that are unknown, resolved or not."""
    messages: list[StoredMessage] = []
    for step in range(draw(st.integers(0, 3))):
        ids = [f"call_{step}_{n}" if draw(st.booleans()) else f"same_{n}" for n in range(draw(st.integers(1, 3)))]
        messages.append(call(run, *ids))
        kinds = [draw(st.sampled_from(["result", "unknown", "resolved"] + ["missing"] * (not whole))) for _ in ids]
        for call_id, kind in zip(ids, kinds, strict=True):
            if kind == "result":
                messages.append(result(run, call_id, draw(st.text(max_size=300))))
            elif kind != "missing":
                resolution: dict[str, str | None] = {"outcome": "done", "result": draw(st.none() | st.text(max_size=9))}
                messages.append(unknown(run, call_id, resolution if kind == "resolved" else None))
        if "missing" in kinds:
            break
    return messages


@st.composite
def histories(draw: st.DrawFn) -> list[StoredMessage]:
    """Sessions of runs that ended anywhere: answered, cut off in mid-reply, cancelled while queued, before or between tool results, out of
    steps, with an answer that says nothing; read from some point on."""
    messages: list[StoredMessage] = []
    for _ in range(draw(st.integers(0, 6))):
        run = new_id()
        messages += [user(draw(st.text(max_size=200)), run), *draw(steps(run, whole=False))]
        if draw(st.booleans()):
            messages.append(answer(draw(st.sampled_from(["the answer", "the ans", " ", ""])), run))
    return messages[draw(st.integers(0, len(messages))) :]


@st.composite
def runs_so_far(draw: st.DrawFn) -> list[StoredMessage]:
    """A run wherever its model may be asked: at its start, or after results."""
    return [user("the newest question", RUN), *draw(steps(RUN, whole=True))]


@given(histories(), runs_so_far(), st.integers(0, 500), st.sampled_from(["", "system"]))
def test_a_strict_endpoint_takes_every_request(
    history: list[StoredMessage], own: list[StoredMessage], budget: int, system: str
) -> None:
    assert problems(assemble(system, remembered([*history, *own], RUN, budget))) == []


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": " "}, {"role": "user", "content": "b"}],
        [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "1", "content": "r"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"id": "1"}, {"id": "2"}]},
         {"role": "tool", "tool_call_id": "2", "content": "r"}, {"role": "tool", "tool_call_id": "1", "content": "r"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"id": "1"}, {"id": "2"}]},
         {"role": "tool", "tool_call_id": "1", "content": "r"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"id": "1"}]},
         {"role": "tool", "tool_call_id": "1", "content": "r"}, {"role": "assistant", "tool_calls": [{"id": "1"}]},
         {"role": "tool", "tool_call_id": "1", "content": "r"}],
        [{"role": "user", "content": "a"}, {"role": "system", "content": "late"}, {"role": "user", "content": "b"}],
    ],
)  # fmt: skip
def test_the_strict_endpoint_refuses(messages: list[dict[str, Any]]) -> None:
    assert history_problems(messages)


def test_a_turn_that_was_cancelled_in_a_tool_is_told_as_it_was() -> None:
    run = new_id()
    history = [user("book it", run), call(run, "a", "b"), unknown(run, "b")]
    messages = assemble("", remembered([*history, user("now", RUN)], RUN, 1000))
    assert [(m.role, m.tool_call_id) for m in messages] == [
        ("user", None), ("assistant", None), ("tool", "a"), ("tool", "b"), ("assistant", None), ("user", None),
    ]  # fmt: skip
    assert "no_result" in messages[2].content
    assert messages[3].content == '{"error": {}}'


def test_what_the_user_said_of_an_unknown_outcome_is_what_the_model_sees() -> None:
    run = new_id()
    history = [user("book it", run), call(run, "a"), unknown(run, "a", {"outcome": "done", "result": "No. 17"})]
    seen = assemble("", remembered([*history, user("now", RUN)], RUN, 1000))[2]
    assert orjson.loads(seen.content) == {"outcome": "done", "result": "No. 17", "said_by": "user"}


@given(histories(), st.integers(0, 500))
def test_every_history_is_kept_within_the_budget(history: list[StoredMessage], budget: int) -> None:
    own = [user("the newest question", RUN), call(RUN, "a", "b"), result(RUN, "a"), result(RUN, "b")]
    messages = assemble("system", remembered([*history, *own], RUN, budget))
    assert messages[0].role == "system"
    assert [m.content for m in messages[-4:]] == ["the newest question", "", "r", "r"]
    kept = messages[1:-4]
    assert sum(count_tokens(m.content) for m in kept) <= budget
    assert not kept or kept[0].role == "user"


@given(histories())
def test_a_large_budget_keeps_every_user_message(history: list[StoredMessage]) -> None:
    messages = assemble("", remembered([*history, user("now", RUN)], RUN, 1_000_000))
    assert [m.content for m in messages if m.role == "user"] == [
        m.content for m in [*history, user("now", RUN)] if m.role == "user"
    ]


def test_the_newest_exchanges_are_kept_whole() -> None:
    old, new = new_id(), new_id()
    history = [
        user("old question", old), answer("old answer " * 100, old),
        user("new question", new), call(new, "x"), result(new, "x", "found"), answer("new answer", new),
    ]  # fmt: skip
    messages = assemble("", remembered([*history, user("now", RUN)], RUN, 60))
    assert [m.content for m in messages] == ["new question", "", "found", "new answer", "now"]
