import orjson
import pytest

from services.agent_runner.models.assembly import ReplyLimits
from services.agent_runner.models.errors import ModelReplyTooLargeError, ModelTruncatedCallError
from services.agent_runner.models.tags import UNREADABLE, TaggedReplyAssembly, with_tools_told
from services.agent_runner.models.types import Message, ModelReply, ToolCall, ToolSpec

TOOL = ToolSpec("KnowledgeTool", "Search the documents.", {"type": "object", "properties": {"query": {}}})


def assembled(text: str, size: int, finish_reason: str = "stop") -> tuple[str, ModelReply]:
    assembly = TaggedReplyAssembly(ReplyLimits())
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    shown = "".join([assembly.add({"choices": [{"delta": {"content": piece}}]}) for piece in pieces])
    assembly.add({"choices": [{"delta": {}, "finish_reason": finish_reason}]})
    rest, reply = assembly.finish()
    assert reply.text == shown + rest
    return shown + rest, reply


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize(
    ("said", "shown", "calls"),
    [
        ("a < b <tool", "a < b <tool", []),
        ('Go <tool_call>{"name":"A","arguments":{"q":"表<x>"}}</tool_call> on', "Go  on", [("A", '{"q":"表<x>"}')]),
        (
            '<tool_call>\n{"name":"A"}\n</tool_call><tool_call>{"name":"B","arguments":"{}"}</tool_call>',
            "",
            [("A", "{}"), ("B", "{}")],
        ),
        ('<tool_call>{"name":"A","arguments":{}}', "", [("A", "{}")]),
        ("<tool_call>search x</tool_call>", "", [(UNREADABLE, "search x")]),
        ("<tool_call>[1]</tool_call>", "", [(UNREADABLE, "[1]")]),
        ('<tool_call>{"name":"A","arguments":[1]}</tool_call>', "", [("A", "[1]")]),
    ],
)
def test_tags_become_calls_and_are_never_shown(said: str, shown: str, calls: list[tuple[str, str]], size: int) -> None:
    text, reply = assembled(said, size)
    assert text == shown
    assert [(c.name, c.arguments_json) for c in reply.tool_calls] == calls
    assert len({c.id for c in reply.tool_calls}) == len(calls)


def test_a_call_cut_by_the_length_limit() -> None:
    with pytest.raises(ModelTruncatedCallError):
        assembled('<tool_call>{"name":"A","argu', 4, "length")


@pytest.mark.parametrize("said", ['<tool_call>{"name":"A"}</tool_call>' * 17, "<tool_call>" + "x" * 65_537])
def test_limits(said: str) -> None:
    with pytest.raises(ModelReplyTooLargeError):
        assembled(said, 4096)


def test_the_conversation_in_tags() -> None:
    call = ToolCall("c1", "KnowledgeTool", '{"query":"x"}')
    messages = (Message("system", "Be brief."), Message("user", "x?"), Message("assistant", "Hm.", (call,)))
    told = with_tools_told((*messages, Message("tool", '{"hits":[]}', tool_call_id="c1")), (TOOL,))
    assert [message.role for message in told] == ["system", "user", "assistant", "user"]
    assert told[0].content.startswith("Be brief.\n\n")
    assert orjson.dumps(dict(TOOL.parameters)).decode() in told[0].content
    assert told[2].content == 'Hm.\n<tool_call>{"name":"KnowledgeTool","arguments":{"query":"x"}}</tool_call>'
    assert '{"hits":[]}' in told[3].content
    assert not any(message.tool_calls or message.tool_call_id for message in told)


def test_tools_are_told_without_a_system_prompt_too() -> None:
    told = with_tools_told((Message("user", "x?"),), (TOOL,))
    assert [message.role for message in told] == ["system", "user"]
    assert with_tools_told((Message("user", "x?"),), ()) == (Message("user", "x?"),)
