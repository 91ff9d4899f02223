"""The tools that an agent can be given: their names and what people are told about them.

What the model is told, and the code behind a name, are agent_runner's.
"""

from typing import Final

from pydantic import BaseModel, ConfigDict


class ToolInfo(BaseModel):
    """A tool as a name in `agent.tools` and a sentence for people."""

    model_config = ConfigDict(frozen=True)

    name: str
    description: str


KNOWLEDGE_TOOL: Final = "KnowledgeTool"
CURRENT_TIME_TOOL: Final = "CurrentTimeTool"

TOOLS: Final[dict[str, ToolInfo]] = {
    tool.name: tool
    for tool in (
        ToolInfo(name=KNOWLEDGE_TOOL, description="Searches the knowledge bases that the agent was granted."),
        ToolInfo(name=CURRENT_TIME_TOOL, description="Tells the current date and time, in any time zone."),
    )
}
