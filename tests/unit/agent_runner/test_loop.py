"""The loop against scripted ports: what is committed in which order, and where it goes on after a crash."""

from dataclasses import replace

import pytest

from services.agent_runner.loop import Loop
from services.agent_runner.models.errors import ModelUnauthorizedError
from services.agent_runner.models.types import ModelReply, ToolCall, Usage
from services.agent_runner.ports import HandBack
from services.agent_runner.settings import MemorySettings
from services.agent_runner.steps import Agent, StoredMessage, ToolContext, ToolResult
from shared.errors import ErrorInfo, LeaseLost
from shared.ids import new_id
from tests.unit.agent_runner.fakes import (
    RUN,
    FakeCommit,
    FakeDeltas,
    FakeModel,
    FakeTools,
    calls,
    make_progress,
    says,
)

HIT = {"n": 1, "title": "Returns"}


def reply_of(*ids: str) -> StoredMessage:
    return StoredMessage(RUN, "assistant", "", tuple(ToolCall(call_id, "KnowledgeTool", "{}") for call_id in ids))


def result_of(call_id: str) -> StoredMessage:
    return StoredMessage(RUN, "tool", f"result of {call_id}", tool_call_id=call_id)


async def run_loop(
    model: FakeModel, tools: FakeTools, commit: FakeCommit, *own: StoredMessage, max_steps: int = 20
) -> None:
    await Loop(model, tools, MemorySettings()).run(make_progress(list(own), max_steps), commit, FakeDeltas())


@pytest.mark.parametrize(
    ("commits_before_the_end", "shape"),
    [
        (0, []),
        (2, [("THINKING", None, None), ("EXECUTING", "think", None)]),
        (3, [("THINKING", None, None), ("EXECUTING", "think", None), ("THINKING", "execute", None)]),
    ],
    ids=["before it begins", "before the tools", "before the next question to the model"],
)
async def test_a_process_that_stops_hands_the_run_back_where_a_step_is_done(
    commits_before_the_end: int, shape: list[tuple[str | None, str | None, str | None]]
) -> None:
    tools, commit = FakeTools(), FakeCommit()
    loop = Loop(
        FakeModel(calls("a"), says("Never asked.")),
        tools,
        MemorySettings(),
        stopping=lambda: len(commit.advances) >= commits_before_the_end,
    )
    with pytest.raises(HandBack):
        await loop.run(make_progress([], 20), commit, FakeDeltas())
    assert commit.shape == shape
    assert len(tools.called) == (commits_before_the_end == 3)


async def test_an_answer_is_one_commit_with_the_end() -> None:
    commit = FakeCommit()
    await run_loop(FakeModel(says("Hello.")), FakeTools(), commit)
    assert commit.shape == [("THINKING", None, None), (None, "think", "completed")]
    assert commit.advances[1].message is not None
    assert commit.advances[1].message["content"] == "Hello."


async def test_a_reply_is_committed_before_its_tools_run_and_each_result_is_a_step() -> None:
    tools, commit = FakeTools(), FakeCommit()
    await run_loop(FakeModel(calls("a", "b"), says("Done.")), tools, commit)
    assert commit.shape == [
        ("THINKING", None, None),
        ("EXECUTING", "think", None),
        ("EXECUTING", "execute", None),
        ("THINKING", "execute", None),
        (None, "think", "completed"),
    ]
    assert [a.journal["n"] for a in commit.advances if a.journal] == [1, 2, 3, 4]
    assert tools.called == ["a", "b"]
    assert [a.announce for a in commit.advances] == [True, True, False, True, True]


async def test_usage_adds_up_over_the_run() -> None:
    commit = FakeCommit()
    await run_loop(FakeModel(calls("a"), says("Done.")), FakeTools(), commit)
    ending = commit.advances[-1].ending
    assert ending is not None
    assert ending.usage == {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}


