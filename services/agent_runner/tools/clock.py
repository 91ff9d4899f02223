"""CurrentTimeTool: models don't know what day it is."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import orjson
from pydantic import BaseModel, Field

from services.agent_runner.models.types import ToolSpec
from services.agent_runner.steps import Agent, ToolContext, ToolResult
from services.agent_runner.tools.base import ToolFailed
from shared.contracts.tools import CURRENT_TIME_TOOL, ToolEffect


class Arguments(BaseModel):
    """What the model may ask for."""

    timezone: str = Field(default="UTC", max_length=64)


class CurrentTimeTool:
    """The current date and time in a time zone."""

    name = CURRENT_TIME_TOOL
    effect: ToolEffect = "read"
    timeout = None

    def spec(self, agent: Agent) -> ToolSpec | None:
        """The same for every agent."""
        return ToolSpec(
            name=self.name,
            description="The current date, time and weekday.",
            parameters={
                "type": "object",
                "properties": {
                    "timezone": {"type": "string", "description": "IANA name such as Asia/Shanghai; UTC when left out."}
                },
            },
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """JSON text with time (RFC 3339), weekday and timezone. Raises ToolFailed for an unknown time zone."""
        asked = Arguments.model_validate(arguments)
        try:
            zone = ZoneInfo(asked.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ToolFailed(f"unknown time zone {asked.timezone!r}", code="invalid_arguments") from error
        now = datetime.now(UTC).astimezone(zone).replace(microsecond=0)
        facts = {"time": now.isoformat(), "weekday": now.strftime("%A"), "timezone": asked.timezone}
        return ToolResult(content=orjson.dumps(facts).decode())
