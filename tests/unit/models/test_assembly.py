from typing import Any

import orjson
import pytest

from services.agent_runner.models.assembly import ReplyAssembly, ReplyLimits
from services.agent_runner.models.errors import ModelBadResponseError
from services.agent_runner.models.types import ModelReply, Usage


def call(index: int | None, call_id: str | None, name: str | None, arguments: str | None = None) -> dict[str, Any]:
    fields = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in fields.items() if value is not None}


def assembled(*deltas: dict[str, Any]) -> ModelReply:
    assembly = ReplyAssembly(ReplyLimits())
    for delta in deltas:
        assembly.add({"choices": [{"delta": delta}]})
    assembly.add({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    return assembly.finish()[1]


@pytest.mark.parametrize(
    "pieces",
    [
        # As OpenAI sends them: id and name first, then pieces by index.
        [call(0, "x", "A", ""), call(0, None, None, '{"a":'), call(0, None, None, "1}"), call(1, "y", "B", "{}")],
        # Every piece repeats id and name.
        [call(0, "x", "A", '{"a":'), call(0, "x", "A", "1}"), call(1, "y", "B", "{}")],
        # Always index 0; only the id tells.
        [call(0, "x", "A", '{"a":'), call(0, "", "", "1}"), call(0, "y", "B", "{}")],
        # Always the same id; only the index tells.
        [call(0, "x", "A", '{"a":1}'), call(1, "x", "B", "{}")],
        # Neither index nor id.
        [call(None, None, "A", '{"a":1}'), call(None, None, "B", "{}")],
        # Two calls interleaved by index.
        [call(0, "x", "A", '{"a":'), call(1, "y", "B", "{"), call(0, None, None, "1}"), call(1, None, None, "}")],
        # An id that comes late.
        [call(0, None, "A", '{"a":'), call(0, "x", None, "1}"), call(1, "y", "B", "{}")],
    ],
)
def test_calls_are_told_apart_by_index_or_id(pieces: list[dict[str, Any]]) -> None:
    reply = assembled(*({"tool_calls": [piece]} for piece in pieces))
    assert [(c.name, c.arguments_json) for c in reply.tool_calls] == [("A", '{"a":1}'), ("B", "{}")]
    assert len({c.id for c in reply.tool_calls}) == 2
    assert all(c.id for c in reply.tool_calls)


def test_arguments_that_are_no_json_stay_as_they_are() -> None:
    reply = assembled({"tool_calls": [call(0, "x", "A", "{oops")]}, {"tool_calls": [call(1, "y", "B", "[1]")]})
    assert [c.arguments_json for c in reply.tool_calls] == ["{oops", "[1]"]


def test_arguments_sent_as_an_object() -> None:
    delta = {"tool_calls": [{"id": "x", "function": {"name": "A", "arguments": {"a": 1}}}]}
    assert orjson.loads(assembled(delta).tool_calls[0].arguments_json) == {"a": 1}


def test_reasoning_is_kept_apart() -> None:
    reply = assembled({"reasoning_content": "let me "}, {"reasoning": "see"}, {"content": "Yes."})
    assert (reply.reasoning, reply.text) == ("let me see", "Yes.")


def test_text_is_fit_for_storage() -> None:
    assembly = ReplyAssembly(ReplyLimits())
    shown = [
        assembly.add({"choices": [{"delta": {"content": piece}}]})
        for piece in ["a\0", "\ud83d", "\ude00\udc00", "\ud83d"]
    ]
    assembly.add({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    rest, reply = assembly.finish()
    assert reply.text == "".join(shown) + rest == "a😀\ufffd\ufffd"


def test_usage_comes_with_or_after_the_end() -> None:
    assembly = ReplyAssembly(ReplyLimits())
    assembly.add({"model": "m-1", "choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": None})
    assembly.add({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})
    reply = assembly.finish()[1]
    assert (reply.usage, reply.model) == (Usage(3, 4, 7), "m-1")


@pytest.mark.parametrize("delta", [{"content": ["x"]}, {"tool_calls": ["x"]}, {"tool_calls": [{"function": "x"}]}])
def test_fields_of_the_wrong_type(delta: dict[str, Any]) -> None:
    with pytest.raises(ModelBadResponseError):
        assembled(delta)


@pytest.mark.parametrize("tool_calls", [5, "x", {"index": 0}, [5], [[]]])
def test_tool_calls_that_are_no_list_of_objects_are_a_bad_response(tool_calls: Any) -> None:
    with pytest.raises(ModelBadResponseError):
        assembled({"tool_calls": tool_calls})


@pytest.mark.parametrize("tokens", [-1, 2**65, 1.5, True, "7"])
def test_usage_that_is_no_count_is_left_out(tokens: Any) -> None:
    assembly = ReplyAssembly(ReplyLimits())
    assembly.add({"usage": {"prompt_tokens": tokens, "completion_tokens": 1}})
    assembly.add({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]})
    assert assembly.finish()[1].usage is None


def test_names_hold_nothing_that_cannot_be_stored() -> None:
    assembly = ReplyAssembly(ReplyLimits())
    assembly.add({"model": "m\0\ud800", "choices": [{"delta": {}, "finish_reason": "st\0op" + "p" * 999}]})
    reply = assembly.finish()[1]
    assert "\0" not in reply.model + reply.finish_reason
    assert reply.model.encode()
    assert len(reply.finish_reason) == 200
