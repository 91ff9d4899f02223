"""Chunks and their parents as the statements that insert them take them."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from services.ingestion.chunks import Chunk
from services.ingestion.sections import Piece
from shared.keyword_vector import keyword_vector_text


def chunk_row(chunk_id: UUID, chunk: Chunk, parents: Mapping[int, UUID]) -> dict[str, Any]:
    """The columns of `insert_chunks`. `parents` are ids by ordinal."""
    parent = chunk.piece.parent
    return {
        **piece_row(chunk_id, chunk.piece),
        "parent_id": parents[parent.ordinal] if parent else None,
        "keywords": keyword_vector_text(chunk.terms),
        "keyword_count": sum(chunk.terms.values()),
    }


def piece_row(piece_id: UUID, piece: Piece) -> dict[str, Any]:
    """The columns of `insert_parents`."""
    first, last = piece.pages or (None, None)
    return {
        "id": piece_id,
        "ordinal": piece.ordinal,
        "title": piece.title,
        "heading_path": piece.heading_path,
        "content": piece.content,
        "char_start": piece.start,
        "char_end": piece.end,
        "header_chars": piece.header_chars,
        "page_first": first,
        "page_last": last,
    }
