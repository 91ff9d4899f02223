"""What a model is asked (the system prompt, as much of the conversation as fits, its tools), and on whose behalf its tools run."""

from collections.abc import Sequence

from services.agent_runner.citations import hits_of
from services.agent_runner.memory import assemble
from services.agent_runner.models.types import ModelRequest, ToolSpec
from services.agent_runner.progress import RunProgress
from services.agent_runner.prompts import render_system_prompt
from services.agent_runner.steps import MAX_HITS_A_CALL, OpenCall, ToolContext
from shared.contracts.tools import KNOWLEDGE_TOOL


def build_request(progress: RunProgress, tools: tuple[ToolSpec, ...], history_tokens: int) -> ModelRequest:
    """The next request of a run; `history_tokens` limits what earlier runs of the session may take."""
    agent = progress.agent
    system = render_system_prompt(agent, has_knowledge_tool=any(tool.name == KNOWLEDGE_TOOL for tool in tools))
    messages = assemble(system, progress.messages, progress.run_id, history_tokens)
    return ModelRequest(messages, agent.model, tools, agent.options)


def tool_contexts(progress: RunProgress, calls: Sequence[OpenCall]) -> list[ToolContext]:
    """A context for each of the calls, which run side by side.

    Each numbers its hits from a range of its own, above all that the run has, so that [n] means one passage.
    """
    last = max((hit["n"] for hit in hits_of(progress.own_messages)), default=0)
    return [
        ToolContext(
            progress.tenant_id,
            progress.run_id,
            progress.session_id,
            hits_before=last + position * MAX_HITS_A_CALL,
            idempotency_key=f"{progress.run_id}:{call.step}:{call.ordinal}",
            attempt=progress.attempt,
        )
        for position, call in enumerate(calls)
    ]
