"""Calls tools for the loop: the agent's allow-list, arguments, time limit and size limit are enforced here, for every tool alike."""

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
import structlog
from pydantic import ValidationError

from services.agent_runner.models.types import ToolCall, ToolSpec
from services.agent_runner.settings import ToolSettings
from services.agent_runner.steps import Agent, ToolContext, ToolResult
from services.agent_runner.tools.base import OutcomeLost, Tool, ToolFailed
from shared.contracts.tools import ToolEffect
from shared.conversation import outcome_unknown
from shared.errors import ErrorInfo, storable

log = structlog.get_logger()


class Toolbox:
    """All tools of this installation."""

    def __init__(self, tools: Sequence[Tool], settings: ToolSettings) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._settings = settings

    def specs(self, agent: Agent) -> tuple[ToolSpec, ...]:
        """The tools that this agent may use, in the order of its list."""
        tools = (self._tools[name] for name in agent.tools if name in self._tools)
        return tuple(spec for tool in tools if (spec := tool.spec(agent)) is not None)

    def effect(self, agent: Agent, call: ToolCall) -> ToolEffect:
        """What making the call does; `read` where it is refused."""
        tool = self._find(agent, call.name)
        return tool.effect if tool else "read"

    async def call(self, agent: Agent, call: ToolCall, context: ToolContext) -> ToolResult:
        """Runs one call. Never raises for what the model or the tool got wrong: the error is the result, and the model sees it."""
        tool = self._find(agent, call.name)
        if tool is None:
            log.warning("tool.refused", tool=call.name)
            return _failure(ErrorInfo(code="unknown_tool", message=f"there is no tool {call.name!r} here"))
        try:
            arguments = _arguments(call)
        except ToolFailed as error:
            return _failure(error.info)
        return self._within_size(tool, await self._make(tool, arguments, context))

    async def _make(self, tool: Tool, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        limit = tool.timeout or self._settings.timeout
        try:
            async with asyncio.timeout(limit):
                return await tool.call(arguments, context)
        except ToolFailed as error:
            return _failure(error.info)
        except ValidationError as error:
            return _failure(ErrorInfo(code="invalid_arguments", message=_explain(error)))
        except OutcomeLost as error:
            return _lost(tool, ErrorInfo(code="tool_failed", message=error.message))
        except TimeoutError:
            return _lost(tool, ErrorInfo(code="tool_timeout", message=f"no result within {limit:g} s"))
        except Exception:
            log.exception("tool.crashed", tool=tool.name)
            return _lost(tool, ErrorInfo(code="tool_crashed", message="the tool failed unexpectedly"))

    def _within_size(self, tool: Tool, result: ToolResult) -> ToolResult:
        limit = self._settings.max_result_chars
        content = storable(result.content)
        if len(content) <= limit:
            return ToolResult(content, result.metadata, result.error, result.uncertain)
        message = f"the result has {len(content)} characters, {limit} are allowed"
        if tool.effect == "read":
            return _failure(ErrorInfo(code="result_too_large", message=message))
        # What was done is done: to call that a failure would invite the model to do it again.
        log.warning("tool.result_dropped", tool=tool.name, characters=len(content))
        return ToolResult(orjson.dumps({"done": True, "result": None, "note": message}).decode(), result.metadata)

    def _find(self, agent: Agent, name: str) -> Tool | None:
        """The tool that this agent may use under that name."""
        tool = self._tools.get(name)
        return tool if tool and name in agent.tools and tool.spec(agent) is not None else None


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = orjson.loads(call.arguments_json or "{}")
    except orjson.JSONDecodeError as error:
        raise ToolFailed(f"the arguments are not JSON: {error}", code="invalid_arguments") from error
    if not isinstance(arguments, dict):
        raise ToolFailed("the arguments are not a JSON object", code="invalid_arguments")
    return arguments


def _explain(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors(include_url=False)
    )


def _failure(error: ErrorInfo) -> ToolResult:
    log.warning("tool.failed", code=error.code)
    return ToolResult(_told(error), error=error)


def _lost(tool: Tool, error: ErrorInfo) -> ToolResult:
    """A call that may have been made: a failure, unless it must not be made again."""
    if tool.effect != "once":
        return _failure(error)
    log.warning("tool.outcome_lost", tool=tool.name, code=error.code)
    unknown = outcome_unknown(error.message)
    return ToolResult(_told(unknown), error=unknown, uncertain=True)


def _told(error: ErrorInfo) -> str:
    return orjson.dumps({"error": error.model_dump()}).decode()
