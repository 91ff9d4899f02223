"""Searches on a real database."""

import pytest

from shared.db.pool import Pool
from tests.integration.retrieval.library import Library


@pytest.fixture
def library(pool: Pool) -> Library:
    """An empty library."""
    return Library(pool)
