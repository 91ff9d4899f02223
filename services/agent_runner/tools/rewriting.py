"""Further wordings of a query, by the agent's own model. A search never fails for want of them: the query itself is always searched for."""

import asyncio
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Literal
from uuid import UUID

import orjson
import structlog

from services.agent_runner.models.errors import ModelError
from services.agent_runner.models.types import ModelOptions, ModelReply, ModelRequest
from services.agent_runner.ports import Model
from services.agent_runner.prompts import render_rewriting
from services.agent_runner.settings import RewritingSettings
from services.agent_runner.steps import StoredMessage, ToolContext
from shared.errors import storable
from shared.tokens import count_tokens

log = structlog.get_logger()

_MAX_FURTHER = 3
_HAN = re.compile(r"[\u3400-\u9fff]")
_END_OF_THOUGHT = "</think>"
_LABEL = re.compile(r"^(search )?(query|rewritten query)\s*:\s*|^(检索)?(语句|查询)\s*[:：]\s*", re.IGNORECASE)
_QUOTED = re.compile(r"[\"'“‘「『`](.+)[\"'”’」』`]")
# Options that shape an answer: they would break a reply that is read by a program.
_SHAPING = frozenset({"response_format", "stop", "logprobs", "top_logprobs", "max_completion_tokens", "min_tokens"})

Turn = tuple[Literal["user", "assistant"], str]


@dataclass(frozen=True, slots=True)
class Wordings:
    """What is searched for: the leading wording and further ones, among them always the query as it was."""

    leading: str
    further: tuple[str, ...] = ()


class QueryRewriter:
    """Asks a model at most once a query, within limits of its own."""

    def __init__(self, model: Model, settings: RewritingSettings) -> None:
        self._model = model
        self._settings = settings

    async def wordings(self, query: str, context: ToolContext) -> Wordings:
        """The wordings that the agent's setting asks for; the query alone where the model fails. What it took is noted in the context.

        Where there is a conversation to take from, the model's first wording leads: the query may say as little as "and the next one?".
        """
        kind = context.agent.knowledge.query_rewriting
        turns = earlier_turns(context.conversation, context.run_id, self._settings.history_tokens)
        is_said_fully = len(query) > self._settings.max_query_chars or (kind == "rewrite" and not turns)
        if kind == "off" or is_said_fully:
            return Wordings(query)
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._settings.timeout):
                reply = await self._ask(query, turns, context)
            read = _read_one(reply) if kind == "rewrite" else _read_array(reply)
            found = self._sensible(read, query)
        except (ModelError, TimeoutError, ValueError) as error:
            log.warning("query.not_rewritten", cause=getattr(error, "code", type(error).__name__))
            return Wordings(query)
        log.info("query.rewritten", wordings=len(found), took_ms=round((time.monotonic() - began) * 1000))
        return Wordings(found[0], (*found[1:], query)) if found and turns else Wordings(query, tuple(found))

    async def _ask(self, query: str, turns: Sequence[Turn], context: ToolContext) -> str:
        agent = context.agent
        language: Literal["zh", "en"] = "zh" if _HAN.search(query) else "en"
        messages = render_rewriting(agent.knowledge.query_rewriting, query, turns, language)
        options = _options(agent.options, self._settings.max_tokens)
        async with aclosing(self._model.stream(ModelRequest(messages, agent.model, options=options))) as stream:
            async for item in stream:
                if isinstance(item, ModelReply):
                    if item.usage:
                        context.usages.append(item.usage)
                    return item.text
        raise AssertionError("a model's stream ends with its reply or an error")

    def _sensible(self, wordings: Iterable[str], query: str) -> list[str]:
        """The first few that say something else than the query. Raises ValueError for one that is too long to be one."""
        distinct = {" ".join(storable(wording).split()): None for wording in wordings}
        found = [wording for wording in distinct if wording and wording != " ".join(query.split())]
        if any(len(wording) > self._settings.max_query_chars for wording in found):
            raise ValueError("a wording is too long")
        return found[:_MAX_FURTHER]


def earlier_turns(conversation: Sequence[StoredMessage], run_id: UUID, budget: int) -> list[Turn]:
    """What user and assistant said before this run, and the run's own question, oldest first; as much of the newest as `budget` (tokens)
    holds, the oldest of it cut short. Empty when nothing was said before."""
    if all(message.run_id == run_id for message in conversation):
        return []
    turns: list[Turn] = []
    for message in reversed(conversation):
        if (
            message.role == "tool"
            or not message.content.strip()
            or (message.run_id == run_id and message.role != "user")
        ):
            continue
        cost = count_tokens(message.content)
        if cost <= budget:
            turns.append((message.role, message.content))
        elif budget > 0:
            turns.append((message.role, message.content[: max(1, len(message.content) * budget // cost)] + " …"))
        budget -= cost
        if budget <= 0:
            break
    return turns[::-1]


def _options(options: ModelOptions, max_tokens: int) -> ModelOptions:
    """The agent's own, which its model is known to accept, with a short limit."""
    extra = {name: value for name, value in options.extra.items() if name not in _SHAPING}
    return replace(options, max_tokens=max_tokens, extra=extra)


def _read_one(reply: str) -> list[str]:
    """The query that a reply consists of. Raises ValueError for an empty one."""
    lines = [line.strip() for line in _without_thoughts(reply).splitlines() if line.strip()]
    if not lines:
        raise ValueError("an empty reply")
    said = _LABEL.sub("", lines[0])
    quoted = _QUOTED.fullmatch(said)
    return [quoted[1] if quoted else said]


def _read_array(reply: str) -> list[str]:
    """The JSON array of strings in a reply. Raises ValueError when there is none."""
    said = _without_thoughts(reply)
    wordings = orjson.loads(said[said.find("[") : said.rfind("]") + 1])
    if not isinstance(wordings, list) or not all(isinstance(wording, str) for wording in wordings):
        raise ValueError("not an array of strings")
    return wordings


def _without_thoughts(reply: str) -> str:
    return reply.rpartition(_END_OF_THOUGHT)[2]