@pytest.mark.parametrize(
    ("own", "replies", "asked", "called", "first_n"),
    [
        ([reply_of("a", "b")], [says("x")], 1, ["a", "b"], 2),
        ([reply_of("a", "b"), result_of("a")], [says("x")], 1, ["b"], 3),
        ([reply_of("a"), result_of("a")], [says("x")], 1, [], 3),
        ([reply_of("a"), result_of("a"), reply_of("a")], [says("x")], 1, ["a"], 4),
    ],
)
async def test_a_run_goes_on_after_its_last_committed_step(
    own: list[StoredMessage], replies: list[ModelReply], asked: int, called: list[str], first_n: int
) -> None:
    model, tools, commit = FakeModel(*replies), FakeTools(), FakeCommit()
    await run_loop(model, tools, commit, *own)
    assert (len(model.requests), tools.called) == (asked, called)
    assert next(a.journal["n"] for a in commit.advances if a.journal) == first_n
    assert commit.shape[-1] == (None, "think", "completed")


async def test_the_step_limit_ends_the_run_after_the_last_results() -> None:
    model, commit = FakeModel(calls("a"), calls("b")), FakeCommit()
    await run_loop(model, FakeTools(), commit, max_steps=2)
    assert len(model.requests) == 2
    assert commit.shape[-2:] == [("EXECUTING", "execute", None), (None, None, "step_limit")]


async def test_a_model_error_ends_the_run_with_its_code() -> None:
    commit = FakeCommit()
    await run_loop(FakeModel(ModelUnauthorizedError("no")), FakeTools(), commit)
    ending = commit.advances[-1].ending
    assert ending is not None
    assert ending.state == "ERROR"
    assert ending.error is not None
    assert ending.error.code == "llm_unauthorized"


@pytest.mark.parametrize("lose_at", [0, 1, 2, 3])
async def test_a_lost_lease_stops_everything_at_the_next_commit(lose_at: int) -> None:
    commit = FakeCommit(lose_at)
    with pytest.raises(LeaseLost):
        await run_loop(FakeModel(calls("a"), says("Done.")), FakeTools(), commit)
    assert len(commit.advances) == lose_at


async def test_a_failed_tool_is_a_failed_step_and_the_model_sees_it() -> None:
    error = ErrorInfo(code="tool_timeout", message="too slow")
    model, commit = FakeModel(calls("a"), says("Sorry.")), FakeCommit()
    await run_loop(model, FakeTools(lambda _: ToolResult('{"error": {}}', error=error)), commit)
    journal = next(a.journal for a in commit.advances if a.journal and a.journal["kind"] == "execute")
    assert (journal["state"], journal["error"]["code"]) == ("failed", "tool_timeout")
    assert model.requests[1].messages[-1].content == '{"error": {}}'


async def test_citations_are_resolved_and_hits_are_numbered_on() -> None:
    tools = FakeTools(lambda _: ToolResult("{}", {"hits": [HIT]}))
    commit = FakeCommit()
    await run_loop(FakeModel(calls("a"), calls("b"), says("Thirty days [1], not [9].")), tools, commit)
    assert [context.hits_before for context in tools.contexts] == [0, 1]
    last = commit.advances[-1].message
    assert last is not None
    assert last["citations"] == [HIT]


async def test_what_points_to_nothing_is_neither_streamed_nor_stored() -> None:
    tools = FakeTools(lambda _: ToolResult("{}", {"hits": [HIT]}))
    commit, deltas = FakeCommit(), FakeDeltas()
    model = FakeModel(calls("a"), says("Thirty days [1], not sixty [9]. See a[9]."))
    await Loop(model, tools, MemorySettings()).run(make_progress(), commit, deltas)
    last = commit.advances[-1].message
    assert last is not None
    assert last["content"] == "".join(deltas.texts[last["id"]])
    assert last["metadata"]["dropped_citations"] == [9]
    assert last["citations"] == [HIT]


