"""What the model sees: the newest history within a token budget, as strict endpoints want it.

Whatever happened to earlier runs (cancelled, given up, out of steps), a request is the system prompt, then in turn a user's message
and what followed from it: replies that call tools, each with exactly its results behind it, and an answer. What history lacks is said.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any
from uuid import UUID

from services.agent_runner.models.types import Message
from services.agent_runner.steps import StoredMessage
from shared.json_text import to_json
from shared.tokens import count_tokens

_MESSAGE_OVERHEAD = 4  # tokens that a chat format spends on a message's frame
_NO_ANSWER = "(This turn ended without an answer.)"
_NO_RESULT = to_json(
    {"error": {"code": "no_result", "message": "the turn ended before the result of this call was stored"}}
)

Group = list[StoredMessage]


def assemble(system_prompt: str, messages: Sequence[StoredMessage]) -> tuple[Message, ...]:
    """The messages of a request: the system prompt and what is `remembered`."""
    system = [Message("system", system_prompt)] if system_prompt else []
    return (*system, *_with_unique_ids(messages))


def remembered(messages: Sequence[StoredMessage], run_id: UUID, budget: int) -> list[StoredMessage]:
    """As much of the newest history as `budget` (tokens) holds, and this run's own messages, which are always there. `messages` are in
    reading order.

    History is kept by whole exchanges, the newest first, and never begins in the middle of one.
    """
    own = [message for message in messages if message.run_id == run_id]
    history = [message for message in messages if message.run_id != run_id]
    kept: list[Group] = []
    for group in reversed(list(_exchanges(history))):
        cost = sum(map(_cost, group))
        if cost > budget:
            break
        budget -= cost
        kept.append(group)
    return [*(message for group in reversed(kept) for message in group), *_paired(own)]


def _exchanges(history: Sequence[StoredMessage]) -> Iterator[Group]:
    """Each user's message with everything that followed from it. What comes before the first one is the rest of an older exchange."""
    exchange: Group = []
    for message in history:
        if message.role == "user":
            if exchange:
                yield _closed(exchange)
            exchange = [message]
        elif exchange:
            exchange.append(message)
    if exchange:
        yield _closed(exchange)


def _closed(exchange: Group) -> Group:
    """With an answer at its end, whatever way it ended."""
    paired = list(_paired(exchange))
    if paired[-1].role == "assistant":
        return paired
    return [*paired, StoredMessage(exchange[0].run_id, "assistant", _NO_ANSWER)]


def _paired(messages: Sequence[StoredMessage]) -> Iterator[StoredMessage]:
    """Every reply with exactly the results of its calls behind it, in their order; without empty replies and results of no call.

    Results belong to the reply that they follow, not to any other with the same call id: some models number their calls anew each time.
    """
    for position, message in enumerate(messages):
        if message.role == "tool" or _is_empty(message):
            continue
        yield message
        results = list(takewhile(lambda following: following.role == "tool", messages[position + 1 :]))
        for call in message.tool_calls:
            result = next((result for result in results if result.tool_call_id == call.id), None)
            if result is None:
                yield StoredMessage(message.run_id, "tool", _NO_RESULT, tool_call_id=call.id)
            else:
                results.remove(result)
                yield replace(result, content=_told(result))


def _is_empty(message: StoredMessage) -> bool:
    return message.role == "assistant" and not message.tool_calls and not message.content.strip()


def _told(result: StoredMessage) -> str:
    """The result's text; for a call whose outcome was unknown until a user said what it was, that."""
    resolution: dict[str, Any] | None = result.metadata.get("resolution")
    if resolution is None:
        return result.content
    return to_json({"outcome": resolution["outcome"], "result": resolution["result"], "said_by": "user"})


def _with_unique_ids(messages: Sequence[StoredMessage]) -> Iterator[Message]:
    """The messages as a request has them: the id of a call that an earlier one has is changed, together with that of its result."""
    taken: set[str] = set()
    results: list[str] = []
    for message in messages:
        if message.role == "tool":
            yield Message("tool", message.content, (), results.pop(0))
            continue
        calls = []
        for call in message.tool_calls:
            call_id = _free_id(call.id, taken)
            taken.add(call_id)
            calls.append(replace(call, id=call_id))
        results = [call.id for call in calls]
        yield Message(message.role, message.content, tuple(calls))


def _free_id(wanted: str, taken: set[str]) -> str:
    candidates = (wanted, *(f"{wanted}_{n}" for n in range(2, len(taken) + 3)))
    return next(candidate for candidate in candidates if candidate not in taken)


def _cost(message: StoredMessage) -> int:
    calls = sum(count_tokens(call.arguments_json) + _MESSAGE_OVERHEAD for call in message.tool_calls)
    return count_tokens(message.content) + calls + _MESSAGE_OVERHEAD
