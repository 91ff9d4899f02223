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
from services.agent_runner.tools.base import Tool, ToolFailed
from shared.errors import ErrorInfo

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

    async def call(self, agent: Agent, call: ToolCall, context: ToolContext) -> ToolResult:
        """Runs one call. Never raises for what the model or the tool got wrong: the error is the result, and the model sees it."""
        try:
            tool = self._allowed(agent, call.name)
            async with asyncio.timeout(self._settings.timeout):
                result = await tool.call(_arguments(call), context)
        except ToolFailed as error:
            return _failure(error.info)
        except ValidationError as error:
            return _failure(ErrorInfo(code="invalid_arguments", message=_explain(error)))
        except TimeoutError:
            return _failure(ErrorInfo(code="tool_timeout", message=f"no result within {self._settings.timeout:g} s"))
        except Exception:
            log.exception("tool.crashed", tool=call.name)
            return _failure(ErrorInfo(code="tool_crashed", message="the tool failed unexpectedly"))
        if len(result.content) > self._settings.max_result_chars:
            message = f"the result has {len(result.content)} characters, {self._settings.max_result_chars} are allowed"
            return _failure(ErrorInfo(code="result_too_large", message=message))
        return result

    def _allowed(self, agent: Agent, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None or name not in agent.tools or tool.spec(agent) is None:
            log.warning("tool.refused", tool=name)
            raise ToolFailed(f"there is no tool {name!r} here", code="unknown_tool")
        return tool


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
    return ToolResult(content=orjson.dumps({"error": error.model_dump()}).decode(), error=error)
