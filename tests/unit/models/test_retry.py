from datetime import UTC, datetime

import pytest

from services.agent_runner.models.retry import RetryPolicy, retry_after

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("Thu, 01 Jan 2026 12:00:30 -0000", 30.0),
        ("-3", None),
        ("tomorrow", None),
        ("", None),
        ("9" * 5000, 999_999_999.0),
        ("٣", None),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}, NOW) == seconds


def test_the_wait_grows_and_is_bounded() -> None:
    policy = RetryPolicy(max_attempts=10, base=1, max_backoff=8, max_retry_after=60)
    waits = {attempt: [policy.wait(attempt, None) or 0 for _ in range(200)] for attempt in (1, 9)}
    assert max(waits[1]) <= 1 < max(waits[9]) <= 8
    assert policy.wait(1, 86400) == 60
    assert policy.wait(10, None) is None
