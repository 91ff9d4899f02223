"""In-memory ports of the pipeline that record what they were told."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from services.ingestion.chunks import Chunk
from services.ingestion.pipeline import ClaimedDocument, Content, Progress
from services.ingestion.sections import ParsedFile, Piece
from shared.contracts.knowledge_settings import KnowledgeBaseSettings
from shared.errors import ErrorInfo, LeaseLost


def piece(ordinal: int, title: str, content: str, path: tuple[str, ...] | None = None) -> Piece:
    return Piece(ordinal, title, path if path is not None else (title,) if title else (), content, 0, len(content))


def claimed(embed: str = "both") -> ClaimedDocument:
    return ClaimedDocument(
        tenant_id=UUID(int=1),
        knowledge_base_id=UUID(int=2),
        id=UUID(int=3),
        version=1,
        filename="a.md",
        media_type="text/markdown",
        epoch=1,
        attempts=1,
        request_id=None,
        embedding_model="tiny",
        settings={"embed": embed},
        waited=0.0,
    )


@dataclass
class RecordingStore:
    """Its document has newer bytes, was deleted, ... as soon as `lost_after` states were committed."""

    lost_after: int | None = None
    away: Exception | None = None
    progress: list[Progress] = field(default_factory=list)
    commits: list[list[str]] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    endings: list[tuple[str, str | None]] = field(default_factory=list)
    content: Content | None = None
    confirmed: int = 0

    async def load(self, document: ClaimedDocument) -> bytes:
        return b"bytes"

    async def advance(self, document: ClaimedDocument, *steps: Progress) -> None:
        self._fence()
        self.commits.append([step.state for step in steps])
        self.progress += steps

    async def confirm(self, document: ClaimedDocument) -> None:
        self.confirmed += 1
        self._fence()

    async def swap_in(self, document: ClaimedDocument, content: Content) -> None:
        self._fence()
        self.chunks = list(content.chunks)
        self.content = content
        self.endings.append(("ready", None))

    async def fail(self, document: ClaimedDocument, error: ErrorInfo) -> None:
        self._end("failed", error)

    async def delay(self, document: ClaimedDocument, error: ErrorInfo) -> None:
        self._end("delayed", error)

    async def hand_back(self, document: ClaimedDocument) -> None:
        self._end("handed back", None)

    def _end(self, how: str, error: ErrorInfo | None) -> None:
        self._fence()
        self.endings.append((how, error.code if error else None))

    def _fence(self) -> None:
        if self.away is not None:
            raise self.away
        if self.lost_after is not None and len(self.progress) >= self.lost_after:
            raise LeaseLost("lost")


@dataclass
class SlowStore(RecordingStore):
    """Its `hand_back` waits until it may finish."""

    handing_back: asyncio.Event = field(default_factory=asyncio.Event)
    may_finish: asyncio.Event = field(default_factory=asyncio.Event)
    handed_back: asyncio.Event = field(default_factory=asyncio.Event)

    async def hand_back(self, document: ClaimedDocument) -> None:
        self.handing_back.set()
        await self.may_finish.wait()
        await super().hand_back(document)
        self.handed_back.set()


@dataclass
class FixedParser:
    """Finds the same pieces in every document, or fails."""

    pieces: list[Piece]
    error: Exception | None = None

    async def parse(
        self, data: bytes, *, filename: str, media_type: str, settings: KnowledgeBaseSettings
    ) -> ParsedFile:
        if self.error is not None:
            raise self.error
        return ParsedFile(self.pieces)


@dataclass
class CountingEmbedder:
    """Remembers which texts it was asked for, batch by batch. `errors` are raised by the coming batches, None lets one pass."""

    batch_size: int = 2
    cache_name: str = "tiny"
    cached: set[str] = field(default_factory=set)
    batches: list[list[str]] = field(default_factory=list)
    errors: list[BaseException | None] = field(default_factory=list)

    def embedder(self, model: str) -> "CountingEmbedder":
        return self

    def key(self, text: str) -> bytes:
        return text.encode()

    async def missing(self, texts: Sequence[str]) -> list[str]:
        return [text for text in texts if text not in self.cached]

    async def embed(self, texts: Sequence[str]) -> None:
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        self.batches.append(list(texts))
        self.cached.update(texts)


@dataclass
class Models:
    """Several models by name."""

    embedders: dict[str, CountingEmbedder]

    def embedder(self, model: str) -> CountingEmbedder:
        return self.embedders[model]
