"""The client against a server that behaves and misbehaves as real ones do (faults 43 to 52 of the reliability design)."""

import asyncio
import socket
import time
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from services.agent_runner.models.client import ModelClient
from services.agent_runner.models.errors import (
    ModelBadResponseError,
    ModelContextLengthError,
    ModelError,
    ModelNotConfiguredError,
    ModelRateLimitedError,
    ModelRefusedRequestError,
    ModelReplyTooLargeError,
    ModelTimeoutError,
    ModelTruncatedCallError,
    ModelUnauthorizedError,
    ModelUnavailableError,
)
from services.agent_runner.models.retry import RetryPolicy
from services.agent_runner.models.types import (
    Message,
    ModelOptions,
    ModelReply,
    ModelRequest,
    TextDelta,
    ToolCall,
    ToolSpec,
    Usage,
)
from tests.support.scripted_model import ScriptedModel
from tests.unit.models.conftest import ClientFor, question, replied

KNOWLEDGE_TOOL = ToolSpec("KnowledgeTool", "Search.", {"type": "object", "properties": {"query": {"type": "string"}}})


async def eventually(condition: Any, seconds: float = 3) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        await asyncio.sleep(0.005)


async def test_text_comes_in_pieces_and_then_whole(scripted: ScriptedModel, client_for: ClientFor) -> None:
    scripted.add(text="The table holds 十二 columns.", chunk_chars=5, reasoning="hm")
    deltas, reply = await replied(client_for())
    assert len(deltas) > 3
    assert "".join(deltas) == reply.text == "The table holds 十二 columns."
    assert (reply.finish_reason, reply.model, reply.reasoning, reply.tool_calls) == ("stop", "scripted", "hm", ())
    assert reply.usage == Usage(7, 7, 14)


async def test_the_request_says_what_was_asked(scripted: ScriptedModel, client_for: ClientFor) -> None:
    call = ToolCall("call_1", "KnowledgeTool", '{"query": "x"}')
    request = ModelRequest(
        messages=(
            Message("user", "x?"),
            Message("assistant", "", (call,)),
            Message("tool", "{}", tool_call_id="call_1"),
        ),
        tools=(KNOWLEDGE_TOOL,),
        options=ModelOptions(temperature=0.2, max_tokens=50, extra={"seed": 7, "stream": False}),
    )
    await replied(client_for(), request)
    body = scripted.requests[0]["body"]
    assert body["model"] == "scripted-1"
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    assert (body["temperature"], body["max_tokens"], body["seed"]) == (0.2, 50, 7)
    assert "top_p" not in body
    assert body["tools"][0]["function"]["name"] == "KnowledgeTool"
    assert body["messages"][1]["tool_calls"][0]["function"] == {"name": "KnowledgeTool", "arguments": '{"query": "x"}'}
    assert body["messages"][2] == {"role": "tool", "tool_call_id": "call_1", "content": "{}"}


async def test_the_key_goes_into_the_header_and_nowhere_else(scripted: ScriptedModel, client_for: ClientFor) -> None:
    key = "sk-" + "s3cret" * 40
    scripted.add(status=400, body=f'{{"error": {{"message": "{"x" * 280} bad key {key}"}}}}')
    client = client_for(api_key_env="KEY", api_key=key)
    with pytest.raises(ModelRefusedRequestError) as caught:
        await replied(client)
    assert scripted.requests[0]["headers"]["authorization"] == f"Bearer {key}"
    assert "s3cret" not in f"{caught.value} {caught.value!r} {caught.value.args}"


async def test_tool_calls_whose_bytes_are_split_anywhere(scripted: ScriptedModel, client_for: ClientFor) -> None:
    calls = [{"name": "KnowledgeTool", "arguments": {"query": "订单表😀"}}, {"name": "Other", "arguments": {"n": 1}}]
    scripted.add(text="好的,", tool_calls=calls, split_bytes=3, chunk_chars=4)
    deltas, reply = await replied(client_for())
    assert "".join(deltas) == reply.text == "好的,"
    assert [(c.id, c.name, c.arguments_json) for c in reply.tool_calls] == [
        ("call_0", "KnowledgeTool", '{"query":"订单表😀"}'),
        ("call_1", "Other", '{"n":1}'),
    ]
    assert reply.finish_reason == "tool_calls"


async def test_a_plain_json_answer_is_accepted(scripted: ScriptedModel, client_for: ClientFor) -> None:
    scripted.add(text="All at once.", tool_calls=[{"name": "T", "arguments": {"a": 1}}], plain_json=True)
    deltas, reply = await replied(client_for())
    assert deltas == ["All at once."]
    assert reply.tool_calls == (ToolCall("call_0", "T", '{"a":1}'),)


