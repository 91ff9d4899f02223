"""Requests to rewrite a search query: the conversation and the query that stand in the question."""

import json
import re
from dataclasses import dataclass

from deploy.offline_model.conversation import Conversation

_ASKS = re.compile(r"prepare search queries|准备检索语句")
_LINE = re.compile(r"^(?:(?P<user>User: |用户：)|(?P<query>Query: |语句：))(?P<text>.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RewritingRequest:
    """The conversation as if its query were the next question; `wants_array`: several wordings are asked for, as JSON."""

    conversation: Conversation
    wants_array: bool

    def written(self, query: str) -> str:
        """A query in the form that is asked for."""
        return json.dumps([query], ensure_ascii=False) if self.wants_array else query


def read_rewriting_request(conversation: Conversation) -> RewritingRequest | None:
    """None for a conversation that asks for something else."""
    if conversation.tools or not _ASKS.search(conversation.system):
        return None
    lines = list(_LINE.finditer(conversation.question))
    query = next((line["text"] for line in reversed(lines) if line["query"]), conversation.question)
    earlier = tuple(line["text"] for line in lines if line["user"] and line["text"] != query)
    asked = Conversation(system="", earlier=earlier, question=query.strip(), results=(), tools=())
    return RewritingRequest(asked, "JSON" in conversation.system)
