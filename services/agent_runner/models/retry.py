"""When a model call is tried again, and how long it waits before that."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter; an endpoint's Retry-After goes before it. All times in seconds."""

    max_attempts: int = 5
    base: float = 0.5
    max_backoff: float = 8.0
    max_retry_after: float = 60.0

    def wait(self, attempt: int, retry_after: float | None) -> float | None:
        """Seconds to wait after the failure of `attempt` (from 1); None for no further attempt."""
        if attempt >= self.max_attempts:
            return None
        if retry_after is not None:
            return min(retry_after, self.max_retry_after)
        return random.uniform(0, min(self.base * 2 ** (attempt - 1), self.max_backoff))  # noqa: S311 - spreads load only


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that a Retry-After header (seconds or HTTP date, RFC 9110 section 10.2.3) asks for; None without one."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())