async def test_a_model_that_calls_tools_in_tags(scripted: ScriptedModel, client_for: ClientFor) -> None:
    scripted.add(
        text='I look.\n<tool_call>{"name": "KnowledgeTool", "arguments": {"query": "x"}}</tool_call>', chunk_chars=3
    )
    deltas, reply = await replied(client_for(tool_protocol="tags"), question(tools=(KNOWLEDGE_TOOL,)))
    assert "".join(deltas) == reply.text == "I look.\n"
    assert [(c.name, c.arguments_json) for c in reply.tool_calls] == [("KnowledgeTool", '{"query":"x"}')]
    body = scripted.requests[0]["body"]
    assert "tools" not in body
    assert "KnowledgeTool" in body["messages"][0]["content"]


# 43
async def test_nobody_listens(client_for: ClientFor) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = client_for(base_url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        with pytest.raises(ModelUnavailableError) as caught:
            await replied(client)
    assert (caught.value.code, caught.value.retryable) == ("llm_unavailable", True)
    assert "127.0.0.1" not in str(caught.value)


# 44
@pytest.mark.parametrize(
    ("retry_after", "at_least"),
    [("0", 0.0), ("1", 0.05), ("86400", 0.05), ("soon", 0.0), (None, 0.0)],
)
async def test_429_waits_as_told_but_not_for_ever(
    scripted: ScriptedModel, client_for: ClientFor, retry_after: str | None, at_least: float
) -> None:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    scripted.add(status=429, headers=headers, body='{"error": {"message": "slow down"}}')
    scripted.add(text="Now.")
    began = time.monotonic()
    assert (await replied(client_for()))[1].text == "Now."
    assert at_least <= time.monotonic() - began < 2


async def test_429_with_a_date(scripted: ScriptedModel, client_for: ClientFor) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    scripted.add(status=429, headers={"Retry-After": later}, times=3)
    with pytest.raises(ModelRateLimitedError) as caught:
        await replied(client_for())
    assert caught.value.retryable
    assert len(scripted.requests) == 3
    gaps = [b["received_at"] - a["received_at"] for a, b in zip(scripted.requests, scripted.requests[1:], strict=False)]
    assert min(gaps) >= 0.05


async def test_no_wait_beyond_the_total_time(scripted: ScriptedModel, client_for: ClientFor) -> None:
    scripted.add(status=429, headers={"Retry-After": "60"})
    began = time.monotonic()
    with pytest.raises(ModelRateLimitedError):
        await replied(client_for(timeouts={"total": 30}, retry=RetryPolicy()))
    assert len(scripted.requests) == 1
    assert time.monotonic() - began < 10


# 45
@pytest.mark.parametrize("status", [500, 502, 503, 529])
async def test_server_errors_are_tried_again(scripted: ScriptedModel, client_for: ClientFor, status: int) -> None:
    scripted.add(status=status, body="<h1>Bad gateway</h1>", times=2)
    scripted.add(text="Once.")
    deltas, reply = await replied(client_for())
    assert "".join(deltas) == reply.text == "Once."
    assert len(scripted.requests) == 3


# 46, 47, 49, 50, 52
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ({"body": "<html>login</html>", "headers": {"Content-Type": "text/html"}}, ModelBadResponseError),
        ({"body": "", "headers": {"Content-Type": "text/event-stream"}}, ModelBadResponseError),
        ({"body": "{not json"}, ModelBadResponseError),
        ({"body": "[" * 5000}, ModelBadResponseError),
        ({"body": "[1]"}, ModelBadResponseError),
        ({"text": "x" * 50, "fault": "garbage"}, ModelBadResponseError),
        ({"text": "x" * 50, "fault": "end"}, ModelBadResponseError),
        ({"text": "x" * 50, "fault": "cut"}, ModelUnavailableError),
        ({"text": "x" * 50, "fault": "error"}, ModelUnavailableError),
        ({"text": "x", "finish_reason": None}, ModelBadResponseError),
        ({"text": "x", "finish_reason": "insufficient_system_resource"}, ModelUnavailableError),
        ({"text": "x" * 1024, "repeat": 1025, "chunk_chars": 65536}, ModelReplyTooLargeError),
        ({"tool_calls": [{"name": "T", "arguments": "x" * 65_537}], "chunk_chars": 8192}, ModelReplyTooLargeError),
        ({"tool_calls": [{"name": "T"}] * 17}, ModelReplyTooLargeError),
        ({"tool_calls": [{"name": "T", "arguments": '{"a": "b'}], "finish_reason": "length"}, ModelTruncatedCallError),
        ({"status": 401, "body": '{"error": {"message": "no"}}'}, ModelUnauthorizedError),
        ({"status": 403}, ModelUnauthorizedError),
        ({"status": 404, "body": '{"error": "model not found"}'}, ModelRefusedRequestError),
        ({"status": 402, "body": '{"error": {"message": "Insufficient Balance"}}'}, ModelRefusedRequestError),
        ({"status": 429, "body": '{"error": {"code": "insufficient_quota"}}'}, ModelRefusedRequestError),
        ({"status": 400, "body": '{"error": {"code": "context_length_exceeded"}}'}, ModelContextLengthError),
        ({"status": 400, "body": '{"error": {"message": "maximum context is 8192"}}'}, ModelContextLengthError),
        ({"status": 413}, ModelContextLengthError),
        ({"status": 302, "headers": {"Location": "http://127.0.0.1:9/"}}, ModelBadResponseError),
    ],
)
async def test_answers_that_fail_at_once(
    scripted: ScriptedModel, client_for: ClientFor, reply: dict[str, Any], error: type[ModelError]
) -> None:
    scripted.add(**reply, match="hello")
    with pytest.raises(error) as caught:
        await replied(client_for())
    assert type(caught.value) is error
    assert len(scripted.requests) == 1, "tried again although text was shown or it can't help"
    assert len(str(caught.value)) < 330


