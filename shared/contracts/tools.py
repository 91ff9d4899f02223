"""The tools that come with ChatMind: their names and what people are told about them. An operator adds others by `tools.toml`.

What the model is told, and the code behind a name, are agent_runner's.
"""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

ToolEffect = Literal["read", "keyed", "once"]
"""What calling a tool twice does, and so what follows when the outcome of a call is lost.

`read`: nothing, so it is called again. `keyed`: nothing when the same idempotency key comes with it, so it is called again with that.
`once`: something each time, so it is never called again; the outcome is unknown until a user says what it was.
"""


class ToolInfo(BaseModel):
    """A tool as a name in `agent.tools` and a sentence for people."""

    model_config = ConfigDict(frozen=True)

    name: str
    description: str
    effect: ToolEffect = "read"


KNOWLEDGE_TOOL: Final = "KnowledgeTool"
CURRENT_TIME_TOOL: Final = "CurrentTimeTool"

TOOLS: Final[dict[str, ToolInfo]] = {
    tool.name: tool
    for tool in (
        ToolInfo(name=KNOWLEDGE_TOOL, description="Searches the knowledge bases that the agent was granted."),
        ToolInfo(name=CURRENT_TIME_TOOL, description="Tells the current date and time, in any time zone."),
    )
}
