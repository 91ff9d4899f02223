"""The baselines of ingestion: each format's library and nothing else, and a bulk insert of chunks and nothing else."""

import csv
import io
import re
import time
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg
import numpy as np
import pypdfium2
from lxml import etree, html
from markdown_it import MarkdownIt
from pgvector import Vector
from pgvector.asyncpg import register_vector

_TABLES = """
CREATE TEMPORARY TABLE bare_chunk (LIKE chunk INCLUDING DEFAULTS INCLUDING INDEXES);
CREATE TEMPORARY TABLE bare_embedding (LIKE chunk_embedding INCLUDING DEFAULTS INCLUDING INDEXES);
"""
_INSERT_CHUNKS = """
INSERT INTO bare_chunk (tenant_id, id, knowledge_base_id, document_id, version, ordinal, title, heading_path, content, char_start, char_end,
                        keywords, keyword_count)
SELECT $1, c.id, $1, c.document_id, 1, c.ordinal, c.title, ARRAY[c.title], c.content, 0, 0, c.keywords::tsvector, 1
FROM unnest($2::uuid[], $3::uuid[], $4::int[], $5::text[], $6::text[], $7::text[])
     AS c (id, document_id, ordinal, title, content, keywords)
"""
_INSERT_EMBEDDINGS = """
INSERT INTO bare_embedding (tenant_id, knowledge_base_id, chunk_id, field, embedding)
SELECT $1, $1, id, 'body', embedding FROM unnest($2::uuid[], $3::vector[]) AS e (id, embedding)
"""
_XML_PARTS = re.compile(r"^(?:word/document|ppt/slides/slide\d+|xl/worksheets/sheet\d+|.*\.xhtml).*$")


def _office(data: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = [archive.read(name) for name in archive.namelist() if _XML_PARTS.match(name)]
    return "".join(str(text) for part in parts for text in etree.fromstring(part).itertext())


def _pdf(data: bytes) -> str:
    document = pypdfium2.PdfDocument(data)
    return "".join(page.get_textpage().get_text_bounded() for page in document)


PARSERS: dict[str, Callable[[bytes], Any]] = {
    "md": lambda data: MarkdownIt("commonmark").enable("table").parse(data.decode()),
    "txt": lambda data: data.decode(),
    "html": lambda data: "".join(map(str, html.fromstring(data).itertext())),
    "csv": lambda data: list(csv.reader(io.StringIO(data.decode()))),
    "docx": _office,
    "pptx": _office,
    "xlsx": _office,
    "epub": _office,
    "pdf": _pdf,
}


def parse_rate(kind: str, files: Sequence[bytes]) -> float:
    """Files a second of the bare parser."""
    started = time.perf_counter()
    for data in files:
        PARSERS[kind](data)
    return len(files) / (time.perf_counter() - started)


async def insert_rate(database_url: str, rows: Sequence[asyncpg.Record], dimension: int) -> float:
    """Chunks a second of one bulk insert into tables of the product's shape and indexes: ids, texts, keywords and a vector each."""
    connection = await asyncpg.connect(database_url)
    try:
        await register_vector(connection)
        await connection.execute(_TABLES)
        vectors = np.random.default_rng(1).standard_normal((len(rows), dimension)).astype(np.float32)
        ids = [row["id"] for row in rows]
        columns = [[row[name] for row in rows] for name in ("document_id", "ordinal", "title", "content", "keywords")]
        started = time.perf_counter()
        async with connection.transaction():
            await connection.execute(_INSERT_CHUNKS, rows[0]["tenant_id"], ids, *columns)
            await connection.execute(_INSERT_EMBEDDINGS, rows[0]["tenant_id"], ids, [Vector(v) for v in vectors])
        return len(rows) / (time.perf_counter() - started)
    finally:
        await connection.close()
