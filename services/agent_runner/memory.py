"""What the model sees: the newest history within a token budget, tool calls and their results kept together."""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from uuid import UUID

from services.agent_runner.models.types import Message
from services.agent_runner.steps import StoredMessage

_WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]|[\U00020000-\U0003ffff]")
_MESSAGE_OVERHEAD = 4  # tokens that a chat format spends on a message's frame

Group = list[StoredMessage]


def estimate_tokens(text: str) -> int:
    """A cautious estimate that needs no tokenizer: one token a CJK character, one for 3.5 other characters."""
    wide = len(_WIDE.findall(text))
    return wide + round((len(text) - wide) / 3.5)


def assemble(system_prompt: str, messages: Sequence[StoredMessage], run_id: UUID, budget: int) -> tuple[Message, ...]:
    """The messages of a request: the system prompt, as much of the newest history as `budget` (tokens) holds, and this run's own
    messages, which are always there. `messages` are in reading order.

    History keeps whole groups only: a tool call without all of its results (a run that was cancelled or killed) is left out, because
    providers refuse it. History never begins in the middle of an exchange.
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
    system = [Message("system", system_prompt)] if system_prompt else []
    return (*system, *(_to_model(message) for group in reversed(kept) for message in group), *_complete(own))


def _exchanges(history: Sequence[StoredMessage]) -> Iterator[Group]:
    """A user's message with everything that followed from it, without incomplete tool calls."""
    exchange: Group = []
    for message in history:
        if message.role == "user" and exchange:
            yield list(_paired(exchange))
            exchange = []
        exchange.append(message)
    if exchange:
        yield list(_paired(exchange))


def _paired(messages: Sequence[StoredMessage]) -> Iterator[StoredMessage]:
    """Drops a reply whose calls lack results, and results without their reply.

    Results belong to the reply that they follow, not to any other with the same call id: some models number their calls anew each time.
    """
    for position, message in enumerate(messages):
        if message.role == "tool":
            continue
        results = list(takewhile(lambda following: following.role == "tool", messages[position + 1 :]))
        answered = {result.tool_call_id for result in results}
        calls = {call.id for call in message.tool_calls}
        if calls <= answered:
            yield message
            yield from (result for result in results if result.tool_call_id in calls)


def _complete(own: Sequence[StoredMessage]) -> Iterator[Message]:
    return (_to_model(message) for message in _paired(own))


def _cost(message: StoredMessage) -> int:
    calls = sum(estimate_tokens(call.arguments_json) + _MESSAGE_OVERHEAD for call in message.tool_calls)
    return estimate_tokens(message.content) + calls + _MESSAGE_OVERHEAD


def _to_model(message: StoredMessage) -> Message:
    return Message(message.role, message.content, message.tool_calls, message.tool_call_id)
