"""Which documents a filter lets through, by meaning and by words."""

from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from services.retrieval.ports import KnowledgeBase, Target
from services.retrieval.store import SearchStore
from shared.contracts.questions import SearchFilter
from shared.keywords import query_terms
from tests.integration.retrieval.library import DIMENSIONS, Base, Library
from tests.support.embedding_server import vector_of

# Documents by the word that each of their chunks holds besides "order".
DOCUMENTS: dict[str, dict[str, Any]] = {
    "plain": {"media_type": "text/plain", "tags": [], "created_at": datetime(2024, 3, 1, 23, 59, tzinfo=UTC)},
    "manual": {"media_type": "application/pdf", "tags": ["manual", "public"], "document_date": date(2023, 12, 31)},
    "draft": {"media_type": "application/pdf", "tags": ["draft"], "document_date": date(2024, 3, 2)},
    "both": {"media_type": "text/html", "tags": ["manual", "draft"], "document_date": date(2025, 1, 1)},
}


async def add_documents(library: Library) -> tuple[Base, dict[str, UUID]]:
    """A base with these documents, three chunks each; their ids by their word."""
    base = await library.add_base()
    ids: dict[str, UUID] = {}
    for word, columns in DOCUMENTS.items():
        chunks = await library.add_chunks(base, [f"order {word} {n}" for n in range(3)])
        ids[word] = await library.pool.fetchval(
            "SELECT document_id FROM chunk WHERE id = $1", chunks[f"order {word} 0"]
        )
        for column, value in columns.items():
            await library.pool.execute(f"UPDATE document SET {column} = $1 WHERE id = $2", value, ids[word])
    return base, ids


async def found(library: Library, base: Base, only: SearchFilter | None) -> tuple[set[str], set[str]]:
    """The words of the documents that are found by meaning and by words, each with all of its chunks."""
    vector = np.array(vector_of("order", DIMENSIONS[base.model]), np.float32)
    target = Target(base.tenant_id, [KnowledgeBase(base.id, base.model)], [vector], query_terms("order"), only)
    async with SearchStore(library.pool, keyword_postings=100).reader() as reader:
        lists = [
            [match.chunk_id for match in await reader.nearest(target, 50)],
            [match.chunk_id for match in await reader.matching(target, 50)],
        ]
        words = []
        for chunk_ids in lists:
            passages = await reader.load(base.tenant_id, chunk_ids)
            assert len(passages) == len(chunk_ids) == len(set(chunk_ids))
            words.append([passage.content.split()[1] for passage in passages.values()])
    assert all(listed.count(word) == 3 for listed in words for word in listed)
    return set(words[0]), set(words[1])


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (None, {"plain", "manual", "draft", "both"}),
        ({}, {"plain", "manual", "draft", "both"}),
        ({"media_types": ["application/pdf"]}, {"manual", "draft"}),
        ({"media_types": ["application/pdf", "text/plain"]}, {"plain", "manual", "draft"}),
        ({"tags": ["manual"]}, {"manual", "both"}),
        ({"tags": ["manual", "draft"]}, {"both"}),
        ({"tags": ["manual", "unknown"]}, set()),
        ({"tags_any": ["public", "draft"]}, {"manual", "draft", "both"}),
        ({"tags": ["manual"], "tags_any": ["draft"]}, {"both"}),
        ({"date_from": "2024-03-01"}, {"plain", "draft", "both"}),
        ({"date_from": "2024-03-02"}, {"draft", "both"}),
        ({"date_to": "2024-03-01"}, {"plain", "manual"}),
        ({"date_from": "2024-03-01", "date_to": "2024-03-02"}, {"plain", "draft"}),
        ({"date_from": "2024-01-01", "media_types": ["application/pdf"], "tags": ["draft"]}, {"draft"}),
        ({"date_from": "2026-01-01"}, set()),
    ],
)
async def test_a_filter_lets_the_right_documents_through(
    library: Library, conditions: dict[str, Any] | None, expected: set[str]
) -> None:
    base, _ = await add_documents(library)
    only = None if conditions is None else SearchFilter.model_validate(conditions)

    assert await found(library, base, only) == (expected, expected)


async def test_documents_can_be_named(library: Library) -> None:
    base, ids = await add_documents(library)
    only = SearchFilter(document_ids=(ids["plain"], ids["both"]))

    assert await found(library, base, only) == ({"plain", "both"}, {"plain", "both"})


async def test_a_filter_reaches_no_other_base_and_no_other_tenant(library: Library) -> None:
    base, _ = await add_documents(library)
    sibling = await library.add_base(base.tenant_id)
    chunks = await library.add_chunks(sibling, ["order sibling 0"])
    foreign, foreign_ids = await add_documents(library)
    sibling_id = await library.pool.fetchval("SELECT document_id FROM chunk WHERE id = $1", chunks["order sibling 0"])

    for document_id in (sibling_id, foreign_ids["plain"]):
        assert await found(library, base, SearchFilter(document_ids=(document_id,))) == (set(), set())
    mixed = Base(base.tenant_id, foreign.id, foreign.model)
    assert await found(library, mixed, SearchFilter(media_types=("text/plain",))) == (set(), set())


async def test_a_filter_leaves_scores_as_they_are(library: Library) -> None:
    base, _ = await add_documents(library)
    await library.add_chunks(base, [f"order order {n}" for n in range(5)])
    vector = np.array(vector_of("order", DIMENSIONS[base.model]), np.float32)
    terms = query_terms("order manual")

    async def scores(only: SearchFilter | None) -> dict[UUID, tuple[float, float]]:
        target = Target(base.tenant_id, [KnowledgeBase(base.id, base.model)], [vector], terms, only)
        async with SearchStore(library.pool, keyword_postings=100).reader() as reader:
            cosines = {match.chunk_id: match.cosine for match in await reader.nearest(target, 50)}
            return {
                match.chunk_id: (match.bm25, cosines[match.chunk_id]) for match in await reader.matching(target, 50)
            }

    everything, some = await scores(None), await scores(SearchFilter(tags=("manual",)))
    assert len(some) == 6
    assert some == {chunk_id: pytest.approx(everything[chunk_id]) for chunk_id in some}


async def test_parents_are_loaded_within_the_tenant(library: Library) -> None:
    base = await library.add_base()
    chunks = await library.add_chunks(base, ["child"])
    foreign = await library.add_tenant()
    parent_id = await library.pool.fetchval(
        "INSERT INTO chunk_parent (tenant_id, id, knowledge_base_id, document_id, version, ordinal, title, heading_path, content,"
        " char_start, char_end, page_first, page_last)"
        " SELECT tenant_id, gen_random_uuid(), knowledge_base_id, document_id, 1, 0, 'Section', '{Book,Section}', 'child and more', 5, 19,"
        " 2, 3 FROM chunk RETURNING id"
    )
    await library.pool.execute("UPDATE chunk SET parent_id = $1", parent_id)

    async with SearchStore(library.pool, keyword_postings=100).reader() as reader:
        (child,) = (await reader.load(base.tenant_id, list(chunks.values()))).values()
        assert child.parent_id == parent_id
        parents = await reader.load_parents(base.tenant_id, [parent_id])
        assert await reader.load_parents(foreign, [parent_id]) == {}
    parent = parents[parent_id]
    assert (parent.content, parent.title, parent.heading_path) == ("child and more", "Section", ("Book", "Section"))
    assert (parent.char_start, parent.char_end) == (5, 19)
    assert (parent.page_first, parent.page_last) == (2, 3)
