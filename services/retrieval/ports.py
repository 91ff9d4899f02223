"""What a search works on, and what it needs of the outside."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from services.retrieval.ranking import DenseMatch, KeywordMatch
from shared.contracts.questions import SearchFilter

Vector: TypeAlias = NDArray[np.float32]
Scan = Literal["exact", "index"]


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    """A knowledge base that may be searched, the name of the model that embeds it, and which of its embeddings serves."""

    id: UUID
    embedding_model: str
    embedding_generation: int = 1


@dataclass(frozen=True, slots=True)
class Scope:
    """What may be read, all of one tenant."""

    tenant_id: UUID
    bases: tuple[KnowledgeBase, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """What is searched for and where: `vectors[i]` is the question as the model of `bases[i]` sees it; None: nobody could embed it."""

    tenant_id: UUID
    bases: Sequence[KnowledgeBase]
    vectors: Sequence[Vector] | None
    terms: Sequence[str]
    filter: SearchFilter | None = None


class Passage(NamedTuple):
    """A chunk that is still there. `parent_id` names the larger passage that is returned for it.

    The first `header_chars` of the content repeat the header of a table; the range begins behind them. Pages count from 1.
    """

    chunk_id: UUID
    document_id: UUID
    knowledge_base_id: UUID
    filename: str
    version: int
    ordinal: int
    title: str
    heading_path: tuple[str, ...]
    content: str
    char_start: int
    char_end: int
    parent_id: UUID | None = None
    header_chars: int = 0
    page_first: int | None = None
    page_last: int | None = None


@dataclass(frozen=True, slots=True)
class Parent:
    """A larger passage whose parts are searched."""

    id: UUID
    title: str
    heading_path: tuple[str, ...]
    content: str
    char_start: int
    char_end: int
    header_chars: int = 0
    page_first: int | None = None
    page_last: int | None = None


class Embedder(Protocol):
    """The vectors of a question's wordings."""

    async def embed(self, model: str, queries: Sequence[str]) -> Sequence[Vector]: ...


class Reader(Protocol):
    """One database connection, for the time of one search. Matches come best first."""

    async def nearest(self, target: Target, limit: int) -> list[DenseMatch]:
        """The chunks nearest to the question, as many as there are up to `limit`; the target has vectors."""
        ...

    async def matching(self, target: Target, limit: int) -> list[KeywordMatch]:
        """The chunks that match the question's terms best; without a cosine when the target has no vectors."""
        ...

    async def load(self, tenant_id: UUID, chunk_ids: Sequence[UUID]) -> Mapping[UUID, Passage]:
        """The chunks that are still there, by id."""
        ...

    async def load_parents(self, tenant_id: UUID, parent_ids: Sequence[UUID]) -> Mapping[UUID, Parent]:
        """The parents that are still there, by id."""
        ...

    @property
    def scans(self) -> Mapping[UUID, Scan]:
        """How `nearest` went through each knowledge base so far."""
        ...

    @property
    def term_weights(self) -> Mapping[str, float]:
        """What the terms that `matching` looked for, and found any of, are worth: their idf over the knowledge bases."""
        ...


class Store(Protocol):
    """What searches read."""

    async def run_scope(self, run_id: UUID) -> Scope | None: ...

    async def tenant_scope(self, tenant_id: UUID, knowledge_base_id: UUID) -> Scope | None: ...

    def reader(self) -> AbstractAsyncContextManager[Reader]: ...