async def test_an_answer_may_cite_what_earlier_turns_found() -> None:
    earlier = new_id()
    progress = make_progress()
    progress.messages[:0] = [
        StoredMessage(earlier, "user", "before"),
        StoredMessage(earlier, "assistant", "", (ToolCall("z", "KnowledgeTool", "{}"),)),
        StoredMessage(earlier, "tool", "{}", tool_call_id="z", metadata={"hits": [HIT, {"n": 4, "title": "Costs"}]}),
    ]
    tools, commit = FakeTools(lambda _: ToolResult("{}", {"hits": [{"n": 5, "title": "New"}]})), FakeCommit()
    model = FakeModel(calls("a"), says("Old [4], new [5], none [6]."))
    await Loop(model, tools, MemorySettings()).run(progress, commit, FakeDeltas())
    assert [context.hits_before for context in tools.contexts] == [4]
    last = commit.advances[-1].message
    assert last is not None
    assert [c["title"] for c in last["citations"]] == ["Costs", "New"]
    assert last["metadata"]["dropped_citations"] == [6]


async def test_what_the_model_is_not_shown_any_more_can_not_be_cited() -> None:
    earlier = new_id()
    progress = make_progress()
    progress.messages[:0] = [
        StoredMessage(earlier, "user", "a long story " * 100),
        StoredMessage(earlier, "assistant", "", (ToolCall("z", "KnowledgeTool", "{}"),)),
        StoredMessage(earlier, "tool", "{}", tool_call_id="z", metadata={"hits": [HIT]}),
    ]
    tools, commit = FakeTools(lambda _: ToolResult("{}", {"hits": [{"n": 2, "title": "New"}]})), FakeCommit()
    memory = MemorySettings(history_tokens=50)
    await Loop(FakeModel(calls("a"), says("Old [1], new [2].")), tools, memory).run(progress, commit, FakeDeltas())
    last = commit.advances[-1].message
    assert last is not None
    assert (last["content"], [c["n"] for c in last["citations"]]) == ("Old, new [2].", [2])


async def test_an_agent_without_knowledge_says_what_it_says() -> None:
    commit = FakeCommit()
    progress = make_progress()
    progress.agent = replace(progress.agent, tools=())
    await Loop(FakeModel(says("Choose [1].")), FakeTools(), MemorySettings()).run(progress, commit, FakeDeltas())
    last = commit.advances[-1].message
    assert last is not None
    assert (last["content"], last["citations"], "dropped_citations" in last["metadata"]) == ("Choose [1].", [], False)


async def test_what_a_tool_spends_on_a_model_counts() -> None:
    tools, commit = FakeTools(), FakeCommit()

    async def search(agent: Agent, call: ToolCall, context: ToolContext) -> ToolResult:
        context.usages.append(Usage(3, 2, 5))
        return ToolResult("{}")

    tools.call = search  # type: ignore[method-assign]
    await run_loop(FakeModel(calls("a", "b"), says("Done.")), tools, commit)
    spent = [(a.usage or {}).get("total_tokens") for a in commit.advances]
    assert spent == [None, 15, 20, 25, None]
    ending = commit.advances[-1].ending
    assert ending is not None
    assert ending.usage == {"prompt_tokens": 26, "completion_tokens": 14, "total_tokens": 40}
    executed = [a.journal for a in commit.advances if a.journal and a.journal["kind"] == "execute"]
    assert [journal["usage"]["total_tokens"] for journal in executed] == [5, 5]


async def test_searches_side_by_side_never_share_a_number() -> None:
    numbered: list[int] = []
    starts = FakeTools()

    async def search(agent: Agent, call: ToolCall, context: ToolContext) -> ToolResult:
        starts.contexts.append(context)
        numbers = range(context.hits_before + 1, context.hits_before + 6)
        numbered.extend(numbers)
        hits = [{"n": n, "title": call.id} for n in numbers]
        return ToolResult("{}", {"hits": hits})

    starts.call = search  # type: ignore[method-assign]
    commit = FakeCommit()
    await run_loop(FakeModel(calls("a", "b"), calls("c"), says("See [11] and [16].")), starts, commit)
    assert len(set(numbered)) == len(numbered) == 15
    last = commit.advances[-1].message
    assert last is not None
    assert [c["title"] for c in last["citations"]] == ["b", "c"]
