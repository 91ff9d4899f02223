"""Sparing searches the wait for an embedding model that is away."""

import time
from collections import Counter
from collections.abc import Callable, Sequence

_IN_A_ROW = 2  # one may be late because of a single long question


class RestingModels:
    """Embedding models that failed twice in a row: searches do without them at once, until one search every `seconds` tries again."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until: dict[str, float] = {}
        self._failures: Counter[str] = Counter()

    def any_of(self, models: Sequence[str]) -> bool:
        """Whether one of these rests now. Who is told that none does is to try, and to say how it went."""
        now = self._clock()
        if any(self._until.get(model, now) > now for model in models):
            return True
        for model in models:  # those who ask while this one tries needn't wait as well
            if model in self._until:
                self._until[model] = now + self._seconds
        return False

    def failed(self, model: str) -> None:
        """It couldn't be reached, or was late: not for what it was asked."""
        self._failures[model] += 1
        if self._failures[model] >= _IN_A_ROW:
            self._until[model] = self._clock() + self._seconds

    def worked(self, model: str) -> None:
        self._until.pop(model, None)
        self._failures.pop(model, None)