async def test_a_connection_cut_before_any_text_is_tried_again(scripted: ScriptedModel, client_for: ClientFor) -> None:
    scripted.add(tool_calls=[{"name": "T", "arguments": {"a": "b"}}], fault="cut")
    scripted.add(text="Second.")
    assert (await replied(client_for()))[1].text == "Second."


async def test_text_that_ends_at_the_length_limit_is_a_reply(scripted: ScriptedModel, client_for: ClientFor) -> None:
    scripted.add(text="cut sho", finish_reason="length")
    assert (await replied(client_for()))[1].finish_reason == "length"


async def test_a_finished_reply_needs_no_proper_end(scripted: ScriptedModel, client_for: ClientFor) -> None:
    whole = 'data: {"choices": [{"delta": {"content": "Done."}, "finish_reason": "stop"}]}\n\n'
    scripted.add(body=whole, headers={"Content-Type": "text/event-stream", "Content-Length": "999"})
    client = client_for(timeouts={"idle": 0.05})
    assert (await replied(client))[1].text == "Done."


# 48, 49
@pytest.mark.parametrize(
    ("reply", "timeouts", "said"),
    [
        ({"fault": "hang"}, {"first_byte": 0.05}, "no first byte after 0.05 s"),
        ({"text": "x" * 50, "gate": "g", "after": 0}, {"first_byte": 0.05}, "no first byte"),
        ({"text": "x" * 50, "fault": "silent"}, {"idle": 0.05}, "silent for 0.05 s"),
        ({"text": "x" * 500, "chunk_chars": 1, "delay_ms": 5}, {"total": 0.1}, "not finished after 0.1 s"),
    ],
)
async def test_time_limits(
    scripted: ScriptedModel, client_for: ClientFor, reply: dict[str, Any], timeouts: dict[str, float], said: str
) -> None:
    scripted.add(**reply)
    with pytest.raises(ModelTimeoutError, match=said):
        await replied(client_for(timeouts=timeouts))
    assert len(scripted.requests) == 1
    await eventually(lambda: scripted.requests[0]["disconnected"])


async def test_cancelling_closes_the_connection(scripted: ScriptedModel, client_for: ClientFor) -> None:
    scripted.add(text="x" * 50, gate="open")
    asking = asyncio.create_task(replied(client_for()))
    await eventually(lambda: scripted.gate("open").waiting == 1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await eventually(lambda: scripted.requests[0]["disconnected"], seconds=1)


async def test_leaving_early_closes_the_connection_and_frees_the_slot(
    scripted: ScriptedModel, client_for: ClientFor
) -> None:
    scripted.add(text="x" * 50, fault="silent")
    client = client_for(concurrency=1)
    async with aclosing(client.stream(question())) as items:
        assert isinstance(await anext(items), TextDelta)
    await eventually(lambda: scripted.requests[0]["disconnected"], seconds=1)
    assert isinstance((await replied(client))[1], ModelReply)


async def test_concurrency_is_limited(scripted: ScriptedModel, client_for: ClientFor) -> None:
    scripted.add(text="x", gate="all", after=0, times=0)
    client = client_for(concurrency=2)
    asking = [asyncio.create_task(replied(client)) for _ in range(5)]
    await eventually(lambda: scripted.gate("all").waiting == 2)
    assert len(scripted.requests) == 2
    scripted.gate("all").opened.set()
    assert len(await asyncio.gather(*asking)) == 5


async def test_models_that_cannot_be_asked(client_for: ClientFor) -> None:
    client: ModelClient = client_for(api_key_env="SOME_KEY")
    with pytest.raises(ModelNotConfiguredError, match="SOME_KEY is not set"):
        await replied(client)
    with pytest.raises(ModelNotConfiguredError, match="unknown chat model 'gpt'"):
        await replied(client, question(model="gpt"))
