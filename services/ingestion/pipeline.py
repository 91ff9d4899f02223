"""From a claimed document to searchable chunks.

1. `parsing` (set by the claim): load the bytes of the claimed version; parse, clean and cut them in a subprocess.
2. `splitting`: make chunks of the pieces, with their terms for keyword search and their texts to embed.
3. `embedding` n/m: ask for the vectors that the cache lacks, batch by batch; each batch is in the cache before the next is asked for.
   For the generation that serves, which is needed, then for those that the knowledge base has beside it, as far as their models answer.
4. `ready`: one transaction swaps the chunks in.

The ways out: `ready`; `failed`, when the document or the model's answer is at fault, or after too many attempts; `queued` for later, when
the world is (no embeddings server); `queued` for now, handed back, when this process stops. Each write is fenced: a worker whose
lease is gone, whose document was deleted or has newer bytes gets LeaseLost and writes nothing.
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal, Protocol
from uuid import UUID

import structlog

from services.ingestion.chunks import Chunk, make_chunk
from services.ingestion.endings import Endings, see_through
from services.ingestion.sections import ParsedFile, Piece
from shared.contracts.knowledge_settings import KnowledgeBaseSettings
from shared.errors import CodedError, LeaseLost
from shared.failpoints import failpoint

log = structlog.get_logger()

WorkingState = Literal["splitting", "embedding"]

_CHUNKS_PER_TURN = 16  # about 10 ms of work, then the event loop gets a turn
_CAREFUL_BATCH = 8  # of a document whose worker has died before: a death costs what is being asked for
_SPARED_SECONDS = 60.0  # a model that doesn't serve and doesn't answer is not waited for again so soon


@dataclass(frozen=True, slots=True)
class ClaimedDocument:
    """A document and the lease on it. `settings` are its knowledge base's, as stored.

    `embedding_model` makes the vectors of `generation`, which serves; `other_generations` are those beside it, with their models.
    """

    tenant_id: UUID
    knowledge_base_id: UUID
    id: UUID
    version: int
    filename: str
    media_type: str
    epoch: int
    attempts: int
    request_id: str | None
    embedding_model: str
    settings: Mapping[str, Any]
    waited: float  # seconds from the last change of its state to the claim
    deaths: int = 0  # of workers that had it
    generation: int = 1
    other_generations: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` chunks are embedded. `fresh`: some of them by this attempt, so that it counts as progress."""

    state: WorkingState
    done: int
    total: int
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Content:
    """What a document has become. `vectors`: where the vectors of a generation's model are found, by generation."""

    parsed: ParsedFile
    chunks: Sequence[Chunk]
    vectors: Mapping[int, "TextEmbedder"]


class DocumentStore(Endings[ClaimedDocument], Protocol):
    """The document's row and chunks. All raise what those that end the lease do."""

    async def load(self, document: ClaimedDocument) -> bytes: ...
    async def advance(self, document: ClaimedDocument, *steps: Progress) -> None: ...
    async def confirm(self, document: ClaimedDocument) -> None: ...
    async def swap_in(self, document: ClaimedDocument, content: Content) -> None: ...


class Parser(Protocol):
    """Raises DocumentError for what can't be read."""

    async def parse(
        self, data: bytes, *, filename: str, media_type: str, settings: KnowledgeBaseSettings
    ) -> ParsedFile: ...


class TextEmbedder(Protocol):
    """One embedding model behind the cache. `cache_name` and `key` say where a text's vector is found."""

    cache_name: str

    @property
    def batch_size(self) -> int: ...
    def key(self, text: str) -> bytes: ...
    async def missing(self, texts: Sequence[str]) -> list[str]: ...
    async def embed(self, texts: Sequence[str]) -> None: ...


class Embedders(Protocol):
    """Embedders by the model's name. Raises CodedError for a model that can't be used."""

    def embedder(self, model: str) -> TextEmbedder: ...


