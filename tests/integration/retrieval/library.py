"""Knowledge bases with chunks whose vectors and words a test chooses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np

from services.retrieval.ports import Vector
from services.retrieval.search import Search
from services.retrieval.settings import SearchSettings
from services.retrieval.store import SearchStore
from shared.contracts.questions import TenantScope
from shared.db.pool import Pool
from shared.ids import new_id
from shared.keyword_vector import keyword_vector_text
from shared.keywords import index_terms
from tests.support.embedding_server import vector_of

DIMENSIONS = {"tiny": 8, "large": 24}

INSERT_CHUNK = """
INSERT INTO chunk (tenant_id, id, knowledge_base_id, document_id, version, ordinal, title, heading_path, content, char_start, char_end,
    keywords, keyword_count)
VALUES ($1, $2, $3, $4, 1, $5, 'Title', '{Handbook,Title}', $6, 10, 20, $7::text::tsvector, $8)
"""
INSERT_EMBEDDING = """
INSERT INTO chunk_embedding (tenant_id, knowledge_base_id, chunk_id, field, embedding) VALUES ($1, $2, $3, $4, $5)
"""


@dataclass
class FixedEmbedder:
    """Vectors that a test sets, and for any other question one that depends on its text."""

    vectors: dict[tuple[str, str], Sequence[float]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    async def embed(self, model: str, queries: Sequence[str]) -> list[Vector]:
        self.asked += [(model, query) for query in queries]
        return [
            np.array(self.vectors.get((model, query)) or vector_of(query, DIMENSIONS[model]), np.float32)
            for query in queries
        ]


@dataclass(frozen=True)
class Base:
    """A knowledge base and what of it a question needs."""

    tenant_id: UUID
    id: UUID
    model: str

    @property
    def scope(self) -> TenantScope:
        return TenantScope(tenant_id=self.tenant_id, knowledge_base_id=self.id)


@dataclass
class Library:
    """Writes rows as ingestion does, and searches them."""

    pool: Pool
    embedder: FixedEmbedder = field(default_factory=FixedEmbedder)

    def search(self, settings: SearchSettings | None = None) -> Search:
        settings = settings or SearchSettings()
        return Search(SearchStore(self.pool, settings.keyword_postings), self.embedder, settings)

    async def add_tenant(self) -> UUID:
        tenant_id = new_id()
        await self.pool.execute("INSERT INTO tenant (id, name) VALUES ($1, $2)", tenant_id, str(tenant_id))
        return tenant_id

    async def add_base(self, tenant_id: UUID | None = None, model: str = "tiny") -> Base:
        base = Base(tenant_id or await self.add_tenant(), new_id(), model)
        await self.pool.execute(
            "INSERT INTO knowledge_base (tenant_id, id, name, embedding_model) VALUES ($1, $2, 'base', $3)",
            base.tenant_id,
            base.id,
            model,
        )
        return base

    async def add_document(self, base: Base, filename: str = "handbook.md") -> UUID:
        document_id = new_id()
        await self.pool.execute(
            "INSERT INTO document (tenant_id, id, knowledge_base_id, filename, media_type, size, sha256, current_version, state)"
            " VALUES ($1, $2, $3, $4, 'text/markdown', 1, $5, 1, 'ready')",
            base.tenant_id,
            document_id,
            base.id,
            filename,
            document_id.bytes,
        )
        return document_id

    async def add_chunks(
        self,
        base: Base,
        contents: Sequence[str],
        vectors: Mapping[str, Sequence[float]] | None = None,
        title: str | None = None,
    ) -> dict[str, UUID]:
        """A document with these chunks, each with a vector of its title (its own, unless one is given) and of its body; ids by content."""
        document_id = await self.add_document(base)
        ids = {content: new_id() for content in contents}
        dimension = DIMENSIONS[base.model]
        chunks, embeddings = [], []
        for ordinal, (content, chunk_id) in enumerate(ids.items()):
            terms = index_terms(content)
            place = (base.tenant_id, chunk_id, base.id, document_id, ordinal)
            chunks.append((*place, content, keyword_vector_text(terms), sum(terms.values())))
            body = (vectors or {}).get(content) or vector_of(content, dimension)
            for name, vector in (("title", vector_of(title or f"title of {content}", dimension)), ("body", body)):
                embeddings.append((base.tenant_id, base.id, chunk_id, name, np.array(vector, np.float32)))
        async with self.pool.acquire() as connection, connection.transaction():
            await connection.executemany(INSERT_CHUNK, chunks)
            await connection.executemany(INSERT_EMBEDDING, embeddings)
            await connection.execute("UPDATE document SET chunk_count = $1 WHERE id = $2", len(chunks), document_id)
        return ids
