"""The ingestion service: `python -m services.ingestion.main`. Everything is built here and nowhere else."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import NamedTuple
from uuid import UUID

from services.ingestion.courtesy import Courtesy
from services.ingestion.embedding import EmbeddingModels
from services.ingestion.generation_store import GenerationStore
from services.ingestion.parsing.worker import IsolatedParser
from services.ingestion.pipeline import Embedders, Ingestion, Parser
from services.ingestion.reembedding import ClaimedGeneration, Reembedding
from services.ingestion.settings import IngestionSettings
from services.ingestion.store import DocumentStore, somebody_waits
from services.ingestion.sweeper import Sweeper, discard_generations_for_ever, prune_cache_for_ever
from services.ingestion.vector_indexes import VectorIndexes
from services.ingestion.worker import GenerationWorker, Worker
from shared.contracts.commands import IngestDocument
from shared.db.pool import DATABASE_TROUBLE, Pool, open_pool
from shared.embeddings import EmbeddingClient, embedding_http_client
from shared.hints import HintPublisher
from shared.jobs import Jobs
from shared.leases import LeaseKeeper, Presence
from shared.logging import configure_logging
from shared.outbox import OutboxRelay
from shared.service import Loop, Service, consumer_check, database_check, load_models, main, make_broker, run_service
from shared.settings import load_settings
from shared.stuck import report_stuck_for_ever
from shared.topology import DOCUMENTS
from shared.wake_ups import subscribe_to_wake_ups

NAME = "ingestion"


async def start() -> None:
    """Reads the configuration, waits for the database, then serves until SIGTERM."""
    settings = load_settings(IngestionSettings)
    configure_logging(NAME, settings.log_level)
    os.nice(settings.nice)
    registry = load_models(settings.models_file)
    async with AsyncExitStack() as stack:
        pool = await open_pool(settings.database_url.get_secret_value(), NAME, settings.pool)
        stack.push_async_callback(pool.close)
        parser = await stack.enter_async_context(
            IsolatedParser(settings.limits, ocr=settings.ocr, parallel=settings.jobs.slots)
        )
        http = await stack.enter_async_context(embedding_http_client())
        client = EmbeddingClient(registry, http, retry_seconds=settings.work.embed_retry)
        courtesy = Courtesy(settings.work.courtesy, partial(somebody_waits, pool))
        embedders = EmbeddingModels(registry, client, pool, settings.work.embed_seconds, courtesy)
        service = build(settings, pool, parser, embedders, courtesy)
        await run_service(service, settings)


def build(settings: IngestionSettings, pool: Pool, parser: Parser, embedders: Embedders, courtesy: Courtesy) -> Service:
    """Joins the parts; the caller closes those that it passes in."""
    work, leases = settings.work, settings.lease
    database_url, rabbitmq_url = settings.database_url.get_secret_value(), settings.rabbitmq_url.get_secret_value()
    relay, hints = OutboxRelay(pool, rabbitmq_url, NAME, declares=(DOCUMENTS,)), HintPublisher(rabbitmq_url, NAME)
    presence = Presence(database_url, NAME)
    store = DocumentStore(pool, presence.owner, leases, hints)
    keeper = LeaseKeeper(store.renew, leases)
    prune = partial(prune_cache_for_ever, pool, timedelta(days=settings.cache.keep_days), settings.cache.prune_every)

    worker = Worker(keeper, Ingestion(store, parser, embedders, work.progress_every), courtesy)
    jobs = Jobs(store.claim, worker.work, settings.jobs, DATABASE_TROUBLE)
    sweeper = Sweeper(store, keeper.held, jobs.nudge, leases.sweep_every)
    vector_indexes = VectorIndexes(pool, settings.vector_indexes)
    stuck = partial(report_stuck_for_ever, pool)
    generations = _generations(settings, pool, presence.owner, hints, embedders)

    def stop_taking() -> None:
        jobs.stop_taking()
        generations.jobs.stop_taking()

    async def drain() -> None:
        await asyncio.gather(jobs.drain(), generations.jobs.drain())

    broker = make_broker(settings, NAME, apply_types=False)
    subscribe_to_wake_ups(broker, DOCUMENTS, IngestDocument, jobs)
    return Service(
        name=NAME,
        broker=broker,
        loops=[
            *(presence.run, relay.run, hints.run, keeper.run, sweeper.run, prune, vector_indexes.run, jobs.run, stuck),
            *generations.loops,
        ],
        checks={"database": database_check(pool), "consumer": consumer_check(broker)},
        stop_taking=stop_taking,
        drain=drain,
    )


class _Generations(NamedTuple):
    jobs: Jobs[ClaimedGeneration]
    loops: Sequence[Loop]


def _generations(
    settings: IngestionSettings, pool: Pool, owner: UUID, hints: HintPublisher, embedders: Embedders
) -> _Generations:
    """What embeds knowledge bases again when their model is changed."""
    store = GenerationStore(pool, owner, settings.lease, hints, settings.vector_indexes.min_vectors)
    keeper = LeaseKeeper(store.renew, settings.lease)
    reembedding = Reembedding(store, embedders, settings.work.progress_every, settings.generations.index_seconds)
    worker = GenerationWorker(keeper, store, reembedding)
    jobs = Jobs(worker.claim, worker.work, settings.generation_jobs, DATABASE_TROUBLE)
    keep = timedelta(days=settings.generations.keep_days)
    discard = partial(discard_generations_for_ever, store, keep, settings.generations.sweep_every)
    return _Generations(jobs, [keeper.run, jobs.run, discard])


if __name__ == "__main__":
    main(start)
