"""What the strictest chat endpoints ask of the messages of a request, all of it at once."""

from collections.abc import Iterator, Sequence
from typing import Any

# role: what may stand before it; None is the beginning.
_BEFORE: dict[str, set[str | None]] = {
    "system": {None},
    "user": {None, "system", "assistant"},
    "assistant": {"user", "tool"},
    "tool": {"assistant", "tool"},
}


def history_problems(messages: Sequence[dict[str, Any]]) -> list[str]:
    """What is wrong with the messages of a request in the OpenAI protocol; empty when nothing is.

    Roles: at most one system message, first; users and assistants in turn; the last is the user's or a tool's. Each call has an id of its
    own and exactly one result, in the order of the calls, directly behind its message; no result has no call; no message says nothing.
    """
    problems = list(_role_problems(messages))
    seen: set[str] = set()
    open_calls: list[str] = []
    for position, message in enumerate(messages):
        where = f"message {position}"
        if message["role"] == "tool":
            if not open_calls or message.get("tool_call_id") != open_calls.pop(0):
                problems.append(f"{where} is the result of no call, or out of order")
            continue
        if open_calls:
            problems.append(f"{where} comes before the results of {open_calls}")
        open_calls = [call["id"] for call in message.get("tool_calls") or []]
        for call_id in open_calls:
            if not call_id or call_id in seen:
                problems.append(f"{where} has the call id {call_id!r}, which is empty or taken")
            seen.add(call_id)
        if message["role"] == "assistant" and not open_calls and not (message.get("content") or "").strip():
            problems.append(f"{where} says nothing")
        if message.get("tool_calls") == []:
            problems.append(f"{where} has an empty list of calls")
    if open_calls:
        problems.append(f"the results of {open_calls} are missing")
    return problems


def _role_problems(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    before: str | None = None
    calls = False
    for position, message in enumerate(messages):
        role = message["role"]
        if before not in _BEFORE.get(role, set()):
            yield f"message {position} of role {role} comes after {before or 'nothing'}"
        if role == "user" and before == "assistant" and calls:
            yield f"message {position} of role user comes after a call"
        if role == "assistant":
            calls = bool(message.get("tool_calls"))
        before = role
    if before not in ("user", "tool"):
        yield f"the last message is of role {before or 'nothing'}"
