"""KnowledgeTool: a question to retrieval. What may be read follows from the run; the model can only narrow it."""

from typing import Any, Protocol
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, Field

from services.agent_runner.models.types import ToolSpec
from services.agent_runner.steps import MAX_HITS_A_CALL, Agent, ToolContext, ToolResult
from services.agent_runner.tools.base import ToolFailed
from services.agent_runner.tools.rewriting import Wordings
from shared.contracts.questions import Hit, RunScope, SearchKnowledge, SearchResult
from shared.contracts.tools import KNOWLEDGE_TOOL, ToolEffect
from shared.errors import CodedError, storable

# What had to be done without, in words for the model.
_DEGRADED = {
    "embeddings_unavailable": "found by words alone: passages that say it in other words may be missing",
    "rerank_unavailable": "the order of the hits is rough",
}


class AskRetrieval(Protocol):
    """Sends a question to retrieval. Raises CodedError when there is no answer."""

    async def __call__(self, question: SearchKnowledge) -> SearchResult: ...


class Rewriter(Protocol):
    """Finds further wordings of a query, or none."""

    async def wordings(self, query: str, context: ToolContext) -> Wordings: ...


class Arguments(BaseModel):
    """What the model may ask for."""

    model_config = ConfigDict(extra="ignore")

    query: str = Field(min_length=1, max_length=20_000)
    knowledge_base_ids: list[UUID] | None = None
    top_k: int = Field(default=5, ge=1, le=MAX_HITS_A_CALL)


class KnowledgeTool:
    """Searches the knowledge bases that the run's agent was granted."""

    name = KNOWLEDGE_TOOL
    effect: ToolEffect = "read"
    timeout = None

    def __init__(self, ask: AskRetrieval, rewriter: Rewriter) -> None:
        self._ask = ask
        self._rewriter = rewriter

    def spec(self, agent: Agent) -> ToolSpec | None:
        """None for an agent without knowledge bases."""
        if not agent.knowledge_bases:
            return None
        ids = [str(base.id) for base in agent.knowledge_bases]
        properties = {
            "query": {"type": "string", "description": "What to look for, in the user's words and language."},
            "knowledge_base_ids": {
                "type": "array",
                "items": {"type": "string", "enum": ids},
                "description": "Which knowledge bases to search; all of them when left out.",
            },
            "top_k": {"type": "integer", "minimum": 1, "maximum": MAX_HITS_A_CALL, "default": 5},
        }
        return ToolSpec(
            name=self.name,
            description="Search the knowledge bases for passages that answer the query. Each hit has a number n to cite as [n].",
            parameters={"type": "object", "properties": properties, "required": ["query"]},
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Hits as JSON text, numbered on from those the session has already. Whatever the wordings, the scope is the run's."""
        asked = Arguments.model_validate(arguments)
        scope = RunScope(
            run_id=context.run_id,
            knowledge_base_ids=None if asked.knowledge_base_ids is None else tuple(asked.knowledge_base_ids),
        )
        settings = context.agent.knowledge
        wordings = await self._rewriter.wordings(storable(asked.query), context)
        question = SearchKnowledge(
            scope=scope,
            query=wordings.leading,
            queries=wordings.further,
            top_k=asked.top_k,
            min_score=settings.min_score,
            rerank=settings.rerank,
            filter=settings.filter,
        )
        try:
            found = await self._ask(question)
        except CodedError as error:
            raise ToolFailed(f"the knowledge bases can't be searched now: {error.message}", code=error.code) from error
        numbered = list(enumerate(found.hits, start=context.hits_before + 1))
        return ToolResult(
            content=orjson.dumps({"hits": [_for_model(n, hit) for n, hit in numbered], **_notes(found)}).decode(),
            metadata={
                "hits": [_for_citation(n, hit) for n, hit in numbered],
                "search": _searched(question, found),
            },
        )


def _notes(found: SearchResult) -> dict[str, Any]:
    """What the model has to know about how the search went; nothing when all is well."""
    notes = [_DEGRADED.get(code, code) for code in found.degraded]
    return {"notes": notes} if notes else {}


def _searched(question: SearchKnowledge, found: SearchResult) -> dict[str, Any]:
    """What was searched for, as the message's metadata tell it."""
    asked = question.model_dump(
        mode="json", include={"query", "queries", "top_k", "min_score", "rerank", "filter"}, exclude_defaults=True
    )
    return {**asked, "degraded": list(found.degraded)} if found.degraded else asked


def _for_model(n: int, hit: Hit) -> dict[str, Any]:
    return {
        "n": n,
        "title": hit.title,
        "heading_path": list(hit.heading_path),
        "filename": hit.filename,
        **({"pages": [hit.page_first, hit.page_last]} if hit.page_first else {}),
        "content": hit.content,
        "score": round(hit.score, 4),
    }


def _for_citation(n: int, hit: Hit) -> dict[str, Any]:
    return {
        "n": n,
        "chunk_id": str(hit.chunk_id),
        "document_id": str(hit.document_id),
        "knowledge_base_id": str(hit.knowledge_base_id),
        "filename": hit.filename,
        "version": hit.version,
        "title": hit.title,
        "heading_path": list(hit.heading_path),
        "char_start": hit.char_start,
        "char_end": hit.char_end,
        "page_first": hit.page_first,
        "page_last": hit.page_last,
        "score": hit.score,
        "quote": hit.quote.model_dump() if hit.quote else None,
    }
