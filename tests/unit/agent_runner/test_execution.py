"""What happens to a tool call that a crash left without a result, by the tool's effect."""

import asyncio

import pytest

from services.agent_runner.execution import Execution
from services.agent_runner.models.types import ToolCall
from services.agent_runner.steps import StoredMessage, ToolResult
from shared.conversation import outcome_unknown
from shared.ids import new_id
from tests.unit.agent_runner.fakes import RUN, FakeCommit, FakeTools, make_progress

TWO_CALLS = StoredMessage(
    RUN, "assistant", "", (ToolCall("a", "KnowledgeTool", "{}"), ToolCall("b", "KnowledgeTool", "{}"))
)
FIRST_RESULT = StoredMessage(RUN, "tool", "r", tool_call_id="a")


def journal_states(commit: FakeCommit) -> list[tuple[int, str]]:
    return [(a.journal["n"], a.journal["state"]) for a in commit.advances if a.journal]


@pytest.mark.parametrize(
    ("effect", "states"),
    [
        ("read", [(2, "done"), (3, "done")]),
        ("keyed", [(2, "done"), (3, "done")]),
        ("once", [(2, "started"), (3, "started"), (2, "done"), (3, "done")]),
    ],
)
async def test_only_once_calls_are_journalled_before_they_are_made(effect: str, states: list[tuple[int, str]]) -> None:
    commit, tools = FakeCommit(), FakeTools(effect=effect)  # type: ignore[arg-type]
    await Execution(tools, make_progress([TWO_CALLS]), commit).run()
    assert journal_states(commit) == states
    assert tools.called == ["a", "b"]


async def test_no_once_call_is_made_before_its_start_is_committed() -> None:
    commit, tools = FakeCommit(lose_at=1), FakeTools(effect="once")
    with pytest.raises(Exception, match="gone"):
        await Execution(tools, make_progress([TWO_CALLS]), commit).run()
    assert tools.called == []


async def test_the_result_has_the_message_id_that_its_start_announced() -> None:
    commit = FakeCommit()
    await Execution(FakeTools(effect="once"), make_progress([TWO_CALLS, FIRST_RESULT]), commit).run()
    started, done = commit.advances
    assert started.journal is not None
    assert done.journal is not None
    assert done.message is not None
    assert started.message is None
    assert started.journal["message_id"] == done.journal["message_id"] == done.message["id"]
    assert [event.type for event in started.events] == ["step.started"]


async def test_a_call_that_was_begun_before_is_not_made_and_its_outcome_is_unknown() -> None:
    commit, tools, message_id = FakeCommit(), FakeTools(effect="once"), new_id()
    progress = make_progress([TWO_CALLS], started={2: message_id})
    await Execution(tools, progress, commit).run()
    assert tools.called == ["b"]
    assert journal_states(commit) == [(3, "started"), (2, "unknown"), (3, "done")]
    unknown = commit.advances[1]
    assert unknown.message is not None
    assert unknown.message["id"] == message_id
    assert unknown.message["metadata"] == {"outcome": "unknown"}
    assert '"outcome_unknown"' in unknown.message["content"]
    assert [event.type for event in unknown.events] == ["step.unknown"]
    assert [message.content for message in progress.messages[-2:]] == [unknown.message["content"], "result of b"]


async def test_the_idempotency_key_is_the_calls_place_and_not_the_models_id() -> None:
    tools = FakeTools(effect="keyed")
    await Execution(tools, make_progress([TWO_CALLS]), FakeCommit()).run()
    again = FakeTools(effect="keyed")
    await Execution(again, make_progress([TWO_CALLS, FIRST_RESULT]), FakeCommit()).run()
    assert [context.idempotency_key for context in tools.contexts] == [f"{RUN}:1:1", f"{RUN}:1:2"]
    assert [context.idempotency_key for context in again.contexts] == [f"{RUN}:1:2"]
    assert {context.attempt for context in tools.contexts} == {3}


async def test_an_uncertain_result_is_an_unknown_step_and_the_run_goes_on() -> None:
    error = outcome_unknown("no result within 1 s")
    commit = FakeCommit()
    tools = FakeTools(lambda _: ToolResult("{}", error=error, uncertain=True), "once")
    await Execution(tools, make_progress([TWO_CALLS, FIRST_RESULT]), commit).run()
    assert journal_states(commit) == [(3, "started"), (3, "unknown")]
    assert commit.advances[-1].state == "THINKING"


async def test_calls_overlap() -> None:
    both = asyncio.Barrier(2)
    tools = FakeTools(effect="once")

    async def meet(*_: object) -> ToolResult:
        await both.wait()
        return ToolResult("met")

    tools.call = meet  # type: ignore[method-assign,assignment]
    commit = FakeCommit()
    await asyncio.wait_for(Execution(tools, make_progress([TWO_CALLS]), commit).run(), 5)
    assert journal_states(commit)[-2:] == [(2, "done"), (3, "done")]
