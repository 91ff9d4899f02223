"""HttpTool against a real server: what it sends, and which failures are certain."""

from collections.abc import AsyncIterator

import orjson
import pytest

from services.agent_runner.models.types import ToolCall
from services.agent_runner.settings import ToolSettings
from services.agent_runner.steps import Agent, ToolContext, ToolResult
from services.agent_runner.tools.http import HttpTool, new_http_client
from services.agent_runner.tools.toolbox import Toolbox
from shared.contracts.tools import ToolEffect
from shared.ids import new_id
from shared.tool_registry import HttpToolEntry
from tests.support.stack import free_port
from tests.support.tool_server import ToolServer
from tests.unit.agent_runner.fakes import make_agent

PARAMETERS = '{"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}'
AGENT = Agent("a", "", "m", ("ledger",), make_agent().options, 1, ())


@pytest.fixture
async def server() -> AsyncIterator[ToolServer]:
    async with ToolServer() as server:
        yield server


async def call(
    url: str,
    effect: ToolEffect = "read",
    arguments: str = '{"amount": 5}',
    *,
    key: str | None = None,
    timeout: float = 5,
) -> ToolResult:
    entry = HttpToolEntry.model_validate(
        {
            "name": "ledger",
            "description": "Books.",
            "url": url,
            "effect": effect,
            "timeout": timeout,
            "parameters": PARAMETERS,
            "api_key_env": "KEY" if key else None,
            "api_key": key,
        }
    )
    context = ToolContext(new_id(), new_id(), new_id(), 0, idempotency_key="run:2:1", attempt=7, agent=AGENT)
    async with new_http_client() as http:
        toolbox = Toolbox([HttpTool(entry, http, max_bytes=1000)], ToolSettings())
        return await toolbox.call(AGENT, ToolCall("1", "ledger", arguments), context)


def code_of(result: ToolResult) -> str | None:
    return result.error.code if result.error else None


@pytest.mark.parametrize(("effect", "key"), [("read", None), ("keyed", "run:2:1"), ("once", "run:2:1")])
async def test_arguments_are_posted_with_the_calls_place(
    server: ToolServer, effect: ToolEffect, key: str | None
) -> None:
    result = await call(f"{server.url}/ok", effect, key="secret-key")
    [received] = server.calls
    assert (result.content, result.error, received.arguments) == ("done 1", None, {"amount": 5})
    assert received.headers.get("idempotency-key") == key
    assert received.headers["chatmind-attempt"] == "7"
    assert received.headers["authorization"] == "Bearer secret-key"


@pytest.mark.parametrize("arguments", ["{}", '{"amount": "5"}', '{"amount": 5', "[]"])
async def test_arguments_against_the_schema_are_never_sent(server: ToolServer, arguments: str) -> None:
    assert code_of(await call(f"{server.url}/ok", "once", arguments)) == "invalid_arguments"
    assert server.calls == []


@pytest.mark.parametrize(
    ("path", "code", "code_once"),
    [
        ("status/400", "tool_failed", "tool_failed"),
        ("status/404", "tool_failed", "tool_failed"),
        ("status/408", "tool_failed", "outcome_unknown"),
        ("status/500", "tool_failed", "outcome_unknown"),
        ("status/503", "tool_failed", "tool_failed"),
        ("status/502", "tool_failed", "outcome_unknown"),
        ("status/504", "tool_failed", "outcome_unknown"),
        ("redirect", "tool_failed", "outcome_unknown"),
        ("cut", "tool_failed", "outcome_unknown"),
        ("gate", "tool_timeout", "outcome_unknown"),
        ("large", "result_too_large", None),
        ("compressed/200", "result_unreadable", None),
        ("compressed/404", "tool_failed", "tool_failed"),
        ("compressed/500", "tool_failed", "outcome_unknown"),
    ],
)
async def test_every_failure_has_its_code(server: ToolServer, path: str, code: str, code_once: str | None) -> None:
    assert code_of(await call(f"{server.url}/{path}", timeout=0.3)) == code
    once = await call(f"{server.url}/{path}", "once", timeout=0.3)
    assert (code_of(once), once.uncertain) == (code_once, code_once == "outcome_unknown")
    assert [received.path for received in server.calls] == [path, path]


async def test_a_tool_that_is_not_there_is_a_certain_failure() -> None:
    result = await call(f"http://127.0.0.1:{free_port()}/ok", "once")
    assert (code_of(result), result.uncertain) == ("tool_unreachable", False)


async def test_the_tools_words_reach_the_model_and_can_be_stored(server: ToolServer) -> None:
    result = await call(f"{server.url}/status/422")
    assert "the tool's own words" in orjson.loads(result.content)["error"]["message"]
    assert (await call(f"{server.url}/nul")).content == "ab\ufffd"


async def test_a_tool_without_its_key_is_not_offered() -> None:
    entry = HttpToolEntry.model_validate(
        {"name": "ledger", "description": "B", "url": "http://127.0.0.1:9/", "effect": "read", "parameters": PARAMETERS,
         "api_key_env": "KEY"}
    )  # fmt: skip
    async with new_http_client() as http:
        assert Toolbox([HttpTool(entry, http, 1000)], ToolSettings()).specs(AGENT) == ()
