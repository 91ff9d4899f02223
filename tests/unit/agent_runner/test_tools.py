"""The toolbox: what the model gets back whatever it or a tool does wrong."""

import asyncio
from typing import Any, cast

import orjson
import pytest

from services.agent_runner.models.types import ToolCall, ToolSpec
from services.agent_runner.settings import ToolSettings
from services.agent_runner.steps import Agent, ToolContext, ToolResult
from services.agent_runner.tools.base import OutcomeLost, ToolFailed
from services.agent_runner.tools.clock import CurrentTimeTool
from services.agent_runner.tools.knowledge import KnowledgeTool
from services.agent_runner.tools.rewriting import Wordings
from services.agent_runner.tools.toolbox import Toolbox
from shared.contracts.questions import RunScope, SearchKnowledge, SearchResult
from shared.contracts.tools import ToolEffect
from shared.ids import new_id
from shared.rpc import QuestionFailed
from tests.support.retrieval_double import make_hit
from tests.unit.agent_runner.fakes import BASE, make_agent, make_context

CONTEXT = make_context(hits_before=3)
PROBED = ToolCall("1", "KnowledgeTool", "{}")


class AsItIs:
    """Rewrites nothing."""

    async def wordings(self, query: str, context: ToolContext) -> Wordings:
        return Wordings(query)


class Probe:
    """A tool under the name of the agent's only one."""

    name = "KnowledgeTool"
    timeout = None

    def __init__(self, outcome: str, effect: ToolEffect = "read") -> None:
        self._outcome = outcome
        self.effect = effect

    def spec(self, agent: Agent) -> ToolSpec | None:
        return ToolSpec(self.name, agent.name, {})

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        if self._outcome == "crash":
            raise RuntimeError("secret detail")
        if self._outcome == "hang":
            await asyncio.Event().wait()
        if self._outcome == "lost":
            raise OutcomeLost("the connection broke")
        if self._outcome == "refused":
            raise ToolFailed("no")
        return ToolResult("x" * 1000)


@pytest.mark.parametrize(
    ("outcome", "arguments", "code"),
    [
        ("fine", "{", "invalid_arguments"),
        ("fine", "[1]", "invalid_arguments"),
        ("crash", "{}", "tool_crashed"),
        ("hang", "{}", "tool_timeout"),
        ("fine", "{}", "result_too_large"),
    ],
)
async def test_failures_are_results_with_a_code(outcome: str, arguments: str, code: str) -> None:
    toolbox = Toolbox([Probe(outcome)], ToolSettings(timeout=0.05, max_result_chars=999))
    result = await toolbox.call(make_agent(), ToolCall("1", "KnowledgeTool", arguments), CONTEXT)
    assert result.error is not None
    assert result.error.code == code
    assert orjson.loads(result.content)["error"]["code"] == code
    assert "secret" not in result.content


@pytest.mark.parametrize("outcome", ["lost", "hang", "crash"])
async def test_only_a_call_that_must_not_be_made_twice_can_have_an_unknown_outcome(outcome: str) -> None:
    for effect, uncertain in (("read", False), ("keyed", False), ("once", True)):
        probe = Probe(outcome, cast(ToolEffect, effect))
        result = await Toolbox([probe], ToolSettings(timeout=0.05)).call(make_agent(), PROBED, CONTEXT)
        assert result.uncertain is uncertain
        assert result.error is not None
        assert (result.error.code == "outcome_unknown") is uncertain
        assert orjson.loads(result.content)["error"]["code"] == result.error.code


async def test_what_was_done_is_done_however_long_its_result_is() -> None:
    settings = ToolSettings(max_result_chars=999)
    result = await Toolbox([Probe("fine", "once")], settings).call(make_agent(), PROBED, CONTEXT)
    assert (result.error, result.uncertain, orjson.loads(result.content)["done"]) == (None, False, True)


async def test_a_refusal_is_certain() -> None:
    result = await Toolbox([Probe("refused", "once")], ToolSettings()).call(make_agent(), PROBED, CONTEXT)
    assert result.error is not None
    assert (result.error.code, result.uncertain) == ("tool_failed", False)


