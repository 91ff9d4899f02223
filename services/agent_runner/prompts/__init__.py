"""The system prompt: the agent's own words, then what it may search and how it cites."""

from pathlib import Path
from string import Template

from services.agent_runner.steps import Agent

_KNOWLEDGE = Template((Path(__file__).parent / "knowledge.txt").read_text())


def render_system_prompt(agent: Agent, *, has_knowledge_tool: bool) -> str:
    """Empty when the agent has no prompt and nothing to search."""
    parts = [agent.system_prompt.strip()]
    if has_knowledge_tool:
        bases = "\n".join(
            f"- {base.name} (id {base.id}): {base.description or 'no description'}" for base in agent.knowledge_bases
        )
        parts.append(_KNOWLEDGE.substitute(knowledge_bases=bases))
    return "\n\n".join(part for part in parts if part)
