"""Which hits an answer cites."""

import re
from collections.abc import Iterable
from typing import Any

from services.agent_runner.steps import StoredMessage

_MARK = re.compile(r"\[(\d{1,4})\]")


def hits_of(messages: Iterable[StoredMessage]) -> list[dict[str, Any]]:
    """All hits that tools have brought, each with its number n."""
    return [hit for message in messages if message.role == "tool" for hit in message.metadata.get("hits", [])]


def resolve_citations(answer: str, hits: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[int]]:
    """The hits that the answer's [n] marks point to, in the order of their first mark, and the numbers that point to nothing."""
    by_number = {hit["n"]: hit for hit in hits}
    marks = list(dict.fromkeys(int(mark) for mark in _MARK.findall(answer)))
    return [by_number[n] for n in marks if n in by_number], [n for n in marks if n not in by_number]
