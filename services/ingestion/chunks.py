"""Chunks: pieces of a document with what is embedded and what is indexed of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from services.ingestion.sections import Piece
from shared.contracts.knowledge_settings import Embed, KnowledgeBaseSettings
from shared.keywords import index_terms

Field = Literal["title", "body"]

_PATH_SEPARATOR = " > "


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece; the text to embed for each field; the terms to index, with how often each occurs."""

    piece: Piece
    texts: Mapping[Field, str]
    terms: Mapping[str, int]


def make_chunk(piece: Piece, settings: KnowledgeBaseSettings) -> Chunk:
    """About a millisecond for 1,000 characters, most of it for the terms."""
    words = "\n".join((*_headings(piece), piece.content))
    return Chunk(piece, _texts(piece, settings.embed), index_terms(words, fold_variants=settings.fold_traditional))


def _texts(piece: Piece, embed: Embed) -> dict[Field, str]:
    """The title finds, the content is read; what has no title can only be found by its body."""
    fields: tuple[Field, ...] = ("title", "body") if embed == "both" else (embed,)
    return {
        name: text_of(name, piece.title, piece.heading_path, piece.content)
        for name in (fields if piece.title else ("body",))
    }


def text_of(field: Field, title: str, heading_path: Sequence[str], content: str) -> str:
    """What is embedded for a field of a chunk: of a stored one too, when another model embeds it again."""
    return content if field == "body" else _PATH_SEPARATOR.join((*heading_path[:-1], title))


def _headings(piece: Piece) -> tuple[str, ...]:
    return piece.heading_path or (piece.title,)
