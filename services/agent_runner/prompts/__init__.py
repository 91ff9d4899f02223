"""What the runner itself says to models: the system prompt (the agent's own words, then what it may search and how it cites), and how a
query is to be rewritten."""

from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Literal

from services.agent_runner.models.types import Message
from services.agent_runner.steps import Agent
from shared.contracts.agent_knowledge import QueryRewriting

Language = Literal["en", "zh"]

_HERE = Path(__file__).parent
_KNOWLEDGE = Template((_HERE / "knowledge.txt").read_text("utf-8"))
_REWRITING = {path.stem: path.read_text("utf-8").strip() for path in _HERE.glob("*.*.txt")}
# What a query and the turns before it are called.
_NAMES = {
    "en": {"conversation": "Conversation:", "user": "User: ", "assistant": "Assistant: ", "query": "Query: "},
    "zh": {"conversation": "对话：", "user": "用户：", "assistant": "助手：", "query": "语句："},
}


def render_system_prompt(agent: Agent, *, has_knowledge_tool: bool) -> str:
    """Empty when the agent has no prompt and nothing to search."""
    parts = [agent.system_prompt.strip()]
    if has_knowledge_tool:
        bases = "\n".join(
            f"- {base.name} (id {base.id}): {base.description or 'no description'}" for base in agent.knowledge_bases
        )
        parts.append(_KNOWLEDGE.substitute(knowledge_bases=bases))
    return "\n\n".join(part for part in parts if part)


def render_rewriting(
    kind: QueryRewriting, query: str, turns: Iterable[tuple[Literal["user", "assistant"], str]], language: Language
) -> tuple[Message, Message]:
    """The request to rewrite a query (`rewrite` or `multi`) after these turns (who, what), oldest first."""
    names = _NAMES[language]
    lines = [f"{names[role]}{' '.join(text.split())}" for role, text in turns]
    told = [names["conversation"], *lines, ""] if lines else []
    return (
        Message("system", _REWRITING[f"{kind}.{language}"]),
        Message("user", "\n".join([*told, f"{names['query']}{' '.join(query.split())}"])),
    )
