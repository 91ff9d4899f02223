"""The retrieval service: `python -m services.retrieval.main`. Everything is built here and nowhere else."""

from services.retrieval.embedder import QueryEmbedder
from services.retrieval.handlers import subscribe
from services.retrieval.relevance import ScoreRange
from services.retrieval.rerank_stage import RerankStage
from services.retrieval.reranking.model import ModelReranker
from services.retrieval.search import Search
from services.retrieval.settings import RetrievalSettings
from services.retrieval.store import SESSION, SearchStore
from shared.db.pool import open_pool
from shared.embeddings import EmbeddingClient, embedding_http_client
from shared.logging import configure_logging
from shared.service import Service, consumer_check, database_check, load_models, main, make_broker, run_service
from shared.settings import load_settings

NAME = "retrieval"


async def start() -> None:
    """Reads the configuration, waits for the database, then answers questions until SIGTERM."""
    settings = load_settings(RetrievalSettings)
    configure_logging(NAME, settings.log_level)
    registry = load_models(settings.models_file)
    pool = await open_pool(settings.database_url.get_secret_value(), NAME, settings.pool, SESSION)
    http = embedding_http_client()
    client = EmbeddingClient(registry, http, retry_seconds=settings.embedding.retry_seconds)
    store = SearchStore(pool, settings.search.keyword_postings, settings.search.exact_chunks)
    broker = make_broker(settings, NAME, apply_types=False)
    reranking = RerankStage(
        settings.search, ModelReranker(registry.default_rerank, http) if registry.default_rerank else None
    )
    ranges = {name: ScoreRange(*entry.score_range) for name, entry in registry.embedding.items()}
    search = Search(store, QueryEmbedder(client, settings.embedding), settings.search, reranking, ranges)
    subscribe(broker, search)

    async def close() -> None:
        await http.aclose()
        await pool.close()

    service = Service(
        name=NAME,
        broker=broker,
        loops=[],
        checks={"database": database_check(pool), "consumer": consumer_check(broker)},
        close=close,
    )
    await run_service(service, settings)


if __name__ == "__main__":
    main(start)
