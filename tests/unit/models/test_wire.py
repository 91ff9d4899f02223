import orjson

from services.agent_runner.models.types import Message, ModelOptions, ModelRequest, ToolCall
from services.agent_runner.models.wire import error_in_stream, request_body
from shared.model_registry import ChatModel

MODEL = ChatModel(name="m", base_url="http://h/v1", model="m-1", max_tokens_field="max_completion_tokens")


def test_arguments_the_model_got_wrong_are_sent_back_as_an_object() -> None:
    calls = (ToolCall("a", "T", "{oops"), ToolCall("b", "T", "[1]"), ToolCall("c", "T", '{"x":1}'))
    body = orjson.loads(request_body(MODEL, ModelRequest(messages=(Message("assistant", "", calls),))))
    sent = [orjson.loads(call["function"]["arguments"]) for call in body["messages"][0]["tool_calls"]]
    assert sent == [{"unreadable_arguments": "{oops"}, {"unreadable_arguments": "[1]"}, {"x": 1}]
    assert body["messages"][0]["content"] is None


def test_options_cannot_replace_what_is_decided_here() -> None:
    options = ModelOptions(max_tokens=9, extra={"model": "other", "messages": [], "stream": False, "seed": 1})
    body = orjson.loads(request_body(MODEL, ModelRequest(messages=(Message("user", "x"),), options=options)))
    assert (body["model"], body["stream"], len(body["messages"])) == ("m-1", True, 1)
    assert (body["max_completion_tokens"], body["seed"]) == (9, 1)
    assert "max_tokens" not in body


def test_an_error_object_that_no_json_can_hold_is_still_an_error() -> None:
    nested: list[object] = []
    for _ in range(600):
        nested = [nested]
    for error in (nested, {"code": 2**70}):
        assert error_in_stream(error).code == "llm_bad_response"
