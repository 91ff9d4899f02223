"""Search: what a knowledge base says about a question, as retrieval finds it."""

from uuid import UUID

from fastapi import APIRouter, Response

from services.gateway.answers import JsonText, StrictJsonRoute
from services.gateway.deps import CallDep
from services.gateway.schemas.knowledge_bases import SearchRequest
from services.gateway.store.knowledge_bases import require_knowledge_base
from shared.contracts.questions import SearchKnowledge, SearchResult, TenantScope
from shared.topology import QUESTIONS

router = APIRouter(prefix="/api/knowledge-bases/{knowledge_base_id}", tags=["search"], route_class=StrictJsonRoute)


@router.post("/search", response_model=SearchResult, responses={404: {}, 413: {}, 502: {}})
async def search(knowledge_base_id: UUID, body: SearchRequest, call: CallDep) -> Response:
    """Searches a knowledge base by meaning, by words, or by both."""
    async with call.parts.pool.acquire() as connection:
        await require_knowledge_base(connection, call.tenant_id, knowledge_base_id)
    question = SearchKnowledge(
        scope=TenantScope(tenant_id=call.tenant_id, knowledge_base_id=knowledge_base_id),
        query=body.query,
        queries=tuple(body.queries),
        top_k=body.top_k,
        min_score=body.min_score,
        mode=body.mode,
        rerank=body.rerank,
        filter=body.filter,
        explain=body.explain,
        request_id=call.request_id,
    )
    result = await call.parts.rpc.ask(QUESTIONS, question, SearchResult, deadline=call.parts.settings.search_seconds)
    return JsonText(result.model_dump_json())