def test_a_call_that_is_refused_has_no_effect() -> None:
    toolbox = Toolbox([Probe("fine", "once"), CurrentTimeTool()], ToolSettings())
    assert toolbox.effect(make_agent(), PROBED) == "once"
    assert toolbox.effect(make_agent(), ToolCall("1", "NoSuchTool", "{}")) == "read"


async def test_a_tool_that_the_agent_may_not_use_is_refused() -> None:
    toolbox = Toolbox([CurrentTimeTool()], ToolSettings())
    result = await toolbox.call(make_agent(), ToolCall("1", "CurrentTimeTool", "{}"), CONTEXT)
    assert result.error is not None
    assert result.error.code == "unknown_tool"


async def test_the_scope_of_a_search_is_the_run_whatever_the_model_writes() -> None:
    asked: list[SearchKnowledge] = []

    async def ask(question: SearchKnowledge) -> SearchResult:
        asked.append(question)
        return SearchResult(hits=(make_hit("a"), make_hit("b")))

    foreign = new_id()
    arguments = {
        "query": "q",
        "knowledge_base_ids": [str(foreign)],
        "run_id": str(new_id()),
        "tenant_id": str(new_id()),
    }
    result = await KnowledgeTool(ask, AsItIs()).call(arguments, CONTEXT)
    assert asked[0].scope == RunScope(run_id=CONTEXT.run_id, knowledge_base_ids=(foreign,))
    assert [hit["n"] for hit in orjson.loads(result.content)["hits"]] == [4, 5]
    assert [hit["n"] for hit in result.metadata["hits"]] == [4, 5]


async def test_the_model_and_the_citation_know_the_pages_where_there_are_any() -> None:
    async def ask(question: SearchKnowledge) -> SearchResult:
        return SearchResult(hits=(make_hit("a").model_copy(update={"page_first": 3, "page_last": 4}), make_hit("b")))

    result = await KnowledgeTool(ask, AsItIs()).call({"query": "q"}, CONTEXT)
    on_page, on_none = orjson.loads(result.content)["hits"]
    assert on_page["pages"] == [3, 4]
    assert "pages" not in on_none
    assert [(hit["page_first"], hit["page_last"]) for hit in result.metadata["hits"]] == [(3, 4), (None, None)]


async def test_a_dead_retrieval_is_a_tool_error() -> None:
    async def ask(question: SearchKnowledge) -> SearchResult:
        raise QuestionFailed("no answer", code="question_timeout", retryable=True)

    toolbox = Toolbox([KnowledgeTool(ask, AsItIs())], ToolSettings())
    result = await toolbox.call(make_agent(), ToolCall("1", "KnowledgeTool", '{"query": "q"}'), CONTEXT)
    assert result.error is not None
    assert result.error.code == "question_timeout"


def test_the_model_is_told_only_of_granted_knowledge_bases() -> None:
    async def ask(question: SearchKnowledge) -> SearchResult:
        raise AssertionError("not asked")

    spec = KnowledgeTool(ask, AsItIs()).spec(make_agent())
    assert spec is not None
    assert spec.parameters["properties"]["knowledge_base_ids"]["items"]["enum"] == [str(BASE.id)]
    assert spec.parameters["required"] == ["query"]


async def test_the_clock_knows_time_zones() -> None:
    result = await CurrentTimeTool().call({"timezone": "Asia/Shanghai"}, CONTEXT)
    assert orjson.loads(result.content)["time"].endswith("+08:00")
    toolbox = Toolbox([CurrentTimeTool()], ToolSettings())
    agent = Agent("a", "", "m", ("CurrentTimeTool",), make_agent().options, 1, ())
    for zone in ("Mars/Base", "../../etc/passwd", ""):
        wrong = await toolbox.call(
            agent, ToolCall("1", "CurrentTimeTool", orjson.dumps({"timezone": zone}).decode()), CONTEXT
        )
        assert wrong.error is not None
        assert wrong.error.code == "invalid_arguments"