@dataclass(frozen=True, slots=True)
class Ingestion:
    """Works on one claimed document after another, or on several at once. `progress_every` is in seconds."""

    store: DocumentStore
    parser: Parser
    embedders: Embedders
    progress_every: float
    _spared: dict[str, float] = field(default_factory=dict)  # models, until when

    async def run(self, document: ClaimedDocument) -> None:
        """Brings a document to one of the ways out. Raises nothing but CancelledError, after handing the document back."""
        await see_through(self._ingest(document), document, self.store, crash="the document could not be processed")

    async def _ingest(self, document: ClaimedDocument) -> None:
        started = time.monotonic()
        settings = KnowledgeBaseSettings.model_validate(document.settings)
        embedder = self.embedders.embedder(document.embedding_model)
        data = await self.store.load(document)
        parsed = await self.parser.parse(
            data, filename=document.filename, media_type=document.media_type, settings=settings
        )
        pieces = parsed.pieces
        failpoint("document_parsed")
        log.info("document.parsed", bytes=len(data), chunks=len(pieces), ms=_ms_since(started))
        passed = [Progress("splitting", 0, len(pieces))]
        # A few pieces are split before anybody has read of it: announced with the next state, by one commit.
        if len(pieces) > _CHUNKS_PER_TURN:
            await self.store.advance(document, *passed)
            passed.clear()
        chunks = await _make_chunks(pieces, settings)
        await self._embed(document, chunks, embedder, passed)
        vectors = {document.generation: embedder, **await self._embed_beside(document, chunks)}
        failpoint("document_embedded")
        await self.store.swap_in(document, Content(parsed, chunks, vectors))
        failpoint("document_swapped")
        log.info("document.ready", chunks=len(chunks), ms=_ms_since(started))

    async def _embed(
        self, document: ClaimedDocument, chunks: Sequence[Chunk], embedder: TextEmbedder, passed: Sequence[Progress]
    ) -> None:
        """Brings the vectors of all chunks into the cache, with progress. `passed`: what wasn't announced yet."""
        started = time.monotonic()
        announced = float("-inf")  # the first batch counts as progress, however soon the next fault is
        missing = await embedder.missing(_texts(chunks))
        needed = _needed(chunks, missing)
        total = len(chunks)
        await self.store.advance(document, *passed, Progress("embedding", bisect_right(needed, 0), total))
        async for embedded in embed_in_batches(embedder, missing, _CAREFUL_BATCH if document.deaths else None):
            if embedded == len(missing) or time.monotonic() - announced >= self.progress_every:
                announced = time.monotonic()
                done = bisect_right(needed, embedded)
                await self.store.advance(document, Progress("embedding", done, total, fresh=True))
            else:
                await self.store.confirm(document)  # whoever stops a document waits for one batch
        log.info("document.embedded", texts=len(missing), ms=_ms_since(started))

    async def _embed_beside(self, document: ClaimedDocument, chunks: Sequence[Chunk]) -> dict[int, TextEmbedder]:
        """The same for the generations that don't serve. One whose model fails is left out: it is completed before it serves."""
        found: dict[int, TextEmbedder] = {}
        for generation, model in document.other_generations.items():
            if time.monotonic() < self._spared.get(model, 0):
                continue
            try:
                embedder = self.embedders.embedder(model)
                async for _ in embed_in_batches(embedder, await embedder.missing(_texts(chunks))):
                    await self.store.confirm(document)
                found[generation] = embedder
            except LeaseLost:
                raise
            except CodedError as error:
                self._spared[model] = time.monotonic() + _SPARED_SECONDS
                log.warning("generation.left_out", model=model, code=error.code)
        return found


async def embed_in_batches(
    embedder: TextEmbedder, missing: Sequence[str], most: int | None = None
) -> AsyncIterator[int]:
    """Has the vectors of texts made and cached, at most `most` with one request; after each batch, how many there are."""
    embedded = 0
    while batch := missing[embedded : embedded + min(embedder.batch_size, most or embedder.batch_size)]:
        await embedder.embed(batch)
        embedded += len(batch)
        yield embedded


async def _make_chunks(pieces: Sequence[Piece], settings: KnowledgeBaseSettings) -> list[Chunk]:
    chunks = []
    for number, piece in enumerate(pieces, start=1):
        chunks.append(make_chunk(piece, settings))
        if number % _CHUNKS_PER_TURN == 0:
            await asyncio.sleep(0)
    return chunks


def _texts(chunks: Sequence[Chunk]) -> list[str]:
    """What is embedded, each text once."""
    return list(dict.fromkeys(text for chunk in chunks for text in chunk.texts.values()))


def _needed(chunks: Sequence[Chunk], missing: Sequence[str]) -> list[int]:
    """For each chunk, how many of the missing texts, in their order, must be embedded until it has all its vectors. Never falls."""
    position = {text: number for number, text in enumerate(missing, start=1)}
    return list(accumulate((max(position.get(text, 0) for text in chunk.texts.values()) for chunk in chunks), max))


def _ms_since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
