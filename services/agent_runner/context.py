"""What a model is asked: the system prompt, as much of the conversation as fits, and the tools it may call."""

from services.agent_runner.memory import assemble
from services.agent_runner.models.types import ModelRequest, ToolSpec
from services.agent_runner.progress import RunProgress
from services.agent_runner.prompts import render_system_prompt
from shared.contracts.tools import KNOWLEDGE_TOOL


def build_request(progress: RunProgress, tools: tuple[ToolSpec, ...], history_tokens: int) -> ModelRequest:
    """The next request of a run; `history_tokens` limits what earlier runs of the session may take."""
    agent = progress.agent
    system = render_system_prompt(agent, has_knowledge_tool=any(tool.name == KNOWLEDGE_TOOL for tool in tools))
    messages = assemble(system, progress.messages, progress.run_id, history_tokens)
    return ModelRequest(messages, agent.model, tools, agent.options)
