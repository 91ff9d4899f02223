"""How many texts a request to an embeddings server holds."""

from services.ingestion.embedding import Pace


def test_a_slow_server_gets_smaller_requests_at_once_and_a_fast_one_whole_batches_again() -> None:
    pace = Pace(16, seconds=0.5)
    pace.observe(16, 4.0)
    assert pace.size == 2
    pace.observe(2, 0.5)
    assert pace.size == 2
    sizes = []
    for _ in range(4):
        pace.observe(pace.size, pace.size * 0.001)
        sizes.append(pace.size)
    assert sizes == [4, 8, 16, 16]


def test_never_less_than_one_text_and_zero_seconds_mean_whole_batches() -> None:
    slow, free = Pace(16, seconds=0.5), Pace(16, seconds=0)
    slow.observe(16, 1000.0)
    free.observe(16, 1000.0)
    assert (slow.size, free.size) == (1, 16)
