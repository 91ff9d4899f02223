"""What a model is asked (the system prompt, as much of the conversation as fits, its tools), and on whose behalf its tools run."""

from collections.abc import Sequence

from services.agent_runner.citations import CitationReader, hits_of
from services.agent_runner.memory import assemble, remembered
from services.agent_runner.models.types import ModelRequest, ToolSpec
from services.agent_runner.progress import RunProgress
from services.agent_runner.prompts import render_system_prompt
from services.agent_runner.steps import MAX_HITS_A_CALL, OpenCall, ToolContext
from shared.contracts.tools import KNOWLEDGE_TOOL


def build_request(
    progress: RunProgress, tools: tuple[ToolSpec, ...], history_tokens: int
) -> tuple[ModelRequest, CitationReader]:
    """The next request of a run, and what reads the text of its reply: that may cite the hits which the model is shown.

    `history_tokens` limits what earlier runs of the session may take.
    """
    agent = progress.agent
    may_search = any(tool.name == KNOWLEDGE_TOOL for tool in tools)
    system = render_system_prompt(agent, has_knowledge_tool=may_search)
    shown = remembered(progress.messages, progress.run_id, history_tokens)
    request = ModelRequest(assemble(system, shown), agent.model, tools, agent.options)
    return request, CitationReader(hits_of(shown), judges=may_search)


def tool_contexts(progress: RunProgress, calls: Sequence[OpenCall]) -> list[ToolContext]:
    """A context for each of the calls, which run side by side.

    Each numbers its hits from a range of its own, above all that the session has, so that [n] means one passage of all that the model sees.
    """
    last = max((hit["n"] for hit in hits_of(progress.messages)), default=0)
    return [
        ToolContext(
            progress.tenant_id,
            progress.run_id,
            progress.session_id,
            hits_before=last + position * MAX_HITS_A_CALL,
            idempotency_key=f"{progress.run_id}:{call.step}:{call.ordinal}",
            attempt=progress.attempt,
            agent=progress.agent,
            conversation=tuple(progress.messages),
        )
        for position, call in enumerate(calls)
    ]
