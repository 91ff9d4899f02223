"""Searches on a real database."""

import pytest

from services.ingestion.vector_indexes import VectorIndexes
from shared.db.pool import Pool
from tests.integration.retrieval.large_bases import SETTINGS
from tests.integration.retrieval.library import Library


@pytest.fixture
def library(pool: Pool) -> Library:
    """An empty library."""
    return Library(pool)


@pytest.fixture
def indexes(pool: Pool) -> VectorIndexes:
    """Ingestion's upkeep of the indexes, to be swept by the test."""
    return VectorIndexes(pool, SETTINGS)
